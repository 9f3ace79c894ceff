//! The migrations: their files, and how they are run and recorded in Diesel's own table. The Diesel CLI and
//! `diesel_migrations` see what this crate has run, and this crate sees what they have run. The application's own, as SQL.

use std::any::Any;
use std::path::PathBuf;

use diesel::QueryResult;
use diesel::backend::Backend;
use diesel::connection::{BoxableConnection, SimpleConnection};
use diesel::deserialize::FromSqlRow;
use diesel::dsl::{AsExprOf, sql};
use diesel::expression::{QueryMetadata, SqlLiteral, UncheckedBind};
use diesel::migration::{CREATE_MIGRATIONS_TABLE, MigrationSource};
use diesel::query_builder::QueryFragment;
use diesel::sql_types::Text;

use crate::Error;
use crate::engine::dialect::Dialect;
use crate::error::classify::{ErrorClass, RequiredPrivilege};
use crate::link::{self, Link};

#[derive(Debug, thiserror::Error)]
#[error("Failed to run {migration} with: {error}")]
struct Failed {
    migration: String,
    error: diesel::result::Error,
}

const RECORDS: &str = "__diesel_schema_migrations";

/// What the user needs in the schema or database of this name to create the tables.
pub(crate) const fn to_create_in(object: &'static str) -> RequiredPrivilege {
    RequiredPrivilege {
        object,
        privileges: "CREATE, and SELECT and INSERT on __diesel_schema_migrations,",
    }
}

async fn run_part<DB: Dialect>(
    conn: &mut impl Link<Db = DB>,
    migration: &str,
    sql: &str,
) -> Result<(), Error> {
    let Err(error) = conn.batch(sql).await else {
        return Ok(());
    };
    Err(match DB::class_of_failure(conn, &error).await {
        class @ (ErrorClass::ReadOnly | ErrorClass::InsufficientPrivilege(_)) => {
            Error::from_class(class, error)
        }
        _ => failed(migration, error),
    })
}

fn failed(migration: &str, error: diesel::result::Error) -> Error {
    let migration = migration.to_owned();
    Error::Migration(Box::new(Failed { migration, error }))
}

pub(crate) fn not_privileged(privilege: RequiredPrivilege, error: Error) -> Error {
    let Error::Migration(cause) = error else {
        return error;
    };
    match cause.downcast::<Failed>() {
        Ok(failed) => Error::from_class(ErrorClass::InsufficientPrivilege(privilege), failed.error),
        Err(cause) => Error::Migration(cause),
    }
}

type Versions = SqlLiteral<Text>;

/// Whether Diesel's table is among the tables whose parts the user may read.
pub(crate) fn lists_records(parts: &[String]) -> bool {
    parts.iter().any(|part| part.starts_with(RECORDS))
}

/// Migrations of the application that may have left a part of themselves when their process ended. Not a table of this crate's
/// migrations: `run_migrations` creates it when it is needed.
const BEGUN: &str = "__diesel_locks_begun_migrations";

/// The storage engine is a comment on PostgreSQL and SQLite.
const CREATE_BEGUN: &str = "CREATE TABLE IF NOT EXISTS __diesel_locks_begun_migrations \
     (version VARCHAR(50) PRIMARY KEY NOT NULL) /*! ENGINE = InnoDB */";

const INSERT_RECORD: &str = "INSERT INTO __diesel_schema_migrations (version) VALUES (";
const INSERT_BEGUN: &str = "INSERT INTO __diesel_locks_begun_migrations (version) VALUES (";
const DELETE_BEGUN: &str = "DELETE FROM __diesel_locks_begun_migrations WHERE version IN (";

/// A function for all engines has to name the type of each change of the DSL.
type Change = SqlLiteral<Text, UncheckedBind<Versions, AsExprOf<String, Text>>>;

/// From the start of a change, and the version in it.
fn change(start: &str, version: &str) -> Change {
    sql(start).bind::<Text, _>(version.to_owned()).sql(")")
}

/// A migration of this crate or of the application.
#[derive(Debug)]
pub struct SqlMigration {
    version: String,
    name: String,
    batches: Vec<String>,
    in_transaction: bool,
}

/// In place of the connection: it takes down what a migration would send. So migrations run on each kind of connection, and in
/// none of its own that blocks. A migration in Rust finds no connection that it knows.
struct Recorder(Vec<String>);

impl SimpleConnection for Recorder {
    fn batch_execute(&mut self, sql: &str) -> QueryResult<()> {
        self.0.push(sql.to_owned());
        Ok(())
    }
}

impl<DB: Backend> BoxableConnection<DB> for Recorder {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The migrations of the source, in the order of their versions.
#[expect(clippy::needless_pass_by_value, reason = "as Diesel takes it")]
pub(crate) fn sql_of<DB: Backend>(
    source: impl MigrationSource<DB>,
) -> Result<Vec<SqlMigration>, Error> {
    let migrations = source.migrations().map_err(Error::Migration)?;
    let mut all = Vec::with_capacity(migrations.len());
    for migration in migrations {
        let mut recorder = Recorder(Vec::new());
        migration.run(&mut recorder).map_err(Error::Migration)?;
        all.push(SqlMigration {
            version: migration.name().version().to_string(),
            name: migration.name().to_string(),
            batches: recorder.0,
            in_transaction: migration.metadata().run_in_transaction(),
        });
    }
    all.sort_unstable_by(|a, b| a.version.cmp(&b.version));
    Ok(all)
}

/// The files of the migrations of this crate, and their texts.
pub(crate) fn files<DB: Dialect>() -> Vec<(PathBuf, String)> {
    let migrations = MigrationSource::<DB>::migrations(&DB::MIGRATIONS).expect("embedded");
    let mut files = Vec::new();
    for migration in migrations {
        let folder = PathBuf::from(migration.name().to_string());
        let (mut up, mut down) = (Recorder(Vec::new()), Recorder(Vec::new()));
        let recorded = migration.run(&mut up);
        let recorded = recorded.and_then(|()| migration.revert(&mut down));
        recorded.expect("the recorder accepts every text");
        files.push((folder.join("up.sql"), up.0.concat()));
        files.push((folder.join("down.sql"), down.0.concat()));
    }
    files
}

/// Runs migrations on a connection.
pub(crate) struct Runner<'c, L>(pub(crate) &'c mut L);

impl<DB, L> Runner<'_, L>
where
    DB: Dialect + QueryMetadata<Text>,
    L: Link<Db = DB>,
    Versions: QueryFragment<DB>,
    String: FromSqlRow<Text, DB>,
    Change: QueryFragment<DB>,
{
    /// The versions in the table. With a limit in place of MySQL's `sql_select_limit`.
    async fn versions(&mut self, table: &str) -> QueryResult<Vec<String>> {
        let versions: Versions = sql(&format!("SELECT version FROM {table} LIMIT 1000000"));
        self.0.load(versions).await
    }

    /// The pending migrations of this crate, in the order of their versions. Compares the parts of the tables that exist with those
    /// of this version, and with the versions that are recorded. If those can't be read, because Diesel's table does not exist or
    /// the user may not read it, only the parts count.
    pub(crate) async fn pending(
        &mut self,
        parts: &[String],
        has_records: bool,
    ) -> Result<Vec<SqlMigration>, Error> {
        let missing = DB::parts().iter().find(|part| !parts.contains(part));
        let mut pending = sql_of::<DB>(DB::MIGRATIONS)?;
        if has_records {
            let recorded = self.versions(RECORDS).await;
            let recorded = recorded.map_err(|error| Error::Migration(Box::new(error)))?;
            pending.retain(|migration| !recorded.contains(&migration.version));
            if let Some(missing) = missing
                && pending.is_empty()
            {
                return Err(Error::DifferentTables { missing });
            }
        } else if missing.is_none() {
            pending.clear();
        }
        Ok(pending)
    }

    /// Creates Diesel's table unless it exists.
    pub(crate) async fn create_records(&mut self) -> Result<(), Error> {
        run_part(self.0, RECORDS, CREATE_MIGRATIONS_TABLE).await
    }

    /// Runs these migrations of this crate, each in a transaction, or in a savepoint of the open one.
    pub(crate) async fn run_own(
        &mut self,
        pending: Vec<SqlMigration>,
    ) -> Result<Vec<String>, Error> {
        self.create_records().await?;
        let mut ran = Vec::with_capacity(pending.len());
        for migration in pending {
            let begun = self.0.begin_nested().await;
            begun.map_err(|error| Error::Migration(Box::new(error)))?;
            let version = migration.run(self.0).await;
            ran.push(link::end(self.0, version).await?);
        }
        Ok(ran)
    }

    /// Runs those that are not recorded. No session does the same: by a lock of the session, or else of [`Dialect::lock_migration`].
    pub(crate) async fn run_all(&mut self, all: &[SqlMigration]) -> Result<Vec<String>, Error> {
        let mut known = self.versions(RECORDS).await;
        if known.is_err() {
            // `migrate` may have found its records in another schema.
            self.create_records().await?;
            known = self.versions(RECORDS).await;
        }
        let known = known?;
        let mut ran = Vec::new();
        for migration in all {
            if !known.contains(&migration.version) && self.run(migration).await? {
                ran.push(migration.version.clone());
            }
        }
        Ok(ran)
    }

    /// Returns `false` if it is recorded.
    async fn run(&mut self, migration: &SqlMigration) -> Result<bool, Error> {
        let _lock = if migration.in_transaction {
            None
        } else {
            DB::lock_migration(self.0).await?
        };
        if migration.may_leave_part::<DB>() {
            run_part(self.0, &migration.name, CREATE_BEGUN).await?;
        }
        DB::begin_migration(self.0).await?;
        let begun = self.begin(migration).await;
        let begun = link::end(self.0, begun).await;
        if matches!(begun, Err(Error::Migration(_))) && migration.is_atomic::<DB>() {
            // If this fails, as on a lost connection, where the statement may still run, the next call returns `InterruptedMigration`.
            if let Err(error) = self.forget(migration).await {
                tracing::warn!(%error, migration = migration.name, "the failed migration is marked as interrupted");
            }
        }
        let Some(before) = begun? else {
            return Ok(false);
        };
        if migration.in_transaction {
            return Ok(true);
        }
        if before {
            DB::clear_interrupted(self.0, &migration.batches.join(" ")).await?;
        }
        if let Err(error) = self.send(migration).await {
            return Err(if before {
                migration.interrupted(Some(error))
            } else {
                failed(&migration.name, error)
            });
        }
        DB::begin_migration(self.0).await?;
        let recorded = self.record(migration).await;
        link::end(self.0, recorded).await?;
        Ok(true)
    }

    /// In a transaction, the whole migration unless it runs outside of one. Returns whether it has begun before, or `None` if it is
    /// recorded.
    async fn begin(&mut self, migration: &SqlMigration) -> Result<Option<bool>, Error> {
        let version = &migration.version;
        let recorded = self.versions(RECORDS).await?;
        if recorded.contains(version) {
            return Ok(None);
        }
        let mut before = false;
        if migration.may_leave_part::<DB>() {
            let begun = self.versions(BEGUN).await?;
            // Left by processes that ended after they had recorded their migration. No statement compares the two tables: their
            // collations may differ.
            for ended in begun.iter().filter(|begun| recorded.contains(begun)) {
                self.0.execute(change(DELETE_BEGUN, ended)).await?;
            }
            before = begun.contains(version);
            if before && migration.in_transaction {
                return Err(migration.interrupted(None));
            }
            if !before {
                // Committed by the first statement that commits the transaction, and else rolled back with it.
                self.0.execute(change(INSERT_BEGUN, version)).await?;
            }
        }
        if migration.in_transaction {
            let ran = self.send(migration).await;
            ran.map_err(|error| failed(&migration.name, error))?;
            self.record(migration).await?;
        }
        Ok(Some(before))
    }

    /// Removes the mark of a migration that has left nothing.
    async fn forget(&mut self, migration: &SqlMigration) -> Result<(), Error> {
        DB::begin_migration(self.0).await?;
        let delete = change(DELETE_BEGUN, &migration.version);
        let deleted = self.0.execute(delete).await;
        link::end(self.0, deleted).await?;
        Ok(())
    }

    async fn send(&mut self, migration: &SqlMigration) -> QueryResult<()> {
        for sql in &migration.batches {
            self.0.batch(sql).await?;
        }
        Ok(())
    }

    async fn record(&mut self, migration: &SqlMigration) -> Result<(), Error> {
        let version = &migration.version;
        self.0.execute(change(INSERT_RECORD, version)).await?;
        if migration.may_leave_part::<DB>() {
            self.0.execute(change(DELETE_BEGUN, version)).await?;
        }
        Ok(())
    }
}

impl SqlMigration {
    /// Runs one of this crate and records it. Returns its version.
    pub(crate) async fn run<DB: Dialect>(
        &self,
        conn: &mut impl Link<Db = DB>,
    ) -> Result<String, Error> {
        for sql in &self.batches {
            run_part(conn, &self.name, sql).await?;
        }
        // Of letters and digits.
        let record = format!("{INSERT_RECORD}'{}')", self.version);
        run_part(conn, &self.name, &record).await?;
        Ok(self.version.clone())
    }

    fn may_leave_part<DB: Dialect>(&self) -> bool {
        DB::COMMITS_DDL || !self.in_transaction
    }

    /// Whether it is a single ALTER or CREATE, which has changed nothing if it fails. A call of a procedure may have, and on MariaDB
    /// `DROP TABLE` of several tables and `CREATE OR REPLACE`. A semicolon in a text or comment counts as the end of a statement.
    fn is_atomic<DB: Dialect>(&self) -> bool {
        let [sql] = &*self.batches else {
            return false;
        };
        let lines = sql.lines().map(str::trim_start);
        let lines = lines.skip_while(|line| line.is_empty() || line.starts_with("--"));
        let words = lines.flat_map(str::split_whitespace).take(2);
        let words: Vec<_> = words.map(str::to_ascii_uppercase).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let is_atomic = matches!(*words, ["ALTER" | "CREATE", ..]) && words.last() != Some(&"OR");
        let is_one = !sql.trim_end().trim_end_matches(';').contains(';');
        DB::COMMITS_DDL && is_one && is_atomic
    }

    fn interrupted(&self, source: Option<diesel::result::Error>) -> Error {
        let migration = self.name.clone();
        Error::InterruptedMigration { migration, source }
    }
}

#[cfg(test)]
mod tests;
