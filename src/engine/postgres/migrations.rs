//! The `Dialect` of PostgreSQL, and its migrations, by one session at a time. Raw SQL here, because Diesel has no tables of the
//! catalog.

use std::sync::LazyLock;
use std::time::Duration;

use diesel::dsl::select;
use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use crate::Error;
use crate::engine::dialect::Dialect;
use crate::engine::migration_runner::{self, Runner, SqlMigration};
use crate::engine::postgres::{begin, sql};
use crate::engine::tables::parts;
use crate::error::classify::RequiredPrivilege;
use crate::link::raw_sql::statement;
use crate::link::{self, Link, depth};
use crate::rt::backoff::jittered;
use crate::rt::{self, caught};

const TO_CREATE: RequiredPrivilege = migration_runner::to_create_in("the schema");

/// The columns that PostgreSQL alone has, or MySQL too, and the functions.
const OTHER_PARTS: &[&str] = &[
    "diesel_locks_objects.advisory_key integer",
    "diesel_locks_wanted.id character varying(1020)",
    "diesel_locks_wanted.until_us bigint",
    "diesel_locks_acquire_one(object_id text, keep boolean, shared boolean) text",
    "diesel_locks_admits(shared text[]) boolean",
    "diesel_locks_want(object_ids text[], shared text[], us bigint) void",
    "diesel_locks_acquire(object_ids text[], keep boolean, shared text[], holds_nothing boolean) text",
    "diesel_locks_try_acquire(object_ids text[], keep boolean, shared text[], holds_nothing boolean) text",
    "diesel_locks_permits(semaphore text) integer",
    "diesel_locks_timeline_us() bigint",
    "diesel_locks_look_at_slots(semaphore text, permits integer, OUT slots integer, OUT any_free boolean) record",
    "diesel_locks_unlocked(semaphore text) integer[]",
    "diesel_locks_acquire_slot(semaphore text, permits integer, first integer, among integer[], \
     in_transaction boolean, new_token bytea, new_holder text, lease_us bigint, at_least_us bigint) bigint",
    "diesel_locks_acquire_slot_in_transaction(semaphore text, permits integer, first integer, among integer[], \
     new_token bytea, new_holder text, lease_us bigint, at_least_us bigint) bigint",
];

impl Dialect for Pg {
    const NOW: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const GREATEST: &'static str = "greatest";
    const STALE_INDEX_ENTRIES: bool = true;

    const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");

    fn parts() -> &'static [String] {
        static PARTS: LazyLock<Vec<String>> = LazyLock::new(|| {
            let name = "character varying(1020)";
            parts([name, "boolean", "integer", "bigint", "bytea"], OTHER_PARTS)
        });
        &PARTS
    }

    /// Through a pooler in transaction mode the next transaction may be one of another session.
    async fn begin_migration(conn: &mut impl Link<Db = Self>) -> Result<(), Error> {
        begin(conn, &sql::BEGIN).await?;
        match conn.get_result(HoldsLock {}).await {
            Ok(true) => Ok(()),
            holds => {
                let error = holds.map_or_else(Error::from, |_: bool| Error::TransactionPooler);
                link::end(conn, Err(error)).await
            }
        }
    }

    /// `CREATE INDEX CONCURRENTLY` leaves an index that is not valid, with which `IF NOT EXISTS` is content.
    async fn clear_interrupted(conn: &mut impl Link<Db = Self>, sql: &str) -> Result<(), Error> {
        let words = sql.split(|c: char| !(c.is_alphanumeric() || "_$".contains(c)));
        let words = words.flat_map(|word| [word.to_owned(), word.to_lowercase()]);
        let words: Vec<String> = words.collect();
        let indexes: Vec<String> = conn.load(InvalidIndexes { words }).await?;
        for index in indexes {
            let drop = format!("DROP INDEX CONCURRENTLY IF EXISTS {index}");
            conn.batch(&drop).await?;
        }
        Ok(())
    }
}

statement! {
    Pg;
    /// Lists the columns of the tables, and the functions, that the session finds by its `search_path`.
    Parts {} -> Text,
    |self| {
        "SELECT t.relname || '.' || c.attname || ' ' || format_type(c.atttypid, c.atttypmod) \
         FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_attribute AS c \
         ON c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped \
         WHERE t.relname LIKE 'diesel\\_locks\\_%' AND t.relkind = 'r' AND pg_table_is_visible(t.oid) \
         UNION ALL SELECT f.proname || '(' || pg_get_function_identity_arguments(f.oid) || ') ' \
         || pg_get_function_result(f.oid) FROM pg_catalog.pg_proc AS f \
         WHERE f.proname LIKE 'diesel\\_locks\\_%' AND pg_function_is_visible(f.oid)"
    }

    /// Locks and returns `true` if no other session has the lock. Returns NULL, and does not lock, in another session than this, or
    /// if it has the lock already, by another client of a pooler.
    TryLock { session: i32 } -> Nullable<Bool>,
    |self| {
        "SELECT CASE WHEN pg_backend_pid() = ", Integer = &self.session; " AND NOT "; {HOLDS_LOCK}, BigInt = &LOCK_KEY;
        ") THEN pg_try_advisory_lock(", BigInt = &LOCK_KEY; ") END"
    }

    HoldsLock {} -> Bool,
    |self| { "SELECT "; {HOLDS_LOCK}, BigInt = &LOCK_KEY; ")" }

    /// The indexes of these names that can't be used, as DROP INDEX names them.
    InvalidIndexes { words: Vec<String> } -> Text,
    |self| {
        "SELECT i.indexrelid::regclass::text FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c \
         ON c.oid = i.indexrelid WHERE NOT i.indisvalid AND c.relkind = 'i' AND pg_table_is_visible(c.oid) \
         AND c.relname = ANY (", Array<Text> = &self.words; ")"
    }

    /// Puts the schema in which the session finds tables of this crate first in its `search_path`, until the transaction ends.
    /// If it finds none, the first schema stays where it is. Returns whether the user may read Diesel's table there (NULL if
    /// there is none), and may create tables (NULL if there is no schema). Has names of types not quoted, as in the expected parts.
    EnterSchema {} -> (Nullable<Bool>, Nullable<Bool>),
    |self| {
        "WITH place AS MATERIALIZED (SELECT COALESCE((SELECT s.nspname FROM pg_catalog.pg_class AS t \
         JOIN pg_catalog.pg_namespace AS s ON s.oid = t.relnamespace \
         WHERE t.relname LIKE 'diesel\\_locks\\_%' AND t.relkind = 'r' AND pg_table_is_visible(t.oid) \
         ORDER BY t.relname LIMIT 1), current_schema()) AS name), \
         entered AS MATERIALIZED (SELECT name, set_config('search_path', \
         quote_ident(name) || ', ' || current_setting('search_path'), true), \
         set_config('quote_all_identifiers', 'off', true) FROM place WHERE name IS NOT NULL) \
         SELECT has_table_privilege(to_regclass(quote_ident(name) || '.__diesel_schema_migrations'), 'SELECT'), \
         has_schema_privilege(name, 'CREATE') FROM place LEFT JOIN entered USING (name)"
    }
}

pub(crate) async fn migrate(conn: &mut impl Link<Db = Pg>) -> Result<Vec<String>, Error> {
    let version: String = conn.get_result(select(sql::version())).await?;
    if let Some(cluster) = cluster_of(&version) {
        let hint = "use PostgreSQL";
        return Err(Error::SeveralWriters { cluster, hint });
    }
    // In a transaction, so that the advisory lock and the search_path end with it, also behind a transaction pooler.
    // At a higher isolation level it would not see the migrations of the session that it has waited for.
    begin(conn, &sql::BEGIN).await?;
    let ran = run_pending(conn).await;
    link::end(conn, ran).await
}

/// Not that of `migrate`, which waits.
const LOCK_KEY: i64 = i64::from_be_bytes(*b"diesel-m");

/// Followed by the key.
const HOLDS_LOCK: &str = "EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted \
    AND pid = pg_backend_pid() AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint = ";

const LONGEST_PAUSE: Duration = Duration::from_millis(80);

/// Asks for the lock again and again: a session that waits for it has a snapshot, for whose end `CREATE INDEX CONCURRENTLY`
/// waits, and so does the lock.
pub(crate) async fn run_all(
    conn: &mut impl Link<Db = Pg>,
    application: &[SqlMigration],
) -> Result<Vec<String>, Error> {
    let session: i32 = conn.get_result(select(sql::pg_backend_pid())).await?;
    loop {
        match conn.get_result(TryLock { session }).await? {
            Some(true) => break,
            Some(false) => rt::pause(jittered(LONGEST_PAUSE)).await,
            None => return Err(Error::TransactionPooler),
        }
    }
    let ran = caught(async {
        let mut ran = migrate(conn).await?;
        ran.extend(Runner(conn).run_all(application).await?);
        Ok::<_, Error>(ran)
    });
    let ran = ran.await;
    let ran = depth::break_if_panicked(conn.status(), ran);
    if ran.is_err() {
        // A migration may have begun one itself, which is aborted.
        let _ended = conn.batch("ROLLBACK").await;
    }
    let unlocked = conn.get_result(select(sql::pg_advisory_unlock(LOCK_KEY)));
    let unlocked = unlocked.await;
    if !matches!(unlocked, Ok(true)) {
        depth::mark_broken(conn.status());
    }
    let ran = ran?;
    if unlocked? {
        Ok(ran)
    } else {
        Err(Error::TransactionPooler)
    }
}

async fn run_pending(conn: &mut impl Link<Db = Pg>) -> Result<Vec<String>, Error> {
    if pending(conn).await?.0.is_empty() {
        return Ok(Vec::new());
    }
    let lock = select(sql::pg_advisory_xact_lock(sql::MIGRATIONS_KEY));
    conn.execute(lock).await?;
    let (pending, may_create) = pending(conn).await?;
    let ran = Runner(conn).run_own(pending).await;
    match may_create {
        Some(false) => ran.map_err(|error| migration_runner::not_privileged(TO_CREATE, error)),
        Some(true) | None => ran,
    }
}

/// The pending migrations; whether the user may create tables, `None` if the `search_path` has no schema that exists.
async fn pending(
    conn: &mut impl Link<Db = Pg>,
) -> Result<(Vec<SqlMigration>, Option<bool>), Error> {
    let (may_read, may_create): (Option<bool>, _) = conn.get_result(EnterSchema {}).await?;
    let parts: Vec<String> = conn.load(Parts {}).await?;
    let pending = Runner(conn).pending(&parts, may_read == Some(true)).await?;
    Ok((pending, may_create))
}

/// The name of a database with PostgreSQL's protocol and several writers. It has no advisory locks, or in some versions only.
fn cluster_of(version: &str) -> Option<&'static str> {
    if version.starts_with("CockroachDB") {
        Some("CockroachDB")
    } else if version.contains("-YB-") {
        Some("YugabyteDB")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::cluster_of;

    #[test]
    fn clusters_are_known_by_their_version() {
        let cockroach =
            "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2)";
        assert_eq!(cluster_of(cockroach), Some("CockroachDB"));
        let yugabyte =
            "PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang, 64-bit";
        assert_eq!(cluster_of(yugabyte), Some("YugabyteDB"));
        let debian = "PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, 64-bit";
        assert_eq!(cluster_of(debian), None);
    }
}
