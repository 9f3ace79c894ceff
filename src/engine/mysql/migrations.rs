//! The `Dialect` of MySQL and MariaDB, and their migrations, by one session at a time on each node.

use std::sync::LazyLock;
use std::time::Duration;

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use crate::Error;
use crate::engine::dialect::Dialect;
use crate::engine::migration_runner::{self, Runner, SqlMigration};
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::MysqlError;
use crate::engine::mysql::galera::Cluster;
use crate::engine::mysql::sql::{COMMITTED_AT_ONCE, EVERY_ROW};
use crate::engine::tables::parts;
use crate::error::classify::{self, ErrorClass};
use crate::link::raw_sql::statement;
use crate::link::{Link, depth};
use crate::rt::{self, backoff, caught};

/// The most steps that migrating takes on Galera, failed ones included, and the longest pause after a failed one.
const MAX_ATTEMPTS: i32 = 20;
const PAUSE: Duration = Duration::from_millis(200);

/// The smallest pages on which a key may have two columns of 1020 bytes.
const SMALLEST_PAGES: i64 = 16_384;

impl Dialect for Mysql {
    // Not UNIX_TIMESTAMP, which depends on the session's time zone and jumps with daylight saving time.
    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const GREATEST: &'static str = "GREATEST";
    const COMMITTED_AT_ONCE: Option<&'static str> = Some(COMMITTED_AT_ONCE);
    const COUNTS_CHANGED_ROWS: bool = true;
    const COMMITS_DDL: bool = true;
    const BY_PRIMARY_KEY: &'static str = " FORCE INDEX (PRIMARY)";

    const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/mysql");

    /// Without the columns for indexes that MariaDB alone has.
    fn parts() -> &'static [String] {
        static PARTS: LazyLock<Vec<String>> = LazyLock::new(|| {
            parts(
                [
                    "varbinary(1020)",
                    "tinyint",
                    "int",
                    "bigint",
                    "varbinary(16)",
                ],
                &[
                    "diesel_locks_wanted.id varbinary(1020)",
                    "diesel_locks_wanted.until_us bigint",
                ],
            )
        });
        &PARTS
    }

    /// Not Diesel's BEGIN, which MariaDB takes for that of a block if `sql_mode` is ORACLE.
    async fn begin_migration(conn: &mut impl Link<Db = Self>) -> Result<(), Error> {
        MysqlEngine(conn).begin_by("START TRANSACTION").await
    }

    async fn class_of_failure(
        conn: &mut impl Link<Db = Self>,
        error: &diesel::result::Error,
    ) -> ErrorClass {
        match MysqlEngine(conn).error_number().await {
            // A privilege on a table; on a database.
            Some(1142 | 1044) => {
                ErrorClass::InsufficientPrivilege(migration_runner::to_create_in("the database"))
            }
            Some(number) => classify::mysql::class_of_errno(number, &error.to_string()),
            None => classify::classify(error),
        }
    }
}

statement! {
    Mysql;
    /// Lists the columns of the tables, and of Diesel's table, on which the user has a privilege. With any `sql_mode`: no literal is
    /// empty, and none has a backslash.
    Parts {} -> Text,
    |self| {
        "SELECT CONVERT(CONCAT(table_name, '.', column_name, ' ', IF(character_maximum_length IS NULL, data_type, \
         CONCAT(data_type, '(', character_maximum_length, ')'))) USING utf8mb4) \
         FROM information_schema.columns WHERE table_schema = DATABASE() \
         AND (LEFT(table_name, 13) = 'diesel_locks_' OR table_name = '__diesel_schema_migrations')"; {EVERY_ROW}
    }

    PageSize {} -> BigInt,
    |self| { "SELECT @@GLOBAL.innodb_page_size" }

    AcquireMigrationLock { seconds: i32 } -> Nullable<BigInt>,
    |self| {
        "SELECT GET_LOCK(CONCAT('diesel:', SHA2(COALESCE(DATABASE(), ''), 224)), ", Integer = &self.seconds; ")"
    }
}

const RELEASE_MIGRATION_LOCK: &str =
    "DO RELEASE_LOCK(CONCAT('diesel:', SHA2(COALESCE(DATABASE(), ''), 224)))";

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    pub(crate) async fn run_migrations(
        &mut self,
        application: Option<&[SqlMigration]>,
    ) -> Result<Vec<String>, Error> {
        let attempts = self.attempts_to_migrate().await?;
        if application.is_none() && attempts == 0 {
            return Ok(Vec::new());
        }
        // Unlike those of this crate, these need not be able to run on two nodes at the same time.
        if application.is_some()
            && let Some(cluster) = self.find_cluster().await?
        {
            return Err(cluster.refused());
        }
        let ran = caught(async {
            self.lock().await?;
            let ran = self.run_locked(attempts, application).await;
            let released = self.restore_by_text(RELEASE_MIGRATION_LOCK).await;
            let ran = ran?;
            released?;
            Ok(ran)
        });
        let ran = ran.await;
        depth::break_if_panicked(self.0.status(), ran)
    }

    /// How many steps this crate's migrations may take: 0 if none is pending.
    async fn attempts_to_migrate(&mut self) -> Result<i32, Error> {
        // DDL would commit it.
        self.assert_no_transaction().await?;
        // The versions of applied migrations are texts.
        self.check_client_library().await?;
        if self.pending().await?.is_empty() {
            return Ok(0);
        }
        let attempts = match self.find_cluster().await? {
            None => 1,
            // A named lock excludes sessions of one node only: another node may migrate at the same time.
            Some(Cluster::Galera) => MAX_ATTEMPTS,
            // CREATE TABLE on two primaries at once ends the whole group of Group Replication.
            Some(cluster) => return Err(cluster.refused()),
        };
        let page_size: i64 = self.get_result(PageSize {}).await?;
        if page_size < SMALLEST_PAGES {
            return Err(Error::UnsuitableDatabase {
                found: format!("innodb_page_size = {page_size}"),
                needed: "16384 or more, which is set when the server's data directory is created",
            });
        }
        Ok(attempts)
    }

    async fn lock(&mut self) -> Result<(), Error> {
        let seconds = i32::MAX;
        loop {
            let acquired: Result<Option<i64>, MysqlError> =
                self.get_result(AcquireMigrationLock { seconds }).await;
            match acquired {
                Ok(Some(1)) => return Ok(()),
                Ok(_) => {}
                Err(failure) => {
                    if failure.is_interrupted() {
                        // It may have acquired the lock.
                        self.restore_by_text(RELEASE_MIGRATION_LOCK).await?;
                    }
                    // By `max_execution_time` of the session.
                    if failure.class != ErrorClass::StatementTimeout {
                        return Err(failure.into());
                    }
                }
            }
        }
    }

    async fn run_locked(
        &mut self,
        mut attempts_left: i32,
        application: Option<&[SqlMigration]>,
    ) -> Result<Vec<String>, Error> {
        let mut ran = Vec::new();
        loop {
            attempts_left -= 1;
            match self.run_next().await {
                Ok(Some(version)) => ran.push(version),
                Ok(None) => break,
                Err(error) => {
                    self.0.reset_statement_cache();
                    let is_final = matches!(
                        error,
                        Error::InsufficientPrivilege { .. } | Error::ReadOnly { .. }
                    );
                    if is_final || attempts_left <= 0 {
                        return Err(error);
                    }
                    // Another node has run the migration or is running it. Each migration can run again.
                    rt::pause(backoff::jittered(PAUSE)).await;
                }
            }
        }
        if let Some(application) = application {
            ran.extend(Runner(self.0).run_all(application).await?);
        }
        Ok(ran)
    }

    async fn run_next(&mut self) -> Result<Option<String>, Error> {
        let pending = self.pending().await?;
        let Some(next) = pending.first() else {
            return Ok(None);
        };
        Runner(self.0).create_records().await?;
        // Not in a transaction, which DDL would end. The record is committed without autocommit too.
        let version = next.run(self.0).await?;
        self.0.batch("COMMIT").await?;
        Ok(Some(version))
    }

    async fn pending(&mut self) -> Result<Vec<SqlMigration>, Error> {
        let parts: Vec<String> = self.load(Parts {}).await?;
        let has_records = migration_runner::lists_records(&parts);
        Runner(self.0).pending(&parts, has_records).await
    }
}
