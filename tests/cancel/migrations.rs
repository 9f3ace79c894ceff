//! Migrations: after the drop another session can run them. On PostgreSQL and SQLite all are undone or none.

use diesel_locks::{migrate_async, run_migrations_async};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use crate::support::case::Case;
use crate::support::engine::Engine;
use crate::support::watch::Held;

/// Of the newest version first.
const FOLDERS: [&str; 3] = ["0003_sequences", "0002_semaphores", "0001_object_locks"];

/// Runs what the last attempt has not run, and removes all tables, also that of Diesel.
fn migrate_and_revert<E: Engine>(conn: &mut E::Blocking) {
    let ran = diesel_locks::migrate(conn).expect("migrate").len();
    let in_part = !E::MIGRATES_IN_TRANSACTION && ran < FOLDERS.len();
    assert!(matches!(ran, 0 | 3) || in_part, "{ran} were missing");
    let recorded = "SELECT count(*) FROM __diesel_schema_migrations";
    assert_eq!(E::blocking_number(conn, recorded), 3);
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    for folder in FOLDERS {
        let down = format!(
            "{ours}/{}/00000000000000-diesellocks-{folder}/down.sql",
            E::MIGRATIONS
        );
        E::sql(conn, &std::fs::read_to_string(down).expect("SQL"));
    }
    E::sql(conn, "DROP TABLE __diesel_schema_migrations");
}

pub(crate) async fn nobody_migrates<E: Engine>() {
    let case = Case::<E>::new("migrate_async", Held::Migrations);
    case.prepare(migrate_and_revert::<E>)
        .run(|conn, _| Box::pin(async { migrate_async(conn).await.map(drop) }))
        .await;
}

pub(crate) async fn another_migrates<E: Engine>() {
    let case = Case::<E>::new("migrate_async, waits", Held::Migrations);
    case.prepare(migrate_and_revert::<E>)
        .blocked()
        .run(|conn, _| Box::pin(async { migrate_async(conn).await.map(drop) }))
        .await;
}

/// One that runs outside of a transaction.
const APPLICATION: EmbeddedMigrations = embed_migrations!("tests/cancel/application");

/// Runs what the last attempt has begun, and forgets it.
fn run_and_forget<E: Engine>(conn: &mut E::Blocking) {
    let ran = diesel_locks::run_migrations(conn, APPLICATION).expect("run_migrations");
    assert!(ran.len() < 2, "{ran:?}");
    E::sql(conn, "DROP TABLE app_rows");
    E::sql(
        conn,
        "DELETE FROM __diesel_schema_migrations WHERE version = '1'",
    );
}

pub(crate) async fn of_the_application<E: Engine>() {
    let case = Case::<E>::new("run_migrations_async", Held::Migrations);
    case.prepare(run_and_forget::<E>)
        .run(|conn, _| Box::pin(async { run_migrations_async(conn, APPLICATION).await.map(drop) }))
        .await;
}
