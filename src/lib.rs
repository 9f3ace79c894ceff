//! Object locks, semaphores, gap-free sequences and retried transactions as methods on Diesel connections:
//! PostgreSQL, MySQL, MariaDB, SQLite.
//!
//! An object lock is an exclusive lock on a business object for one transaction. The object need not exist in any table.
//! Servers that share a database use it so that only one of them handles a document, order or account at a time.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
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
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! A semaphore limits the number of concurrent holders across all servers. A holder has a lease, which expires, can be
//! renewed and carries a fencing token, or holds a slot for one transaction.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use diesel::prelude::*;
//! # use std::time::Duration;
//! use diesel_locks::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:")?;
//! # diesel_locks::migrate(&mut conn)?;
//!
//! const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
//!
//! if let Some(slot) = conn.try_acquire_slot(&COLLATE, LeaseOptions::new(Duration::from_secs(30)))? {
//!     // One of at most ten.
//!     conn.release_slot(slot)?;
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! A number of a gap-free sequence belongs to the transaction that drew it. A transaction has an isolation level, and is
//! retried when the database aborts it.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use diesel::prelude::*;
//! use diesel_locks::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:")?;
//! # diesel_locks::migrate(&mut conn)?;
//!
//! let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));
//! let number = conn.run_transaction(retried, |conn| {
//!     conn.next_number(&Sequence::new("pass").for_key(4711)) // of the meeting 4711
//! })?;
//! assert_eq!(number, 1);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! # Organization
//!
//! - [`ObjectLockExt`]: the methods for object locks. Start there: when they block, what they return, what differs per
//!   engine. Their arguments: [`ObjectId`], [`LockRequest`], [`Wait`], [`Retention`].
//! - [`SemaphoreExt`]: the methods for semaphores. Their arguments and results: [`Semaphore`], [`LeaseOptions`],
//!   [`Slot`]. With the feature `r2d2`, a `SlotRenewer` renews slots in the background; a `SlotGuard`
//!   holds one.
//! - [`SequenceExt`]: the methods for gap-free numbers of a [`Sequence`].
//! - [`TransactionExt`]: [`TransactionOptions`] with [`IsolationLevel`] and [`RetryPolicy`]; [`TransactionError`] for the
//!   application's own error type.
//! - [`Error`]: one error type for all engines. [`Error::find`] finds it inside the application's errors. [`Result`]
//!   names it at a closure.
//! - [`assume_single_writer`]: for a cluster with several writable nodes of which the application uses one.
//! - [`migrate`], [`migrations`]: the tables.
//! - [`prelude`]: what an application imports. [`chrono`] and [`uuid`] are re-exported: their types stand in signatures.
//!
//! # Crate features
//!
//! None is on by default.
//!
//! - `postgres`, `mysql`, `sqlite`: the engines. Each enables Diesel's feature of the same name. `mysql` includes MariaDB.
//! - `r2d2`: Diesel's connection pool. A `PooledConnection` has the methods through its connection, and closures get that
//!   connection.
//!
//! # Operation
//!
//! - [`_documentation::rights`]: the GRANTs that an application's user needs.
//! - [`_documentation::pgbouncer`]: what to set behind a transaction pooler.
#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, reason = "unused without an engine")
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod backoff;
mod engine;
mod error;
mod limits;
#[cfg(feature = "r2d2")]
mod lock_pool;
mod migrate;
pub mod migrations;
mod name;
mod object_lock;
pub mod prelude;
mod queue;
#[doc(hidden)]
pub mod schema;
mod semaphore;
mod sequence;
mod single_writer;
mod transaction;

pub use chrono;
pub use uuid;

pub use error::{Error, Result};
pub use limits::{MAX_KEPT_IDS, MAX_PERMITS};
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use lock_pool::{LockPool, StopOnDrop, StopToken};
pub use migrate::migrate;
pub use name::{InvalidName, MAX_NAME_CHARS, NameKind};
pub use object_lock::ObjectLockExt;
pub use object_lock::id::{InvalidObjectId, MAX_ID_CHARS, ObjectId};
pub use object_lock::request::{IntoLockRequests, LockRequest, Retention, Wait};
pub use semaphore::SemaphoreExt;
pub use semaphore::definition::Semaphore;
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use semaphore::guard::SlotGuard;
pub use semaphore::lease::LeaseOptions;
#[cfg(feature = "r2d2")]
#[cfg_attr(docsrs, doc(cfg(feature = "r2d2")))]
pub use semaphore::renewer::SlotRenewer;
pub use semaphore::slot::{HeldSlot, LeaseState, Slot};
pub use sequence::SequenceExt;
pub use sequence::definition::Sequence;
pub use single_writer::assume_single_writer;
pub use transaction::TransactionExt;
pub use transaction::isolation_level::IsolationLevel;
pub use transaction::options::TransactionOptions;
pub use transaction::retry::RetryPolicy;
pub use transaction::retryable::TransactionError;

/// Pages on how to operate a database that this crate uses.
pub mod _documentation {
    #[doc = include_str!("../docs/rights.md")]
    pub mod rights {}

    // Its example compiles with these features only; errors link to it.
    #[cfg_attr(
        any(not(doctest), all(feature = "postgres", feature = "r2d2")),
        doc = include_str!("../docs/pgbouncer.md")
    )]
    pub mod pgbouncer {}
}

/// Compiles the examples of the README.
#[cfg(all(doctest, feature = "postgres", feature = "r2d2"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the example of the page on web services.
#[cfg(all(doctest, feature = "postgres", feature = "r2d2"))]
#[doc = include_str!("../docs/web-service.md")]
struct WebService;

/// Compiles the examples of the guide.
#[cfg(all(doctest, feature = "postgres", feature = "r2d2"))]
#[doc = include_str!("../docs/guide.md")]
struct Guide;
