//! Migrations, with the write lock.

use diesel::sqlite::Sqlite;

use super::begin_write;
use super::deadline::Deadline;
use crate::link::{self, Link};
use crate::migrations::backend::MigrationBackend;
use crate::migrations::files::{BackendMigrations, MigrationFile, migration_files};
use crate::migrations::runner;
use crate::{Error, Wait};

impl BackendMigrations for Sqlite {
    const FILES: &'static [MigrationFile] = migration_files!("sqlite");
}

impl<C: Link<Backend = Sqlite>> MigrationBackend<C> for Sqlite {
    async fn migrate(conn: &mut C) -> Result<Vec<String>, Error> {
        begin_write(conn, &Deadline::new(Wait::Forever)).await?;
        let ran = run_migrations(conn).await;
        link::end(conn, ran).await
    }
}

async fn run_migrations(conn: &mut impl Link<Backend = Sqlite>) -> Result<Vec<String>, Error> {
    let pending = runner::pending(conn).await?;
    runner::run_all(conn, pending).await
}
