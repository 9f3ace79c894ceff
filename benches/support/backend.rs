//! What differs per engine.

use anyhow::Result;
use diesel::QueryResult;
use diesel_locks::prelude::*;

use super::tables::Statements;
use super::variant::Variant;

pub(crate) trait Backend: ObjectLockExt + Statements {
    const NAME: &'static str;
    /// Opens a transaction that keeps to what was committed by now.
    #[allow(dead_code, reason = "not all benchmarks need it")]
    const OLD_SNAPSHOT: &'static str;
    /// What is compared on this engine.
    const VARIANTS: &'static [Variant];

    /// A database of the benchmark's own, dropped with the value.
    type Database;

    fn create_database() -> Result<Self::Database>;

    /// For a pool.
    fn url(database: &Self::Database) -> Result<String>;

    fn connect_to(database: &Self::Database) -> Result<Self>;

    /// Name and version of the server, or of the library.
    fn version(&mut self) -> Result<String>;

    /// Runs `work` in a transaction under the engine's advisory lock.
    fn with_advisory_lock(
        &mut self,
        id: &str,
        work: impl FnOnce(&mut Self) -> QueryResult<()>,
    ) -> QueryResult<()>;
}
