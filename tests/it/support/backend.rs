//! What a test body needs of an engine.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::migration::MigrationConnection;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool, R2D2Connection};
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_locks::prelude::*;

use super::tables::{Slots, Tables};
use super::threads::{begin, until};

/// How many migrations the crate has.
pub(crate) const MIGRATIONS: usize = 3;

diesel::table! {
    /// See [`Backend::new`].
    counters (id) {
        id -> Integer,
        n -> BigInt,
    }
}

/// A connection on which the bodies run.
pub(crate) trait TestConnection:
    ObjectLockExt + SemaphoreExt + SequenceExt + TransactionExt + R2D2Connection + Send + 'static
{
}

impl<C> TestConnection for C where
    C: ObjectLockExt
        + SemaphoreExt
        + SequenceExt
        + TransactionExt
        + R2D2Connection
        + Send
        + 'static
{
}

/// A connection to one engine: that of Diesel, or one that takes its place.
pub(crate) trait EngineConnection:
    TestConnection + LoadConnection + MigrationConnection
{
    /// Whether it notices each deadlock that the application ignores.
    const NOTICES_DEADLOCKS: bool;
}

impl EngineConnection for diesel::PgConnection {
    const NOTICES_DEADLOCKS: bool = true;
}

impl EngineConnection for diesel::MysqlConnection {
    const NOTICES_DEADLOCKS: bool = true;
}

impl EngineConnection for diesel::SqliteConnection {
    const NOTICES_DEADLOCKS: bool = true;
}

/// Not one that comes in place of the first row.
impl<C, B> EngineConnection for AsyncConnectionWrapper<C, B>
where
    Self: TestConnection + LoadConnection + MigrationConnection,
{
    const NOTICES_DEADLOCKS: bool = false;
}

/// A database of the test's own, dropped with the value.
pub(crate) trait Backend: Sized + Send + Sync + 'static {
    type Conn: TestConnection;

    /// As the subprocess knows it.
    const NAME: &'static str;
    /// The name of the backend that knows the engine.
    const ENGINE: &'static str = Self::NAME;
    /// One writer for the whole database: different ids wait for each other, and nothing can deadlock.
    const ONE_WRITER: bool;
    /// Whether rolling back to a savepoint releases a transient lock acquired after it. `None`: on InnoDB that depends
    /// on whether an earlier row of the id has been purged.
    const SAVEPOINT_FREES_TRANSIENT: Option<bool>;
    /// Whether that releases a kept lock, in a transaction that has written before.
    const SAVEPOINT_FREES_KEPT: Option<bool>;

    /// At the end of a SELECT: locks its rows for all but other readers of this kind.
    const SHARED: &'static str;
    /// The clock, in microseconds since 1970 UTC.
    const NOW_US: &'static str;

    /// What an application reads the id with that its session inserted last.
    const LAST_INSERTED_ID: &'static str;
    /// Whether the first kept lock of an id changes it.
    const NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID: bool = false;

    /// The statement that makes `own_ids(id, n)`, whose ids are drawn by the database from the first one on.
    fn own_ids(first: i64) -> String;

    /// An empty database.
    fn empty() -> Self;

    fn url(&self) -> String;

    fn connect_to(url: &str) -> Self::Conn;

    /// What an application has to do to each connection; [`connect_to`](Self::connect_to) has done it.
    fn prepare(conn: &mut Self::Conn) {
        let _ = conn;
    }

    /// Whether a connection can be established.
    fn is_reachable(url: &str) -> bool {
        <Self::Conn as diesel::Connection>::establish(url).is_ok()
    }

    /// Runs statements.
    fn sql(conn: &mut Self::Conn, sql: &str);

    /// The same when it may fail.
    fn try_sql(conn: &mut Self::Conn, sql: &str) -> Result<(), diesel_locks::Error> {
        Ok(diesel::connection::SimpleConnection::batch_execute(
            conn, sql,
        )?)
    }

    /// One number.
    fn try_number(conn: &mut Self::Conn, sql: &str) -> Result<i64, diesel_locks::Error>;

    /// The same where it can't fail.
    fn number(conn: &mut Self::Conn, sql: &str) -> i64 {
        Self::try_number(conn, sql).expect(sql)
    }

    /// Reads a counter with the lock of those who write; on SQLite, where the transaction has that,
    /// plainly.
    fn counter_for_update(conn: &mut Self::Conn, id: i32) -> Result<i64, diesel_locks::Error>;

    /// Whether, at REPEATABLE READ, the update of a row that has changed since the snapshot fails.
    fn refuses_old_snapshots(conn: &mut Self::Conn) -> bool {
        let _ = conn;
        true
    }

    /// Ends all other sessions of this database; where there is no server, nothing.
    fn disconnect_sessions(&self) {}

    /// Statements by which a waiter for a slot looks at the holders with a connection of a pool, its check included.
    const STATEMENTS_PER_LOOK: u32 = 2;

    /// A connection for [`disturb`](Self::disturb), before there is any other.
    fn disturber(&self) -> Self::Conn {
        self.connect()
    }

    /// Has the next statement of each other session of this database fail with an error that passes, at the latest by
    /// [`end_disturbance`](Self::end_disturbance).
    fn disturb(&self, conn: &mut Self::Conn) {
        let _ = conn;
        self.disconnect_sessions();
    }

    fn end_disturbance(conn: &mut Self::Conn) {
        let _ = conn;
    }

    /// Sessions of this database that wait for a lock; `None` where the engine does not show it.
    fn waiting(&self) -> Option<i64>;

    /// What the server shows of object locks.
    fn lock_view(conn: &mut Self::Conn) -> LockView;

    /// Locks the whole table of objects, and unlocks it.
    fn lock_objects_table(conn: &mut Self::Conn);

    /// Whether an acquirer in a transaction, after the number of permits was lowered, locks free slots until
    /// its end.
    const COUNTING_LOCKS_FREE_SLOTS: bool = false;

    /// Whether `pin_slot` keeps others from a slot that it said was lost.
    const LOST_SLOTS_STAY_LOCKED: bool = false;

    /// The slots that no transaction has locked, or none in a way that others can't `share`; `None` where it
    /// is not rows that are locked.
    fn unlocked_slots(conn: &mut Self::Conn, share: bool) -> Option<BTreeSet<(String, i32)>>;

    /// The rows of `diesel_locks_slots`.
    fn slots(conn: &mut Self::Conn) -> Slots;

    /// The rows of all tables of this crate.
    fn tables(conn: &mut Self::Conn) -> Tables;

    /// Begins a transaction in which `lock_object` works, runs `work`, commits.
    fn in_transaction<T>(
        conn: &mut Self::Conn,
        work: impl FnOnce(&mut Self::Conn) -> Result<T, diesel_locks::Error>,
    ) -> Result<T, diesel_locks::Error>;

    /// Whether each method in a transaction of this crate that the database has given up fails. If not, COMMIT fails.
    const METHODS_NOTICE_ABORTS: bool = true;

    /// The same after COMMIT or ROLLBACK as text.
    const METHODS_NOTICE_ENDS: bool = true;

    /// Statements by which an application begins a transaction that Diesel does not count.
    const UNTRACKED: &'static [&'static str] = &["BEGIN"];

    /// Whether such a transaction can continue after a method has refused to run in it.
    const UNTRACKED_SURVIVES: bool = true;

    /// Reverts the statements after the transaction.
    fn end_untracked(conn: &mut Self::Conn) {
        let _ = conn;
    }

    /// Whether leases are refused in such a transaction.
    fn sees_untracked_leases(conn: &mut Self::Conn) -> bool {
        let _ = conn;
        true
    }

    /// Has the database give up the transaction that is open, and ignores the error. `other` is another
    /// connection; counters from 2 on are free.
    fn abort_transaction(conn: &mut Self::Conn, other: Self::Conn);

    /// A connection whose transactions can't write.
    fn read_only_to(url: &str) -> Self::Conn;

    /// Sets the session to REPEATABLE READ, where that is not the default.
    fn set_repeatable_read(conn: &mut Self::Conn) {
        let _ = conn;
    }

    /// Begins a transaction that can't promise fresh reads, has read in it, and lets another commit.
    fn stale_transaction(&self) -> Self::Conn {
        let mut conn = self.connect();
        Self::set_repeatable_read(&mut conn);
        begin(&mut conn);
        Self::counter(&mut conn, 0);
        Self::count_up(&mut self.connect(), 0);
        conn
    }

    /// The session's own limits on waiting, as text.
    fn session_limits(conn: &mut Self::Conn) -> String;

    /// The limits, and what else transactions of this crate change in the session and restore.
    fn session(conn: &mut Self::Conn) -> String {
        Self::session_limits(conn)
    }

    /// Sets the shortest limit on waiting for a lock that is more than none.
    fn set_short_lock_timeout(conn: &mut Self::Conn);

    /// Sets limits other than the defaults.
    fn set_session_limits(conn: &mut Self::Conn);

    /// Grows when this session writes in the transaction that is open.
    fn writes(conn: &mut Self::Conn) -> i64;

    /// Sets the session's default isolation level as high as it goes.
    fn serializable(conn: &mut Self::Conn);

    /// Reverts the last migration of this crate.
    fn revert_last_migration(conn: &mut Self::Conn);

    /// Reverts all of them.
    fn revert_all_migrations(conn: &mut Self::Conn) {
        for _ in 0..MIGRATIONS {
            Self::revert_last_migration(conn);
        }
    }

    /// A database with the crate's tables, `counters(id, n)` with ids 0 to 9, and `drawn(place, number)` for
    /// numbers of sequences, which takes each twice if need be.
    fn new() -> Self {
        Self::empty().with_tables()
    }

    /// What [`new`](Self::new) makes in a database that is empty.
    fn with_tables(self) -> Self {
        Self::make_tables(&mut self.connect());
        self
    }

    fn make_tables(conn: &mut Self::Conn) {
        diesel_locks::migrate(conn).expect("migrate");
        Self::sql(
            conn,
            "CREATE TABLE counters (id INTEGER NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
        );
        Self::sql(
            conn,
            "CREATE TABLE drawn (place INTEGER NOT NULL, number BIGINT NOT NULL)",
        );
        for id in 0..10 {
            Self::sql(conn, &format!("INSERT INTO counters VALUES ({id}, 0)"));
        }
    }

    fn pool(&self, size: u32) -> Pool<ConnectionManager<Self::Conn>> {
        Self::pool_to(&self.url(), size)
    }

    fn pool_to(url: &str, size: u32) -> Pool<ConnectionManager<Self::Conn>> {
        Self::pool_of(url, size, |_| ())
    }

    /// A pool that does this to each connection.
    fn pool_of(
        url: &str,
        size: u32,
        first: impl Fn(&mut Self::Conn) + Send + Sync + 'static,
    ) -> Pool<ConnectionManager<Self::Conn>> {
        Self::pool_with(url, size, Duration::from_secs(10), first)
    }

    /// A pool whose `get` waits this long.
    fn pool_with(
        url: &str,
        size: u32,
        timeout: Duration,
        first: impl Fn(&mut Self::Conn) + Send + Sync + 'static,
    ) -> Pool<ConnectionManager<Self::Conn>> {
        let prepare = move |conn: &mut Self::Conn| {
            Self::prepare(conn);
            first(conn);
        };
        let pool = Pool::builder()
            .max_size(size)
            .connection_timeout(timeout)
            .connection_customizer(Box::new(Preparing(prepare)))
            .build_unchecked(ConnectionManager::<Self::Conn>::new(url));
        // The time-out is not for opening them.
        until(|| pool.state().idle_connections == size);
        pool
    }

    /// A pool that lends its connections without checking them.
    fn unchecked_pool(&self, size: u32) -> Pool<ConnectionManager<Self::Conn>> {
        Pool::builder()
            .max_size(size)
            .test_on_check_out(false)
            .connection_customizer(Box::new(Preparing(Self::prepare)))
            .build(ConnectionManager::new(self.url()))
            .expect("a pool")
    }

    fn connect(&self) -> Self::Conn {
        Self::connect_to(&self.url())
    }

    fn rows(&self) -> i64 {
        Self::number(
            &mut self.connect(),
            "SELECT count(*) FROM diesel_locks_objects",
        )
    }

    /// What the database's clock shows, in microseconds.
    fn now_us(conn: &mut Self::Conn) -> i64 {
        Self::number(conn, &format!("SELECT {}", Self::NOW_US))
    }

    /// Whether the lock on `id` is free.
    fn is_free(&self, id: &str) -> bool {
        self.connect()
            .try_with_object_lock(id, |_| Ok::<_, diesel_locks::Error>(()))
            .expect("an answer")
            .is_some()
    }

    fn counter(conn: &mut Self::Conn, id: usize) -> i64 {
        Self::number(conn, &format!("SELECT n FROM counters WHERE id = {id}"))
    }

    /// Reads, and writes one more: loses updates of others unless they wait.
    fn count_up(conn: &mut Self::Conn, id: usize) {
        let n = Self::counter(conn, id) + 1;
        Self::sql(
            conn,
            &format!("UPDATE counters SET n = {n} WHERE id = {id}"),
        );
    }

    /// Returns when `sessions` wait, as the database sees it. SQLite has no list of them; there the
    /// bodies are still right, only less likely to catch a waiter that does not wait.
    fn await_waiting(&self, sessions: i64) {
        let started = Instant::now();
        while self.waiting().is_some_and(|waiting| waiting < sessions) {
            assert!(started.elapsed() < Duration::from_secs(20), "nobody waits");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a server shows of object locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockView {
    /// Locks for which no session waits.
    pub(crate) without_waiters: bool,
    /// The ids of transient ones among them.
    pub(crate) transient_ids: bool,
    /// All who wait for a transient lock, not only the first.
    pub(crate) all_waiters: bool,
}

/// Does this to each connection of a pool.
struct Preparing<F>(F);

impl<F> std::fmt::Debug for Preparing<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Preparing")
    }
}

impl<C, F> CustomizeConnection<C, diesel::r2d2::Error> for Preparing<F>
where
    F: Fn(&mut C) + Send + Sync + 'static,
{
    fn on_acquire(&self, conn: &mut C) -> Result<(), diesel::r2d2::Error> {
        (self.0)(conn);
        Ok(())
    }
}
