//! Object locks, semaphores, gap-free sequences and retried transactions as methods on Diesel connections:
//! PostgreSQL, MySQL, MariaDB, SQLite.
//!
//! For applications that run on several servers and coordinate by the database that they share. The [README][which] says what to use
//! for which task, and when to use something else. The [guide] has a chapter for each. [Guarantees] lists what each engine promises.
//! The [glossary] explains the terms. [Coming from another library] compares the calls of ShedLock, Spring's `JdbcLockRegistry`,
//! `DistributedLock`, advisory locks, Redis locks and unique jobs.
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
//! let mut conn = SqliteConnection::establish(":memory:")?;
//! diesel_locks::migrate(&mut conn)?; // when the application starts
//!
//! let bond = ObjectId::new("BondBO", "DK0015966592");
//! conn.with_object_lock(&bond, |conn| -> QueryResult<()> {
//!     // Read, decide, write: no other transaction holds this bond. COMMIT or ROLLBACK releases it.
//!     # let _ = conn;
//!     Ok(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Semaphores
//!
//! A semaphore limits the number of concurrent holders across all servers. A leased slot expires unless it is renewed, outlives
//! transactions, and has a [fence](Slot::fence). A slot of a transaction is held until the transaction ends.
//!
//! ```
//! use diesel_locks::prelude::*;
//! use diesel_locks::{Error, SlotRenewer};
//! use std::time::Duration;
//!
//! const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
//!
//! # mod sqlite { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sqlite/mod.rs")); }
//! # let (pool, _directory) = sqlite::database();
//! let renewer = SlotRenewer::new(pool); // when the application starts, with a pool of its own of two connections
//! let lease = LeaseOptions::new(Duration::from_secs(30));
//! // Renews the lease while the closure runs, and releases the slot when it returns or panics.
//! let collated = renewer.try_run(&COLLATE, &lease, |guard| {
//!     guard.ensure_held()?; // before each step of the work: an error if the lease is lost
//!     Ok::<_, Error>("collated")
//! })?;
//! assert!(collated.is_some()); // `None`: all ten slots are held
//! # Ok::<(), Error>(())
//! ```
//!
//! # Sequences and transactions
//!
//! A number of a gap-free sequence belongs to the transaction that drew it ([example](SequenceExt)). A transaction of this crate
//! can have an isolation level of its own, and with a [`RetryPolicy`] it is retried when the database aborts it
//! ([example](TransactionExt)).
//!
//! # Where to find what
//!
//! | | on a connection | on a pool (features `r2d2`, `bb8`, `deadpool`) |
//! |---|---|---|
//! | object lock | [`with_object_lock`], [`lock_object`]; without a wait [`try_with_object_lock`], [`try_lock_object`] | `LockPool::with_object_lock`, `try_with_object_lock` |
//! | leased slot | [`acquire_slot`], [`try_acquire_slot`]: a [`Slot`] | `SlotRenewer::acquire`, `try_acquire`: a `SlotGuard`; `try_run`: a closure |
//! | leader; job on a timer | | `SlotRenewer::run_as_leader`, `run_on_timer`; with a timer of the application [`LeaseOptions::hold_at_least`] |
//! | slot of a transaction | [`with_slot`], [`try_with_slot`], [`with_slots`] | `LockPool::with_slot`, `try_with_slot`, `with_slots` |
//! | several permits, all or none | [`LeaseOptions::permits`], [`with_slots`] | the same |
//! | number | [`next_number`] | |
//! | transaction, retried | [`run_transaction`] with a [`RetryPolicy`], with locks by [`LockRequest::retry`] | `LockPool::run_transaction`, also after a lost connection |
//! | holders, and requests that wait | [`InspectExt`] | those of this process: `LockPool::requests`, `SlotRenewer::requests` |
//!
//! - Connections have the methods by the traits [`ObjectLockExt`], [`SemaphoreExt`], [`SequenceExt`], [`TransactionExt`], and for
//!   an operator [`InspectExt`]: Diesel's `PgConnection`, `MysqlConnection` and `SqliteConnection`, an application's enum of
//!   connections or wrapper of one (`ConnectionWrapper`), and by its connection an r2d2 `PooledConnection`.
//! - Connections of diesel-async have the same methods, with `async` closures, by `AsyncObjectLockExt` and so on.
//!   [With diesel-async] shows what is different, `closures` the bounds for functions that pass on a closure,
//!   `operation::dropped_futures` what happens when a future is dropped.
//! - `LockPool` waits without a connection, `SlotRenewer` renews slots, `Shutdown` ends both when the process is to end.
//! - [`Error`]: one error type for all engines, with a table of the errors of each method.
//! - [`operation`]: [when each method blocks](operation::blocking), [events](operation::events) for logs and metrics,
//!   [GRANTs](operation::privileges), [SQLite](operation::sqlite), [PgBouncer](operation::pgbouncer).
//! - [`migrate`], [`migrations`]: the tables. [`run_migrations`]: with the application's migrations. [`assume_single_writer`]: for a cluster with several writable nodes.
//! - [`chrono`] and [`uuid`] are re-exported: their types stand in signatures.
//!
//! # In tests
//!
//! In the transaction that Diesel's `begin_test_transaction` opens, `run_transaction`, requests for several permits, [`migrate`],
//! `raise_fences`, `set_permits`, `request_release`, `set_slot_data` and the methods that purge or register return
//! [`Error::AlreadyInTransaction`], and the first use of a semaphore [`Error::NotRegistered`]: migrate and register before it
//! begins. On MySQL and MariaDB, at their default isolation level, locks and slots return [`Error::UnsuitableIsolation`]: set the
//! session to READ COMMITTED first, or give each test its own database.
//!
//! To test code that takes a pool, give the pool one connection, as a database `:memory:` of SQLite needs too: all of the test runs
//! in the transaction of that connection, and a second request waits until the first one has returned it.
//!
//! ```
//! use diesel::SqliteConnection;
//! use diesel_async::AsyncConnection;
//! use diesel_async::pooled_connection::{AsyncDieselConnectionManager, deadpool::Pool};
//! use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
//! use diesel_locks::prelude::*;
//! use diesel_locks::{LockPool, Result};
//!
//! # #[tokio::main]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let manager = AsyncDieselConnectionManager::<SyncConnectionWrapper<SqliteConnection>>::new(":memory:");
//! let pool = Pool::builder(manager).max_size(1).build()?;
//! let mut conn = pool.get().await?;
//! diesel_locks::migrate_async(&mut conn).await?;
//! let reports = Semaphore::new("reports", 5);
//! conn.register_semaphores([&reports]).await?;
//! conn.begin_test_transaction().await?;
//! drop(conn); // returns it to the pool, and leaves the transaction open
//!
//! let locks = LockPool::new(pool);
//! locks.with_object_lock(ObjectId::new("Account", "4711"), async |_conn| -> Result<()> { Ok(()) }).await?;
//! locks.with_slot(&reports, Wait::No, async |_conn| -> Result<()> { Ok(()) }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Give tests of `SlotRenewer` their own database: its other connections do not see what such a transaction has not committed.
//!
//! # Crate features
//!
//! None is on by default.
//!
//! - `postgres`, `mysql`, `sqlite`: the engines. Each enables Diesel's feature of the same name. `mysql` includes MariaDB.
//! - `r2d2`: Diesel's connection pool; `LockPool`, `SlotRenewer`, `Shutdown` and what they use, `Error::Pool`, `Error::Stopped`.
//! - `async-postgres`, `async-mysql`, `async-sqlite`: the connections of diesel-async 0.9; the traits `Async..Ext`,
//!   `migrate_async`, `run_migrations_async`, `assume_single_writer_async`, and `set_cancel_tls` (`async-postgres`). `async-postgres` and `async-mysql`
//!   need no client library of the database. All three need a runtime of tokio with `enable_all`.
//! - `bb8`, `deadpool`: diesel-async's pools; the types of `r2d2`, `Async`, `error::AsyncPoolError`, `Error::AsyncPool`,
//!   `Error::Stopped`.
//! - `cron`: `TimerJob::cron`, `Error::InvalidSchedule`; with one of the pools.
//! - `metrics`: [metrics](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#metrics) on the facade of the crate
//!   `metrics`; `describe_metrics`.
//! - `testing`: the module `testing`, for the application's tests.
//!
//! [With diesel-async]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/async.md
//! [Coming from another library]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/coming-from.md
//! [glossary]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/glossary.md
//! [guide]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md
//! [which]: https://github.com/diesel-locks/diesel-locks#which-primitive-for-what
//! [Guarantees]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guarantees.md
//! [`lock_object`]: ObjectLockExt::lock_object
//! [`try_lock_object`]: ObjectLockExt::try_lock_object
//! [`with_object_lock`]: ObjectLockExt::with_object_lock
//! [`try_with_object_lock`]: ObjectLockExt::try_with_object_lock
//! [`try_with_slot`]: SemaphoreExt::try_with_slot
//! [`with_slot`]: SemaphoreExt::with_slot
//! [`with_slots`]: SemaphoreExt::with_slots
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
#![cfg_attr(
    docsrs,
    doc(auto_cfg(hide(
        feature = "_postgres",
        feature = "_mysql",
        feature = "_sqlite",
        feature = "_async",
        feature = "_pool",
        feature = "_async_pool"
    )))
)]
#![forbid(unsafe_code)]

mod acts;
mod api;
mod engine;
pub mod error;
#[cfg(feature = "_pool")]
mod jobs;
mod link;
#[cfg(feature = "_pool")]
mod pools;
mod queue;
mod rt;
mod values;

/// The names that an application imports: `use diesel_locks::prelude::*;`
pub mod prelude {
    #[cfg(feature = "_async")]
    pub use crate::{AsyncObjectLockExt, AsyncSemaphoreExt, AsyncSequenceExt, AsyncTransactionExt};
    pub use crate::{
        LeaseOptions, LockRequest, ObjectId, ObjectLockExt, Semaphore, SemaphoreExt, Sequence,
        SequenceExt, TransactionExt, TransactionOptions, Wait,
    };
}

#[cfg(feature = "_async")]
pub use crate::acts::closures;
#[cfg(feature = "metrics")]
pub use crate::acts::metrics::describe_metrics;
#[cfg(feature = "testing")]
pub use crate::api::testing;
pub use crate::api::{migrations, operation};
pub use crate::error::limits;

#[cfg(feature = "async-postgres")]
pub use crate::link::nonblocking::postgres::set_cancel_tls;
pub use chrono;
pub use uuid;

pub use crate::api::inspect::InspectExt;
pub use crate::api::object_lock::ObjectLockExt;
pub use crate::api::semaphore::SemaphoreExt;
pub use crate::api::sequence::SequenceExt;
pub use crate::api::setup::{assume_single_writer, migrate, run_migrations};
pub use crate::api::transaction::TransactionExt;
#[cfg(feature = "_async")]
pub use crate::api::{
    inspect::AsyncInspectExt,
    object_lock::AsyncObjectLockExt,
    semaphore::AsyncSemaphoreExt,
    sequence::AsyncSequenceExt,
    setup::{assume_single_writer_async, migrate_async, run_migrations_async},
    transaction::AsyncTransactionExt,
};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use crate::engine::wrapper::{ConnectionWrapper, InnerConnection};
pub use crate::error::conversions::Result;
pub use crate::error::definition::Error;
pub use crate::error::wait::Wait;
#[cfg(any(feature = "bb8", feature = "deadpool"))]
pub use crate::pools::Async;
pub use crate::values::held_object_lock::{HeldObjectLock, LockSession, LockWaiter};
pub use crate::values::lease::LeaseOptions;
pub use crate::values::list_options::ListOptions;
pub use crate::values::lock_request::{LockOutcome, LockRequest, Retention};
pub use crate::values::object_id::ObjectId;
pub use crate::values::retry_policy::{RetryPolicy, TransactionError};
pub use crate::values::sequence::{Sequence, SequenceInfo};
pub use crate::values::slot::{LeaseState, Semaphore, SemaphoreInfo, Slot, SlotInfo};
pub use crate::values::transaction_options::{
    IsolationLevel, TransactionOptions, TransactionRequest,
};
#[cfg(any(feature = "r2d2", feature = "bb8", feature = "deadpool"))]
pub use crate::{
    api::lock_pool::LockPool,
    api::recurring::Tick,
    api::shutdown::{Shutdown, Unfinished},
    api::slot_guard::{ActiveSlot, SlotGuard},
    jobs::renewer::SlotRenewer,
    jobs::timer::TimerJob,
    pools::{Blocking, Pool},
    rt::stop_token::{StopOnDrop, StopToken},
    values::request_info::{RequestInfo, RequestSubject},
};

/// Compiles the examples of the README.
#[cfg(all(
    doctest,
    feature = "postgres",
    feature = "r2d2",
    feature = "async-postgres",
    feature = "deadpool",
    feature = "testing"
))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/web-service.md")]
#[doc = include_str!("../docs/async.md")]
#[doc = include_str!("../docs/guide.md")]
#[doc = include_str!("../docs/scale.md")]
struct Pages;
