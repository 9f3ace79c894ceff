//! The tables of the other designs, with one row or one set of rows for the semaphore.

use diesel::QueryResult;
use diesel_locks::Semaphore;

use crate::harness::{Backend, Engine};

/// Each as its author has it, without what the benchmark does not use.
pub(crate) fn create_and_fill<C: Backend>(conn: &mut C, semaphore: &Semaphore) -> QueryResult<()> {
    let time = match C::ENGINE {
        Engine::Postgres => "TIMESTAMPTZ",
        _ => "TIMESTAMP(6) NULL",
    };
    let (name, permits) = (semaphore.name(), semaphore.permits().expect("its own"));
    let mut statements = vec![
        // 2015: a row per semaphore to queue at, a row per holder.
        "CREATE TABLE parents (name VARCHAR(255) PRIMARY KEY, permits BIGINT NOT NULL)".to_owned(),
        format!("INSERT INTO parents VALUES ('{name}', {permits})"),
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
        format!("INSERT INTO counters VALUES ('{name}', {permits}, NULL)"),
        // For two updates and nothing else.
        format!(
            "CREATE TABLE two_updates (name VARCHAR(255) NOT NULL, number BIGINT NOT NULL, token VARCHAR(40), \
             fence BIGINT NOT NULL, expires_on {time}, PRIMARY KEY (name, number))"
        ),
    ];
    for number in 0..permits {
        let row = format!("INSERT INTO rows4 VALUES ({number}, '{name}', {number}, NULL, NULL)");
        statements.push(row);
        statements.push(format!(
            "INSERT INTO two_updates VALUES ('{name}', {number}, NULL, 0, '2000-01-01 00:00:00')"
        ));
    }
    let mut statements = statements.iter();
    statements.try_for_each(|statement| conn.batch_execute(statement))
}
