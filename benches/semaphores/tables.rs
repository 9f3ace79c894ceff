//! The tables of the other designs, with one row or one set of rows per semaphore.

use anyhow::Result;

use crate::sql::Baselines;

/// Rows that one INSERT has.
const BATCH_SIZE: usize = 1000;

/// Each as its author has it, without what the benchmark does not use.
fn create(time: &str) -> [String; 7] {
    [
        // 2015: a row per semaphore to queue at, a row per holder.
        "CREATE TABLE parents (name VARCHAR(255) PRIMARY KEY, permits BIGINT NOT NULL)".to_owned(),
        format!(
            "CREATE TABLE tokens (token VARCHAR(40) PRIMARY KEY, name VARCHAR(255) NOT NULL, \
             expires_on {time})"
        ),
        "CREATE INDEX tokens_name ON tokens (name)".to_owned(),
        // Version 4: a row per slot with a key of its own.
        format!(
            "CREATE TABLE rows4 (id BIGINT PRIMARY KEY, name VARCHAR(255) NOT NULL, number BIGINT NOT NULL, \
             token VARCHAR(40) UNIQUE, expires_on {time}, UNIQUE (name, number))"
        ),
        // Solid Queue.
        format!(
            "CREATE TABLE counters (name VARCHAR(255) PRIMARY KEY, value BIGINT NOT NULL, expires_on {time})"
        ),
        // ShedLock.
        format!(
            "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until {time}, locked_at {time}, \
             locked_by VARCHAR(255) NOT NULL)"
        ),
        // For two updates and nothing else.
        format!(
            "CREATE TABLE two_updates (name VARCHAR(255) NOT NULL, number BIGINT NOT NULL, token VARCHAR(40), \
             fence BIGINT NOT NULL, expires_on {time}, PRIMARY KEY (name, number))"
        ),
    ]
}

const FREE: &str = "'2000-01-01 00:00:00'";

pub(crate) fn create_and_fill<C: Baselines>(
    conn: &mut C,
    names: &[String],
    permits: u32,
) -> Result<()> {
    for statement in create(C::TIME) {
        conn.batch_execute(&statement)?;
    }
    let per_name = |row: &dyn Fn(&str) -> String| names.iter().map(|name| row(name)).collect();
    let per_slot = |row: &dyn Fn(&str, u32) -> String| {
        let slots = names
            .iter()
            .flat_map(|name| (0..permits).map(move |n| (name, n)));
        slots.map(|(name, number)| row(name, number)).collect()
    };
    let mut id = 0;
    let tables: [(&str, Vec<String>); 5] = [
        (
            "parents",
            per_name(&|name| format!("('{name}', {permits})")),
        ),
        (
            "counters",
            per_name(&|name| format!("('{name}', {permits}, NULL)")),
        ),
        (
            "shedlock",
            per_name(&|name| format!("('{name}', {FREE}, {FREE}, '')")),
        ),
        (
            "two_updates",
            per_slot(&|name, number| format!("('{name}', {number}, NULL, 0, {FREE})")),
        ),
        (
            "rows4",
            per_slot(&|name, number| format!("('{name}', {number}, NULL, NULL)")),
        ),
    ];
    for (table, rows) in tables {
        for rows in rows.chunks(BATCH_SIZE) {
            let rows: Vec<_> = rows
                .iter()
                .map(|row| {
                    if table == "rows4" {
                        id += 1;
                        row.replacen('(', &format!("({id}, "), 1)
                    } else {
                        row.clone()
                    }
                })
                .collect();
            conn.batch_execute(&format!("INSERT INTO {table} VALUES {}", rows.join(", ")))?;
        }
    }
    Ok(())
}
