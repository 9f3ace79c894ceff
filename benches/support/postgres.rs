//! PostgreSQL. Its default level, READ COMMITTED, is that of `with_object_lock` too.

use anyhow::Result;
use diesel::dsl::select;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

use super::backend::Backend;
use super::server::ServerDatabase;
use super::variant::Variant;

pub(crate) const URL: &str = "PG_DATABASE_URL";

#[diesel::declare_sql_function]
extern "SQL" {
    fn version() -> Text;
    fn hashtextextended(text: Text, seed: BigInt) -> BigInt;
    fn pg_advisory_xact_lock(key: BigInt);
}

impl Backend for PgConnection {
    const NAME: &'static str = "postgres";
    const OLD_SNAPSHOT: &'static str =
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT price FROM bonds WHERE id = 1";
    const VARIANTS: &'static [Variant] = Variant::ALL;

    type Database = ServerDatabase<Self>;

    fn create_database() -> Result<Self::Database> {
        ServerDatabase::create(URL, "WITH (FORCE)")
    }

    fn url(database: &Self::Database) -> Result<String> {
        Ok(database.url().to_owned())
    }

    fn connect_to(database: &Self::Database) -> Result<Self> {
        database.connect()
    }

    fn version(&mut self) -> Result<String> {
        let text: String = select(version()).get_result(self)?;
        let words: Vec<_> = text.split_whitespace().take(2).collect();
        Ok(words.join(" "))
    }

    fn with_advisory_lock(
        &mut self,
        id: &str,
        work: impl FnOnce(&mut Self) -> QueryResult<()>,
    ) -> QueryResult<()> {
        self.transaction(|conn| {
            select(pg_advisory_xact_lock(hashtextextended(id, 0))).execute(conn)?;
            work(conn)
        })
    }
}
