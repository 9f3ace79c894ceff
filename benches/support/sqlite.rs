//! SQLite: a file in WAL mode, on the disk that holds the build.

use std::fs;

use anyhow::{Context, Result};
use diesel::connection::SimpleConnection;
use diesel::dsl::select;
use diesel::prelude::*;
use tempfile::TempDir;

use super::backend::Backend;
use super::variant::Variant;

#[diesel::declare_sql_function]
extern "SQL" {
    fn sqlite_version() -> Text;
}

impl Backend for SqliteConnection {
    const NAME: &'static str = "sqlite";
    const OLD_SNAPSHOT: &'static str = "BEGIN; SELECT price FROM bonds WHERE id = 1";
    /// There are no advisory locks.
    const VARIANTS: &'static [Variant] = &[
        Variant::Baseline,
        Variant::InsertDelete,
        Variant::Transient,
        Variant::Kept,
    ];

    type Database = TempDir;

    fn create_database() -> Result<Self::Database> {
        // Not the system's directory for temporary files, which may be in memory.
        let directory = env!("CARGO_TARGET_TMPDIR");
        fs::create_dir_all(directory)?;
        TempDir::with_prefix_in("bench-", directory).context("no directory for SQLite's file")
    }

    fn url(database: &Self::Database) -> Result<String> {
        let file = database.path().join("bench.sqlite3");
        let file = file.to_str().context("the path is not UTF-8")?;
        Ok(file.to_owned())
    }

    fn connect_to(database: &Self::Database) -> Result<Self> {
        let mut conn = Self::establish(&Self::url(database)?)?;
        diesel_locks::operation::sqlite::prepare(&mut conn)?;
        conn.batch_execute("PRAGMA busy_timeout = 600000")?;
        Ok(conn)
    }

    fn version(&mut self) -> Result<String> {
        let number: String = select(sqlite_version()).get_result(self)?;
        Ok(format!("SQLite {number}"))
    }

    fn with_advisory_lock(
        &mut self,
        _id: &str,
        _work: impl FnOnce(&mut Self) -> QueryResult<()>,
    ) -> QueryResult<()> {
        unreachable!("not among the variants")
    }
}
