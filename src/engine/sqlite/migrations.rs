//! Migrations, with the write lock.

use std::time::Duration;

use diesel::sql_types::Text;
use diesel::sqlite::Sqlite;

use crate::engine::migration_runner::{
    BackendMigrations, MigrationFile, Plan, Records, migration_files,
};
use crate::engine::sqlite::write_lock::Deadline;
use crate::engine::sqlite::{begin_write, end};
use crate::error::texts::NEWER_SQLITE;
use crate::link::On;
use crate::link::raw_sql::statement;
use crate::rt::backoff::jittered;
use crate::{Error, Wait, rt};

impl BackendMigrations for Sqlite {
    const FILES: &'static [MigrationFile] = migration_files!("sqlite");

    const PARTS: &'static [&'static str] = &[
        "diesel_locks_objects.id TEXT",
        "diesel_locks_objects.kept BOOLEAN",
        "diesel_locks_slots.name TEXT",
        "diesel_locks_slots.number INTEGER",
        "diesel_locks_slots.token BLOB",
        "diesel_locks_slots.holder TEXT",
        "diesel_locks_slots.fence BIGINT",
        "diesel_locks_slots.acquired_us BIGINT",
        "diesel_locks_slots.expires_us BIGINT",
        "diesel_locks_slots.hold_until_us BIGINT",
        "diesel_locks_semaphores.name TEXT",
        "diesel_locks_semaphores.permits INTEGER",
        "diesel_locks_fences.id INTEGER",
        "diesel_locks_fences.fence BIGINT",
        "diesel_locks_sequences.name TEXT",
        "diesel_locks_sequences.scope TEXT",
        "diesel_locks_sequences.last BIGINT",
    ];
}

statement! {
    Sqlite;
    Version {} -> Text,
    |self| { "SELECT sqlite_version()" }
}

statement! {
    Sqlite;
    /// Lists the columns of the tables, and of Diesel's table. Raw, because the DSL has no PRAGMA.
    Parts {} -> Text,
    |self| {
        "SELECT t.name || '.' || c.name || ' ' || c.type \
         FROM main.sqlite_master AS t, pragma_table_info(t.name, 'main') AS c WHERE t.type = 'table' \
         AND (t.name LIKE 'diesel!_locks!_%' ESCAPE '!' OR t.name = '__diesel_schema_migrations')"
    }
}

/// The first version that has the functions for JSON and the operator `->>`.
const OLDEST: (u32, u32) = (3, 38);

/// Without WAL, COMMIT fails while another connection reads, as one does that looks whether it has to migrate. Without a
/// `busy_timeout` it fails at once, as do other statements while the file is new.
const MOST_ATTEMPTS: u32 = 100;

const LONGEST_PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn migrate(conn: &mut impl On<Sqlite>) -> Result<Vec<String>, Error> {
    let mut attempts = 1..MOST_ATTEMPTS;
    loop {
        match migrate_once(conn).await {
            Err(error) if error.is_timeout() && attempts.next().is_some() => {}
            migrated => return migrated,
        }
        rt::pause(jittered(LONGEST_PAUSE)).await;
    }
}

async fn migrate_once(conn: &mut impl On<Sqlite>) -> Result<Vec<String>, Error> {
    let version: String = conn.get_result(Version {}).await?;
    if !is_new_enough(&version) {
        return Err(Error::UnsuitableDatabase {
            found: format!("SQLite {version}"),
            needed: NEWER_SQLITE,
        });
    }
    match plan(conn).await {
        Ok(plan) if plan.pending.is_empty() => return Ok(Vec::new()),
        // Another connection writes, which is waited for.
        Err(error) if !error.is_timeout() => return Err(error),
        Ok(_) | Err(_) => {}
    }
    begin_write(conn, &Deadline::new(Wait::Forever)).await?;
    let ran = run_pending(conn).await;
    end(conn, ran).await
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= OLDEST,
        _ => false,
    }
}

async fn run_pending(conn: &mut impl On<Sqlite>) -> Result<Vec<String>, Error> {
    plan(conn).await?.run_all(conn).await
}

async fn plan(conn: &mut impl On<Sqlite>) -> Result<Plan, Error> {
    match plan_once(conn).await {
        Err(Error::DifferentTables { .. }) => plan_once(conn).await,
        plan => plan,
    }
}

async fn plan_once(conn: &mut impl On<Sqlite>) -> Result<Plan, Error> {
    let parts: Vec<String> = conn.load(Parts {}).await?;
    Plan::new(conn, &parts, Records::among(&parts)).await
}
