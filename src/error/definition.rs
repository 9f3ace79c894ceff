//! The error type of this crate, one for all engines.

use std::time::Duration;

use thiserror::Error;

use crate::error::InvalidName;
use crate::error::limits::{LONGEST_LEASE, LONGEST_WAIT, MAX_LISTED, MAX_PERMITS, SHORTEST_LEASE};
use crate::error::texts::{
    BROKEN_CLIENT_LIBRARY, Exact, LOCK_TABLE_FULL, MISSING_TABLES, PREPARED_STATEMENT_MISMATCH,
    REFUSED_BY_GROUP, Rounded, STATEMENT_TIMEOUT, TRANSACTION_POOLER, UNTRACKED_TRANSACTION,
    counted, interrupted, limit_shown, not_registered,
};
use crate::error::wait::Wait;

#[doc = include_str!("page.md")]
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    // Try again later.
    /// The lock or a slot was not acquired within the limit of the request, or of the session.
    #[error("{resource}: not acquired within {}{}", Rounded(*waited), limit_shown(*limit))]
    LockTimeout {
        /// `the object lock "Order:4711"`, `a slot of the semaphore "exports" (5 permits)`, or SQLite's write lock.
        resource: String,
        /// How long the request waited.
        waited: Duration,
        /// The limit of the request ([`Wait::AtMost`]), even if the server ended the wait earlier. `None` if the request had none.
        limit: Option<Duration>,
        /// The database's error, if there was one, or that of the pool if it gave no connection for the last attempt.
        source: Option<diesel::result::Error>,
    },

    /// The lock or all slots are held, and the request does not wait ([`Wait::No`]).
    #[error("{resource}: not acquired, already held")]
    Unavailable {
        /// What was requested, as in [`Error::LockTimeout`].
        resource: String,
    },

    /// A request for several objects in an open transaction on MySQL or MariaDB failed after some were acquired. Roll the transaction
    /// back, or request the same objects again. A request that does not wait looks for held objects first, except on Galera, and
    /// returns this only if another session acquires one at the same moment.
    #[error("{resource}: not all acquired, and the transaction may hold {acquired} until it ends")]
    PartlyLocked {
        /// The objects requested; of many, the first ten.
        resource: String,
        /// Those that the transaction may hold.
        acquired: String,
        /// Why the request failed: [`Error::LockTimeout`], [`Error::Unavailable`] or an error of the database. The predicates and
        /// [`RetryPolicy`](crate::RetryPolicy) see it.
        source: Box<Error>,
    },

    /// A time-out of the session cancelled a statement. Or `transaction_timeout` (PostgreSQL 17) ended the transaction and closed the
    /// connection. Or SQLite refused a write to a transaction that had read, because another connection writes or has written since.
    #[error("{STATEMENT_TIMEOUT}")]
    StatementTimeout {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The pool gave no connection within its time-out, or within the time of the request if that is shorter.
    #[cfg(feature = "r2d2")]
    #[error("the pool gave no connection in time")]
    Pool(#[from] diesel::r2d2::PoolError),

    /// The pool of asynchronous connections gave no connection.
    #[cfg(feature = "_async_pool")]
    #[error("the pool gave no connection")]
    AsyncPool(#[from] crate::error::AsyncPoolError),

    /// The [`StopToken`](crate::StopToken) of a lock pool or a renewer was stopped before the lock or slot was granted.
    #[cfg(feature = "_pool")]
    #[error("stopped after waiting {} for {resource}", Rounded(*waited))]
    Stopped {
        /// What was requested, as in [`Error::LockTimeout`].
        resource: String,
        /// How long it was waited for.
        waited: Duration,
    },

    // Run the transaction again.
    /// The database broke a deadlock and chose this transaction as the victim. Roll it back; it may be retried.
    #[error("deadlock: the database chose this transaction as the victim")]
    Deadlock {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The transaction conflicts with a concurrent transaction. Roll it back; it may be retried.
    #[error("serialization failure: the transaction conflicts with a concurrent transaction")]
    SerializationFailure {
        /// The database's error.
        source: diesel::result::Error,
    },

    // Check what was committed, or roll back.
    /// The outcome of COMMIT is unknown: the connection was lost during COMMIT; on MySQL and MariaDB also if the statement was
    /// killed, or a node of Galera or Group Replication had lost the others, or its replication failed. It is never retried.
    ///
    /// A closure that returns `QueryResult` gets the database's own error instead of this one.
    #[error(
        "the outcome of COMMIT is unknown: check whether its writes are there before you run the transaction again"
    )]
    OutcomeUnknown {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The transaction can't be committed as a whole: the server has ended it, or will only roll it back.
    ///
    /// The closure did not return the error of a statement that failed (a deadlock; any error on PostgreSQL), or left more or
    /// fewer transactions open than it started with; COMMIT or ROLLBACK was sent as text; `INSERT OR ROLLBACK` ended the
    /// transaction on SQLite. On Galera a transaction on another node may have ended it: nothing is committed, run it again.
    ///
    /// A method returns this error instead of locking or drawing. At the end of a closure it replaces `Ok`, and the
    /// transaction is rolled back. It also replaces a retryable error of a closure that has ended the transaction itself, whose
    /// writes may be committed. It is never retried.
    #[error(
        "the transaction can't be committed: {reason}; return the error of each statement, and leave COMMIT and \
         ROLLBACK to the method that started the transaction"
    )]
    TransactionAborted {
        /// What is known about the cause.
        reason: String,
        /// The database's error, if there was one.
        source: Option<diesel::result::Error>,
    },

    /// The token does not hold the slot: it was granted to another holder after the lease had expired, or was released, perhaps by
    /// [`force_release_all`](crate::SemaphoreExt::force_release_all).
    #[error("slot {number} of the semaphore {semaphore:?} is no longer held by this token")]
    SlotLost {
        /// The semaphore's name.
        semaphore: String,
        /// The slot's number.
        number: u32,
    },

    // Change the database, its user or its connection.
    /// The tables of this crate do not exist, or the user does not see their schema (PostgreSQL).
    #[error("{MISSING_TABLES}")]
    MissingTables {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The migrations are recorded as run, but the tables are not those of this version. [`migrate`](crate::migrate) does nothing.
    #[error(
        "the migrations of diesel-locks are recorded as run, but the database has no {missing}: another version of \
         diesel-locks created its tables, or they were changed; use that version, or drop them with their records in \
         __diesel_schema_migrations and migrate again"
    )]
    DifferentTables {
        /// A column or function of this version that the database lacks.
        missing: &'static str,
    },

    /// The database can't have the tables of this crate, or can't run its statements: a SQLite older than 3.38, or a MySQL or
    /// MariaDB whose `innodb_page_size` is below 16 kB. [`migrate`](crate::migrate) changes nothing then.
    #[error("diesel-locks does not work with {found}: it needs {needed}")]
    UnsuitableDatabase {
        /// What the database is or has.
        found: String,
        /// What is needed, and how to get it.
        needed: &'static str,
    },

    /// The user lacks a privilege on a table or function of this crate, or, to create them, on the schema or database. See
    /// [Privileges](crate::operation::privileges).
    #[error(
        "the database user lacks a privilege on {object}; diesel-locks needs {privileges} on it: see \"Privileges that \
         an application needs\" in its documentation"
    )]
    InsufficientPrivilege {
        /// The table or function; the schema or database for [`migrate`](crate::migrate).
        object: &'static str,
        /// All privileges on it that this crate needs.
        privileges: &'static str,
        /// The database's error.
        source: diesel::result::Error,
    },

    /// A row of this crate's could not be read or changed, although the user has the privileges: row-level security (PostgreSQL) has
    /// no policy for it, or a trigger or rule suppresses it. See [Privileges](crate::operation::privileges).
    #[error(
        "a row of {table} can't be read or changed: row-level security needs policies that permit SELECT, INSERT, UPDATE and \
         DELETE, and no trigger or rule may suppress a change"
    )]
    ProtectedRow {
        /// The table.
        table: &'static str,
        /// The database's error; `None` if it reported none, and changed no row.
        source: Option<diesel::result::Error>,
    },

    /// The transaction, the user or the server is read-only (`READ ONLY`, a hot standby). A lock needs a write, even one that
    /// leaves no row behind, and so does [`migrate`](crate::migrate) if there is something to create.
    #[error(
        "a lock, a slot, a number or a migration needs a write, and the transaction, the user or the server is read-only"
    )]
    ReadOnly {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// Group Replication refuses the statement, which may be the application's own (error 3098).
    #[error("{REFUSED_BY_GROUP}")]
    RefusedByGroup {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// Several nodes of the cluster take writes, so that a lock on one node does not exclude sessions on the others. On Galera only
    /// in a transaction that this crate has not begun. Leases work if the clocks of the nodes agree: "Clusters" in
    /// docs/guarantees.md. See [`assume_single_writer`](crate::assume_single_writer).
    #[error(
        "{cluster} takes writes on several nodes, and a lock on one node does not exclude sessions on the others: {hint}"
    )]
    SeveralWriters {
        /// The cluster.
        cluster: &'static str,
        /// What to do.
        hint: &'static str,
    },

    /// PostgreSQL does not know a prepared statement of this connection, or has another one under its name.
    ///
    /// The cause is a pooler in transaction mode, which runs each transaction in any session, `DISCARD ALL` or `DEALLOCATE ALL`.
    /// The statement may be the application's own. A pooler may also run the wrong one without an error: see
    /// [Through a transaction pooler](crate::operation::pgbouncer).
    #[error("{PREPARED_STATEMENT_MISMATCH}")]
    PreparedStatementMismatch {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// PostgreSQL's lock table, which all sessions share, is full. Each kept lock takes an entry, and each table of a transaction.
    #[error("{LOCK_TABLE_FULL}")]
    LockTableFull {
        /// The database's error.
        source: diesel::result::Error,
    },

    /// The client library of MySQL or MariaDB returns empty strings in place of the strings that the server has sent.
    ///
    /// Object locks, leases and sequences need no strings and work. The application's own queries lose strings in the same way.
    #[error("{BROKEN_CLIENT_LIBRARY}")]
    BrokenClientLibrary,

    /// A migration of this crate or of the application failed.
    #[error("a migration failed")]
    Migration(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// An earlier run of the migration did not come to its end, and may have committed a part of it. See
    /// [`run_migrations`](crate::run_migrations#interrupted-migrations).
    #[error("{}", interrupted(migration))]
    InterruptedMigration {
        /// The migration's name.
        migration: String,
        /// The database's error, if the migration was run again.
        source: Option<diesel::result::Error>,
    },

    /// [`run_migrations`](crate::run_migrations) through a pooler in transaction mode: another session than that with the lock ran a
    /// statement.
    #[error("{TRANSACTION_POOLER}")]
    TransactionPooler,

    /// [`held_object_locks`](crate::InspectExt::held_object_locks) on an engine, or a server, that does not show them.
    #[error("{engine} does not show who holds object locks: {reason}")]
    LocksNotShown {
        /// The engine.
        engine: &'static str,
        /// Why it does not.
        reason: &'static str,
    },

    // Change the program.
    /// The method was called without an open transaction: its lock or number would end with the statement.
    #[error(
        "{method} needs an open transaction: open one with with_object_lock, run_transaction or Diesel's transaction"
    )]
    NotInTransaction {
        /// The method's name.
        method: &'static str,
    },

    /// The wrapper counts open transactions apart from its inner connection: see `ConnectionWrapper`.
    #[error(
        "{wrapper} counts open transactions apart from its inner connection: return the transaction_state of the \
         inner connection"
    )]
    SeparateTransactionState {
        /// The type of the wrapper.
        wrapper: &'static str,
    },

    /// A transaction is open that the application has begun by its own SQL (`BEGIN`, a query after `SET autocommit = 0`, `XA START`).
    /// Diesel does not know of it; this crate has not ended it. On PostgreSQL it is aborted, as by any
    /// error: roll it back. It can continue on the other databases.
    #[error("{UNTRACKED_TRANSACTION}")]
    UntrackedTransaction {
        /// The database's error, if there was one.
        source: Option<diesel::result::Error>,
    },

    /// The method was called inside an open transaction, and can't run there.
    #[error("{method} can't run inside an open transaction: {reason}")]
    AlreadyInTransaction {
        /// The method's name.
        method: &'static str,
        /// What would go wrong.
        reason: &'static str,
    },

    /// The transaction may read data older than the lock: its isolation level uses one snapshot, or, on SQLite, it has
    /// read before another connection wrote.
    #[error("can't acquire {resource} in this transaction: {reason}")]
    UnsuitableIsolation {
        /// What was requested, as in [`Error::LockTimeout`].
        resource: String,
        /// The isolation level, and what to do.
        reason: String,
    },

    /// The semaphore has fewer rows than permits. They are not created in an open transaction: others would have to wait for its end.
    /// Or the database has no number of permits for a [`Semaphore::registered`](crate::Semaphore::registered).
    #[error("{}", not_registered(semaphore, *permits))]
    NotRegistered {
        /// The semaphore's name.
        semaphore: String,
        /// The number of permits; `None` if the database has none.
        permits: Option<u32>,
    },

    /// [`force_release_all`](crate::SemaphoreExt::force_release_all) of a semaphore without slots and without a number of permits in the
    /// database: the name is another one, or the semaphore was not used yet, or
    /// [`purge_slots`](crate::SemaphoreExt::purge_slots) has removed its slots.
    #[error(
        "the database has no semaphore {semaphore:?}: check the name, including upper and lower case, and blanks"
    )]
    UnknownSemaphore {
        /// The name that was passed.
        semaphore: String,
    },

    /// The engine does not support the isolation level or mode: nothing was sent to the database. On MySQL and MariaDB also in a
    /// session with `autocommit = 0` outside a transaction, which would not commit a lease: none was granted or changed.
    #[error("{engine} does not support {mode} transactions: {hint}")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The isolation level or mode requested.
        mode: String,
        /// What to use instead.
        hint: &'static str,
    },

    /// A method that does not wait (`try_..`) got a request with another [`LockRequest::wait`](crate::LockRequest::wait)
    /// than [`Wait::No`].
    #[error(
        "{method} does not wait, but the request says {wait:?}: leave LockRequest::wait out, or call the method \
         without try_"
    )]
    ConflictingWait {
        /// The method's name.
        method: &'static str,
        /// The wait of the request.
        wait: Wait,
    },

    /// The requests of an array or a `Vec` set different waits or retentions. Set it for all: `LockRequest::from([..]).wait(..)`.
    #[error(
        "the requests set different values for {setting}: {values}; set it once, for all of them"
    )]
    ConflictingRequests {
        /// `wait` or `retention`.
        setting: &'static str,
        /// The values.
        values: String,
    },

    /// The transaction has acquired the [shared](crate::LockRequest::shared) lock of an object, and requested the exclusive one:
    /// two such transactions would wait for each other. Request the exclusive lock first, or in a new transaction.
    #[error(
        "can't acquire {resource}: the transaction has acquired the shared lock of {id:?}; request the exclusive lock first"
    )]
    LockUpgrade {
        /// What was requested, as in [`Error::LockTimeout`].
        resource: String,
        /// The object.
        id: String,
    },

    /// [`Wait::AtMost`] is longer than [`LONGEST_WAIT`].
    #[error("can't wait for {}: the longest wait is {} (about 24.8 days)", Exact(*requested), Exact(LONGEST_WAIT))]
    InvalidWait {
        /// The duration requested.
        requested: Duration,
    },

    /// The request is for more kept objects than [`MAX_KEPT_IDS`](crate::limits::MAX_KEPT_IDS). None was locked.
    ///
    /// With [`Retention::Transient`](crate::Retention::Transient), on PostgreSQL, that many of the objects have a kept row. Split
    /// the request, or use transient locks and [purge](crate::ObjectLockExt::purge_object_locks) the rows.
    #[error(
        "{ids} kept objects requested; one request can lock at most {limit}: split it, or, for exclusive locks, use Retention::Transient"
    )]
    TooManyIds {
        /// The number of objects requested.
        ids: usize,
        /// The largest number allowed: [`MAX_KEPT_IDS`](crate::limits::MAX_KEPT_IDS).
        limit: usize,
    },

    /// A name, an object id or a holder's text is invalid.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),

    /// The semaphore has no permits, or more than [`MAX_PERMITS`].
    #[error("the semaphore {semaphore:?} has {}; 1 to {MAX_PERMITS} are allowed", counted(*permits, "permit"))]
    InvalidPermits {
        /// The semaphore's name.
        semaphore: String,
        /// The number of permits.
        permits: u32,
    },

    /// A request for several permits is for none, or for more than the semaphore has or one request may hold.
    #[error("can't acquire {} of the semaphore {semaphore:?} at once: 1 to {most} are allowed", counted(*requested, "permit"))]
    InvalidPermitsAtOnce {
        /// The semaphore's name.
        semaphore: String,
        /// The number of permits requested.
        requested: u32,
        /// The largest number allowed: that of the semaphore, or [`MAX_PERMITS_AT_ONCE`](crate::limits::MAX_PERMITS_AT_ONCE).
        most: u32,
    },

    /// The job's cron expression or time zone is unusable.
    #[cfg(feature = "cron")]
    #[error("invalid schedule {expression:?} in {zone:?}: {reason}")]
    InvalidSchedule {
        /// The cron expression.
        expression: String,
        /// The name of the time zone.
        zone: String,
        /// What is wrong.
        reason: String,
    },

    /// The lease is too short or too long.
    #[error(
        "invalid lease of {}: {reason} ({} to {} are allowed)",
        Exact(*requested), Exact(SHORTEST_LEASE), Exact(LONGEST_LEASE)
    )]
    InvalidLease {
        /// The duration requested.
        requested: Duration,
        /// The limit that it breaks.
        reason: &'static str,
    },

    /// The limit of a list ([`ListOptions`](crate::ListOptions),
    /// [`held_object_locks`](crate::InspectExt::held_object_locks)) is 0 or too large.
    #[error("can't list up to {}: 1 to {MAX_LISTED} are allowed", counted(*requested, "row"))]
    InvalidLimit {
        /// The limit requested.
        requested: u32,
    },

    /// The poll interval of a `SlotRenewer`, or the period or offset of a `TimerJob`, is too short or too long.
    #[error("invalid {subject} of {}: {} to {} are allowed", Exact(*requested), Exact(*shortest), Exact(*longest))]
    InvalidInterval {
        /// "poll interval", "period" or "offset".
        subject: &'static str,
        /// The duration requested.
        requested: Duration,
        /// The shortest duration allowed.
        shortest: Duration,
        /// The longest duration allowed.
        longest: Duration,
    },

    /// [`raise_fences`](crate::SemaphoreExt::raise_fences) by a time that would leave too few fences for later grants.
    #[error("fences can't be raised by {}: they would pass the year 2100, and the last fence is in 2112", Exact(*requested))]
    FencesTooLarge {
        /// The time requested.
        requested: Duration,
    },

    /// The first number of the sequence is below 1.
    #[error("{sequence} can't start with {start}: 1 to {} are allowed", i64::MAX)]
    InvalidStart {
        /// The sequence.
        sequence: String,
        /// The first number requested.
        start: i64,
    },

    /// [`next_numbers`](crate::SequenceExt::next_numbers) was called with a count of 0.
    #[error("can't draw {} of {sequence}: 1 to {} are allowed", counted(*count, "number"), u32::MAX)]
    InvalidCount {
        /// The sequence.
        sequence: String,
        /// The count requested.
        count: u32,
    },

    /// The sequence has fewer numbers left than requested. None was drawn.
    #[error(
        "{sequence} has fewer than {} left: the last number drawn is {last}, the largest possible is {}",
        counted(*count, "number"), i64::MAX
    )]
    SequenceExhausted {
        /// The sequence.
        sequence: String,
        /// The count requested.
        count: u32,
        /// The last number drawn; one less than the first number if none was drawn yet.
        last: i64,
    },

    /// The [`RetryPolicy`](crate::RetryPolicy) allows no attempt.
    #[error("a transaction can have 1 to {} attempts, not {attempts}", u32::MAX)]
    InvalidRetry {
        /// The number of attempts requested.
        attempts: u32,
    },

    /// Any other error of the database.
    #[error(transparent)]
    Database(diesel::result::Error),
}
