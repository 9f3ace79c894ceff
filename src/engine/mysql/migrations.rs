//! Migrations, by one session at a time on each node.

use std::time::Duration;

use diesel::mysql::Mysql;

use super::bytes::check_client_library;
use super::execute::{Run, reset_statement_cache};
use super::writers::Cluster;
use super::{session, sql, writers};
use crate::link::Link;
use crate::migrations::backend::MigrationBackend;
use crate::migrations::files::{BackendMigrations, MigrationFile, migration_files};
use crate::migrations::runner;
use crate::poll::caught;
use crate::timer::Timer;
use crate::{Error, backoff, transaction::depth};

/// The most steps that migrating takes on Galera, failed ones included, and the longest pause after a failed one.
const MAX_ATTEMPTS: i32 = 20;
const PAUSE: Duration = Duration::from_millis(200);

impl BackendMigrations for Mysql {
    const FILES: &'static [MigrationFile] = migration_files!("mysql");
}

impl<C: Link<Backend = Mysql>> MigrationBackend<C> for Mysql {
    async fn migrate(conn: &mut C) -> Result<Vec<String>, Error> {
        // The versions of applied migrations are texts.
        check_client_library(conn).await?;
        let cluster = writers::find(conn).await?;
        let attempts = match cluster {
            None => 1,
            // A named lock excludes sessions of one node only: another node may migrate at the same time.
            Some(Cluster::Galera) => MAX_ATTEMPTS,
            // CREATE TABLE on two primaries at once ends the whole group of Group Replication.
            Some(cluster) => return Err(cluster.refused()),
        };
        let ran = caught(lock_and_run(conn, attempts)).await;
        depth::break_if_panicked(conn, ran)
    }
}

/// Runs the pending migrations, with the named lock.
async fn lock_and_run<C: Link<Backend = Mysql>>(
    conn: &mut C,
    attempts: i32,
) -> Result<Vec<String>, Error> {
    let seconds = i32::MAX;
    let acquire = || sql::AcquireMigrationLock { seconds };
    while acquire().get_result::<_, Option<i64>>(conn).await? != Some(1) {}
    let ran = run_pending(conn, attempts).await;
    session::restore_by_text(conn, sql::RELEASE_MIGRATION_LOCK).await?;
    ran
}

async fn run_pending<C: Link<Backend = Mysql>>(
    conn: &mut C,
    mut attempts_left: i32,
) -> Result<Vec<String>, Error> {
    let mut ran = Vec::new();
    loop {
        attempts_left -= 1;
        match run_next(conn).await {
            Ok(Some(version)) => ran.push(version),
            Ok(None) => return Ok(ran),
            Err(error) => {
                reset_statement_cache(conn);
                if attempts_left <= 0 {
                    return Err(error);
                }
                // Another node has run the migration or is running it. Each migration can run again.
                C::LockTimer::pause(backoff::jittered(PAUSE)).await;
            }
        }
    }
}

/// Runs the first pending migration. Returns its version, or `None` if there is none.
async fn run_next(conn: &mut impl Link<Backend = Mysql>) -> Result<Option<String>, Error> {
    match runner::pending(conn).await?.first() {
        Some(next) => Ok(Some(next.run(conn).await?)),
        None => Ok(None),
    }
}
