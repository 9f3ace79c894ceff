//! Bounds for functions that pass an `async` closure of their caller to a method of this crate.
//!
//! The futures of this crate's methods are `Send`, so those of their closures have to be. `AsyncFnOnce` and `AsyncFnMut` can't
//! require it; these traits do. Every `async` closure with such a future implements them.
//!
//! | closure of | bound |
//! |---|---|
//! | `with_object_lock`, `with_slot`, `try_..`, also of pools; `try_run` | [`SendWork`] |
//! | `run_transaction`, `run_as_leader`, `run_on_timer` | [`RepeatedSendWork`] |
//!
//! A closure that is passed to such a function may borrow, and the future of the function can be spawned:
//!
//! ```
//! use diesel::prelude::*;
//! use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
//! use diesel_async::{AsyncConnection, RunQueryDsl};
//! use diesel_locks::Result;
//! use diesel_locks::closures::SendWork;
//! use diesel_locks::prelude::*;
//!
//! diesel::table! { documents (id) { id -> Text, version -> Integer } }
//!
//! type Conn = SyncConnectionWrapper<SqliteConnection>;
//!
//! /// Runs `f` in a transaction that holds the lock on the document.
//! async fn edit<T, F>(conn: &mut Conn, id: &str, f: F) -> Result<T>
//! where
//!     T: Send,
//!     for<'r> F: SendWork<&'r mut Conn, Result<T>>,
//! {
//!     conn.with_object_lock(ObjectId::new("Document", id), f).await
//! }
//!
//! async fn store(mut conn: Conn, id: String) -> Result<usize> {
//!     edit(&mut conn, &id, async |conn| {
//!         let row = (documents::id.eq(&id), documents::version.eq(1)); // borrows `id`
//!         Ok(diesel::insert_into(documents::table).values(row).execute(conn).await?)
//!     })
//!     .await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let mut conn = Conn::establish(":memory:").await?;
//! diesel_locks::migrate_async(&mut conn).await?;
//! # diesel::sql_query("CREATE TABLE documents (id TEXT PRIMARY KEY, version INTEGER NOT NULL)").execute(&mut conn).await?;
//! let stored = tokio::spawn(store(conn, "contract-17".to_owned())).await??;
//! assert_eq!(stored, 1);
//! # Ok(())
//! # }
//! ```

use crate::acts::work::{RepeatedWork, Work};

/// An `async` closure whose future is `Send`.
pub trait SendWork<T, R>: Work<T, R, Future: Send> + Send {}

impl<F: Work<T, R, Future: Send> + Send, T, R> SendWork<T, R> for F {}

/// [`SendWork`] that may be called several times.
pub trait RepeatedSendWork<T, R>: RepeatedWork<T, R, Future: Send> + Send {}

impl<F: RepeatedWork<T, R, Future: Send> + Send, T, R> RepeatedSendWork<T, R> for F {}
