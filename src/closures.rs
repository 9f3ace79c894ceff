//! Bounds for functions that pass an `async` closure of their caller to a method of this crate.
//!
//! The futures of this crate's methods are `Send`, and so the futures of their closures have to be. `AsyncFnOnce` and
//! `AsyncFnMut` can't require it. The traits of this module name the future: `Work<.., Future: Send>`. Every `async`
//! closure implements them. Write both bounds: from `AsyncFnOnce` the compiler infers the type of the closure's argument.
//!
//! | closure of | bounds |
//! |---|---|
//! | `with_object_lock`, `with_slot`, `try_..`, also of pools; `try_run` | `AsyncFnOnce`, [`Work`] |
//! | `run_transaction`, `run_as_leader`, `run_on_timer` | `AsyncFnMut`, [`RepeatedWork`] |
//!
//! A closure that is passed to such a function may borrow, and the future of the function can be spawned:
//!
//! ```
//! use diesel::prelude::*;
//! use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
//! use diesel_async::{AsyncConnection, RunQueryDsl};
//! use diesel_locks::Result;
//! use diesel_locks::closures::Work;
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
//!     for<'r> F: AsyncFnOnce(&'r mut Conn) -> Result<T>
//!         + Work<&'r mut Conn, Result<T>, Future: Send>
//!         + Send,
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

pub use crate::poll::{RepeatedWork, Work};
