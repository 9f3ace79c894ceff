//! MySQL and MariaDB.

use anyhow::Result;
use diesel::dsl::select;
use diesel::prelude::*;
use diesel::sql_types::{Integer, Text};

use super::backend::Backend;
use super::server::ServerDatabase;
use super::variant::Variant;

pub(crate) const URL: &str = "MYSQL_DATABASE_URL";

/// Seconds; longer than any wait of a benchmark.
const LOCK_TIMEOUT: i32 = 600;

#[diesel::declare_sql_function]
extern "SQL" {
    fn version() -> Text;
    fn get_lock(name: Text, seconds: Integer) -> Nullable<BigInt>;
    fn release_lock(name: Text) -> Nullable<BigInt>;
}

impl Backend for MysqlConnection {
    const NAME: &'static str = "mysql";
    const OLD_SNAPSHOT: &'static str = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
    const VARIANTS: &'static [Variant] = Variant::ALL;

    type Database = ServerDatabase<Self>;

    fn create_database() -> Result<Self::Database> {
        ServerDatabase::create(URL, "")
    }

    fn url(database: &Self::Database) -> Result<String> {
        Ok(database.url().to_owned())
    }

    fn connect_to(database: &Self::Database) -> Result<Self> {
        database.connect()
    }

    fn version(&mut self) -> Result<String> {
        let text: String = select(version()).get_result(self)?;
        let number = text.split('-').next().unwrap_or_default();
        let server = if text.contains("MariaDB") {
            "MariaDB"
        } else {
            "MySQL"
        };
        Ok(format!("{server} {number}"))
    }

    /// The lock belongs to the session and outlives the transaction, so it is released explicitly.
    fn with_advisory_lock(
        &mut self,
        id: &str,
        work: impl FnOnce(&mut Self) -> QueryResult<()>,
    ) -> QueryResult<()> {
        let taken: Option<i64> = select(get_lock(id, LOCK_TIMEOUT)).get_result(self)?;
        assert_eq!(taken, Some(1), "GET_LOCK");
        let result = self.transaction(work);
        let released: Option<i64> = select(release_lock(id)).get_result(self)?;
        assert_eq!(released, Some(1), "RELEASE_LOCK");
        result
    }
}
