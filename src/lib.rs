//! Object locks, semaphores, gap-free sequences and retried transactions as methods on Diesel connections:
//! PostgreSQL, MySQL, MariaDB, SQLite.
//!
//! Applications that run on several servers and share one database use it to coordinate. It needs nothing but that
//! database.
//!
//! | task | use |
//! |---|---|
//! | one transaction at a time for each document, order or account, also before its row exists | [`with_object_lock`], also on several objects at once |
//! | the same in request handlers that share a pool | `LockPool` (feature `r2d2`) or `AsyncLockPool` (`bb8`, `deadpool`), which waits without a connection |
//! | skip the work while another transaction does it | [`try_with_object_lock`], [`try_with_slot`]: they return `None` |
//! | at most N workers at a time, for minutes or hours | a [`Semaphore`] with leases: `SlotRenewer` (feature `r2d2`), `AsyncSlotRenewer` (features `bb8`, `deadpool`), or [`try_acquire_slot`] |
//! | one server leads, and another one takes over when it dies | `SlotRenewer::run_as_leader` (feature `r2d2`), `AsyncSlotRenewer::run_as_leader` |
//! | a job that is due once per minute, hour or day, on one of all servers | `SlotRenewer::run_on_timer` (feature `r2d2`), `AsyncSlotRenewer::run_on_timer`; with a timer of the application [`LeaseOptions::hold_at_least`] |
//! | at most N short transactions at a time | [`with_slot`] |
//! | numbers without gaps: invoices, passes of a meeting | [`next_number`] in the transaction that uses the number |
//! | see who holds a lock or a slot, and who waits | [`InspectExt`] |
//! | a transaction that deadlocks or fails to serialize | [`run_transaction`] with a [`RetryPolicy`] |
//!
//! The [guide] has a chapter for each, and says when to use something else. [Guarantees] lists what each engine promises.
//! Both are in the [repository].
//!
//! # Object locks
//!
//! An object lock is an exclusive lock on an id, for one transaction. The object need not exist in any table. No two
//! transactions hold the lock on the same object at the same time.
//!
//! ```
//! use diesel::prelude::*;
//! use diesel_locks::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut conn = SqliteConnection::establish(":memory:")?;
//! diesel_locks::migrate(&mut conn)?; // when the application starts
//!
//! let bond = ObjectId::new("BondBO", "DK0015966592");
//! conn.with_object_lock(&bond, |conn| -> QueryResult<()> {
//!     // Read, decide, write: no other transaction holds this bond. COMMIT or ROLLBACK releases it.
//!     # let _ = conn;
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Semaphores
//!
//! A semaphore limits the number of concurrent holders across all servers. There are two kinds of slot. A leased slot
//! expires unless it is renewed, outlives transactions, and has a [fence](Slot::fence). A slot of a transaction is held
//! until the transaction ends.
//!
//! ```
//! use diesel_locks::SlotRenewer;
//! use diesel_locks::prelude::*;
//! use std::time::Duration;
//!
//! const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
//!
//! # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
//! # fn main() -> Result<(), diesel_locks::Error> {
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let renewer_pool = sqlite::pool(&directory.path().join("app.db").display().to_string())?;
//! // When the application starts, with an r2d2 pool of two connections. The application's work uses another pool.
//! diesel_locks::migrate(&mut renewer_pool.get()?)?;
//! let renewer = SlotRenewer::new(renewer_pool);
//!
//! // Leases a slot, renews it while the closure runs, and releases it when the closure returns or panics.
//! let lease = LeaseOptions::new(Duration::from_secs(30));
//! let collated = renewer.try_run(&COLLATE, &lease, |guard| -> diesel_locks::Result<_> {
//!     let mut files = 0;
//!     while files < 3 {
//!         guard.ensure_held()?; // returns an error if the lease is lost
//!         files += 1; // a step of the work, one of at most ten at a time
//!     }
//!     Ok(files)
//! })?;
//! assert_eq!(collated, Some(3)); // `None`: all ten slots are held
//! # Ok(())
//! # }
//! ```
//!
//! # Sequences and transactions
//!
//! A number of a gap-free sequence belongs to the transaction that drew it. A transaction of this crate can
//! have an isolation level of its own, and with a [`RetryPolicy`] it is retried when the database aborts it.
//!
//! ```
//! use diesel::prelude::*;
//! use diesel_locks::RetryPolicy;
//! use diesel_locks::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut conn = SqliteConnection::establish(":memory:")?;
//! # diesel_locks::migrate(&mut conn)?;
//! let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
//! let number = conn.run_transaction(retried, |conn| {
//!     conn.next_number(&Sequence::new("pass").for_key(4711)) // of the meeting 4711
//! })?;
//! assert_eq!(number, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to find what
//!
//! | | on a connection | on a pool (feature `r2d2`; `Async..` with `bb8` or `deadpool`) | waits | limit of the wait if none is set |
//! |---|---|---|---|---|
//! | object lock | [`with_object_lock`] | `LockPool::with_object_lock` | yes | connection: none; pool: the time for which it waits for a connection |
//! | | [`try_with_object_lock`] | | no | |
//! | leased slot | [`acquire_slot`] returns a [`Slot`] | `SlotRenewer::acquire` returns a `SlotGuard` | yes | a [`Wait`] is required |
//! | | [`try_acquire_slot`] returns a [`Slot`] | `SlotRenewer::try_acquire` returns a `SlotGuard`, `SlotRenewer::try_run` calls a closure | no | |
//! | leader; job on a timer | | `SlotRenewer::run_as_leader`, `run_on_timer` call a closure | yes | none; they end by a `StopToken` |
//! | slot of a transaction | [`with_slot`] | `LockPool::with_slot` | yes | a [`Wait`] is required |
//! | | [`try_with_slot`] | `LockPool::try_with_slot` | no | |
//! | number | [`next_number`] | | yes | the session's `lock_timeout` or the like |
//!
//! A connection that is borrowed from a pool has the methods of a connection too.
//!
//! - [`ObjectLockExt`]: the methods for object locks. Their arguments: [`ObjectId`], [`LockRequest`], [`Wait`],
//!   [`Retention`]; [`LockOutcome`] is the result of [`try_lock_object`](ObjectLockExt::try_lock_object). With the feature `r2d2`, a `LockPool` waits for object locks and slots of transactions without a
//!   connection, until a `StopToken` is stopped; with `bb8` or `deadpool`, an `AsyncLockPool`.
//! - [`SemaphoreExt`]: the methods for semaphores. Their arguments and results: [`Semaphore`], [`LeaseOptions`],
//!   [`Slot`], [`LeaseState`]. With the feature `r2d2`, a `SlotRenewer` renews slots in the background, and a
//!   `SlotGuard` holds one. An `ActiveSlot` is held by a leader, or while a `Tick` of a `TimerJob` is run. A `Shutdown` ends
//!   all of it when the process is to end. With `bb8` or `deadpool`, an `AsyncSlotRenewer` renews slots in a task, with an
//!   `AsyncSlotGuard`, an `AsyncActiveSlot` and an `AsyncTick`.
//! - [`SequenceExt`]: the methods for gap-free numbers of a [`Sequence`].
//! - [`InspectExt`]: shows an operator held object locks with their holders and waiters ([`HeldObjectLock`]), semaphores
//!   ([`SemaphoreInfo`]), held slots ([`SlotInfo`]) and sequences ([`SequenceInfo`]), selected by [`ListOptions`].
//! - [`TransactionExt`]: [`TransactionOptions`] with [`IsolationLevel`] and [`RetryPolicy`]; [`TransactionError`] for the
//!   application's own error type.
//! - [`Error`]: one error type for all engines, with a table of the errors of each method. [`Result`] names it at a
//!   closure.
//! - [`operation::blocking`]: when each method blocks, for how long, and what is usable afterwards.
//! - `operation::dropped_futures`: what happens when the future of a method on a connection of diesel-async is dropped.
//! - `closures`: bounds for functions that pass an `async` closure of their caller to a method of this crate.
//! - [`operation::events`]: what the crate records by `tracing`, for logs and metrics.
//! - [`migrate`], [`migrations`]: the tables. [`operation::privileges`]: the GRANTs that an application's user needs.
//! - [`operation::sqlite`], [`operation::pgbouncer`]: what to set on connections to SQLite, and behind a transaction
//!   pooler. [`assume_single_writer`]: for a cluster with several writable nodes of which the application uses one.
//! - [`prelude`]: what an application imports. [`chrono`] and [`uuid`] are re-exported: their types stand in signatures.
//!
//! The traits are implemented for Diesel's `PgConnection`, `MysqlConnection` and `SqliteConnection`, and for an
//! application's enum of connections or wrapper of one (`ConnectionWrapper`). An r2d2 `PooledConnection` has the methods
//! through its connection, and closures get that connection.
//!
//! With the features for diesel-async, `AsyncPgConnection`, `AsyncMysqlConnection` and
//! `SyncConnectionWrapper<SqliteConnection>` have the same methods, by the traits `AsyncObjectLockExt`, `AsyncSemaphoreExt`,
//! `AsyncSequenceExt`, `AsyncTransactionExt` and `AsyncInspectExt`, with `async` closures. [With diesel-async] shows what is
//! different.
//!
//! The methods of Diesel's connections block the thread: in async code call them in `spawn_blocking` or its like.
//!
//! # In tests
//!
//! Diesel's `begin_test_transaction` opens a transaction that stays open. In it `run_transaction`, [`migrate`], `raise_fences`
//! and the methods that purge or register (also the asynchronous ones) return [`Error::AlreadyInTransaction`], and the first use
//! of a semaphore [`Error::NotRegistered`]: migrate and register before it begins. On MySQL and MariaDB, at their default
//! isolation level, locks and slots return [`Error::UnsuitableIsolation`]: set the session to READ COMMITTED first, or give each
//! test its own database.
//!
//! To test code that takes a pool, give the pool one connection (`max_size(1)`), so that all of the test runs in the
//! transaction of that connection. A second request then waits until the first one has returned the connection. A database
//! `:memory:` of SQLite belongs to one connection, so it needs such a pool too:
//!
//! ```
//! use diesel::SqliteConnection;
//! use diesel_async::AsyncConnection;
//! use diesel_async::pooled_connection::AsyncDieselConnectionManager;
//! use diesel_async::pooled_connection::deadpool::Pool;
//! use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
//! use diesel_locks::AsyncLockPool;
//! use diesel_locks::prelude::*;
//!
//! const REPORTS: Semaphore = Semaphore::from_static("reports", 5);
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let manager = AsyncDieselConnectionManager::<SyncConnectionWrapper<SqliteConnection>>::new(":memory:");
//!     let pool = Pool::builder(manager).max_size(1).build()?;
//!     let mut conn = pool.get().await?;
//!     diesel_locks::migrate_async(&mut conn).await?;
//!     conn.register_semaphores(&[REPORTS]).await?;
//!     conn.begin_test_transaction().await?;
//!     drop(conn); // returns it to the pool, and leaves the transaction open
//!
//!     let locks = AsyncLockPool::new(pool);
//!     let id = ObjectId::new("Account", "4711");
//!     locks.with_object_lock(id, async |_conn| -> diesel_locks::Result<()> { Ok(()) }).await?;
//!     locks.with_slot(&REPORTS, Wait::No, async |_conn| -> diesel_locks::Result<()> { Ok(()) }).await?;
//!     Ok(())
//! }
//! ```
//!
//! Do not test a renewer in such a transaction: other connections do not see what it has not committed. Give tests of
//! `SlotRenewer` and `AsyncSlotRenewer` their own database.
//!
//! # Crate features
//!
//! None is on by default.
//!
//! - `postgres`, `mysql`, `sqlite`: the engines. Each enables Diesel's feature of the same name. `mysql` includes MariaDB.
//! - `r2d2`: Diesel's connection pool; `SlotRenewer`, `SlotGuard`, `LockPool`, `StopToken`, `StopOnDrop`, `Shutdown`,
//!   `Unfinished`, `ActiveSlot`, `TimerJob`, `Tick`, `Error::Pool`, `Error::Stopped`.
//! - `async-postgres`, `async-mysql`, `async-sqlite`: the connections of diesel-async 0.9; the traits `Async..Ext`,
//!   `migrate_async`, `assume_single_writer_async`, and `set_cancel_tls` (`async-postgres`). `async-postgres` and `async-mysql`
//!   need no client library of the database. All three need a runtime of tokio with `enable_all`.
//! - `bb8`, `deadpool`: diesel-async's pools; `AsyncPool`, `AsyncLockPool`, `AsyncSlotRenewer`, `AsyncSlotGuard`,
//!   `AsyncShutdown`, `Unfinished`, `AsyncActiveSlot`, `AsyncTick`, `StopToken`, `StopOnDrop`, `TimerJob`, `Error::AsyncPool`, `Error::Stopped`.
//!
//! [With diesel-async]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/async.md
//! [guide]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md
//! [Guarantees]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guarantees.md
//! [repository]: https://github.com/diesel-locks/diesel-locks
//! [`with_object_lock`]: ObjectLockExt::with_object_lock
//! [`try_with_object_lock`]: ObjectLockExt::try_with_object_lock
//! [`try_with_slot`]: SemaphoreExt::try_with_slot
//! [`with_slot`]: SemaphoreExt::with_slot
//! [`try_acquire_slot`]: SemaphoreExt::try_acquire_slot
//! [`acquire_slot`]: SemaphoreExt::acquire_slot
//! [`next_number`]: SequenceExt::next_number
//! [`run_transaction`]: TransactionExt::run_transaction
//! [`migrate`]: migrate()
#![cfg_attr(
    not(any(feature = "_postgres", feature = "_mysql", feature = "_sqlite")),
    allow(dead_code, unreachable_pub, reason = "unused without an engine")
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "_pool")]
mod activity;
#[cfg(feature = "_async_pool")]
mod async_pool;
mod backoff;
mod cancel;
#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub mod closures;
mod engine;
pub mod error;
mod events;
mod inspect;
#[cfg(feature = "_pool")]
mod lender;
pub mod limits;
mod link;
#[cfg(feature = "_pool")]
mod lock_pool;
pub mod migrations;
mod name;
mod object_lock;
pub mod operation;
mod poll;
#[cfg(feature = "_pool")]
mod pooled;
pub mod prelude;
mod queue;
#[cfg(any(
    feature = "async-postgres",
    feature = "async-mysql",
    feature = "_async_pool",
    all(feature = "async-sqlite", feature = "_pool")
))]
mod runtime;
#[doc(hidden)]
pub mod schema;
mod semaphore;
mod sequence;
#[cfg(feature = "_pool")]
mod shutdown;
mod single_writer;
#[cfg(feature = "_pool")]
mod stop;
mod timer;
mod transaction;
mod waiting;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod wrapper;

#[cfg(feature = "async-postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "async-postgres")))]
pub use cancel::tls::set_cancel_tls;
pub use chrono;
pub use uuid;

#[cfg(feature = "_async_pool")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "bb8", feature = "deadpool"))))]
pub use async_pool::AsyncPool;
pub use error::definition::Error;
pub use error::result::Result;
pub use inspect::InspectExt;
#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub use inspect::async_ext::AsyncInspectExt;
pub use inspect::info::{SemaphoreInfo, SequenceInfo};
pub use inspect::list_options::ListOptions;
pub use inspect::object_lock::{HeldObjectLock, LockSession, LockWaiter};
#[cfg(feature = "_async_pool")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "bb8", feature = "deadpool"))))]
pub use lock_pool::asynchronous::AsyncLockPool;
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use lock_pool::blocking::LockPool;
#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub use migrations::async_run::migrate_async;
pub use migrations::run::migrate;
pub use object_lock::ObjectLockExt;
#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub use object_lock::async_ext::AsyncObjectLockExt;
pub use object_lock::backend::LockOutcome;
pub use object_lock::id::ObjectId;
pub use object_lock::request::{LockRequest, Retention, Wait};
pub use semaphore::SemaphoreExt;
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use semaphore::active_slot::ActiveSlot;
#[cfg(feature = "_async_pool")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "bb8", feature = "deadpool"))))]
pub use semaphore::async_active_slot::AsyncActiveSlot;
#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub use semaphore::async_ext::AsyncSemaphoreExt;
pub use semaphore::definition::Semaphore;
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use semaphore::guard::blocking::SlotGuard;
#[cfg(feature = "_async_pool")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "bb8", feature = "deadpool"))))]
pub use semaphore::guard::nonblocking::AsyncSlotGuard;
pub use semaphore::lease::LeaseOptions;
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use semaphore::renewer::blocking::SlotRenewer;
#[cfg(feature = "_async_pool")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "bb8", feature = "deadpool"))))]
pub use semaphore::renewer::nonblocking::AsyncSlotRenewer;
pub use semaphore::slot::{LeaseState, Slot, SlotInfo};
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use semaphore::timer::blocking::Tick;
#[cfg(feature = "_pool")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "r2d2", feature = "bb8", feature = "deadpool")))
)]
pub use semaphore::timer::job::TimerJob;
#[cfg(feature = "_async_pool")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "bb8", feature = "deadpool"))))]
pub use semaphore::timer::nonblocking::AsyncTick;
pub use sequence::SequenceExt;
#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub use sequence::async_ext::AsyncSequenceExt;
pub use sequence::definition::Sequence;
#[cfg(feature = "_pool")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "r2d2", feature = "bb8", feature = "deadpool")))
)]
pub use shutdown::Unfinished;
#[cfg(feature = "_async_pool")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "bb8", feature = "deadpool"))))]
pub use shutdown::asynchronous::AsyncShutdown;
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use shutdown::blocking::Shutdown;
pub use single_writer::assume_single_writer;
#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub use single_writer::assume_single_writer_async;
#[cfg(feature = "_pool")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "r2d2", feature = "bb8", feature = "deadpool")))
)]
pub use stop::{StopOnDrop, StopToken};
pub use transaction::TransactionExt;
#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub use transaction::async_ext::AsyncTransactionExt;
pub use transaction::isolation_level::IsolationLevel;
pub use transaction::options::TransactionOptions;
pub use transaction::retry::RetryPolicy;
pub use transaction::retryable::TransactionError;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use wrapper::{ConnectionWrapper, InnerConnection};

/// Compiles the examples of the README.
#[cfg(all(
    doctest,
    feature = "postgres",
    feature = "r2d2",
    feature = "async-postgres",
    feature = "deadpool"
))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the page on web services.
#[cfg(all(
    doctest,
    feature = "postgres",
    feature = "r2d2",
    feature = "async-postgres",
    feature = "deadpool"
))]
#[doc = include_str!("../docs/web-service.md")]
struct WebService;

/// Compiles the example of the page on diesel-async.
#[cfg(all(doctest, feature = "async-postgres", feature = "deadpool"))]
#[doc = include_str!("../docs/async.md")]
struct Asynchronous;

/// Compiles the examples of the guide.
#[cfg(all(doctest, feature = "postgres", feature = "r2d2"))]
#[doc = include_str!("../docs/guide.md")]
struct Guide;
