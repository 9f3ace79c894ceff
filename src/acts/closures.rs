//! Bounds for functions that pass an `async` closure of their caller to a method of this crate.
//!
//! The futures of this crate's methods are `Send`, so those of their closures have to be. The futures of `AsyncFnOnce` and
//! `AsyncFnMut` have no name to require that of; those of these traits have one. Every `async` closure implements them.
//!
//! | closure of | bound |
//! |---|---|
//! | `with_object_lock`, `with_slot`, `with_slots`, `try_..`, also of pools; `try_run` | `Work<.., Future: Send> + Send` |
//! | `run_transaction`, also of pools; `run_as_leader`, `run_on_timer` | `RepeatedWork<.., Future: Send> + Send` |
//!
//! A closure that may be called several times can't change a variable that it captures, because of a limit of `async` closures: use
//! an atomic or a `Mutex`. A closure may borrow, and the future of the function can be spawned:
//!
//! ```
//! use diesel_async::AsyncConnection;
//! use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
//! use diesel_locks::Result;
//! use diesel_locks::closures::Work;
//! use diesel_locks::prelude::*;
//!
//! type Conn = SyncConnectionWrapper<diesel::SqliteConnection>;
//!
//! /// Runs `f` in a transaction that holds the lock on the document.
//! async fn edit<T, F>(conn: &mut Conn, id: &str, f: F) -> Result<T>
//! where
//!     T: Send,
//!     for<'r> F: Work<&'r mut Conn, Result<T>, Future: Send> + Send,
//! {
//!     conn.with_object_lock(ObjectId::new("Document", id), f).await
//! }
//!
//! async fn number(mut conn: Conn, id: String) -> Result<i64> {
//!     let pages = Sequence::new("page").for_key(&id);
//!     edit(&mut conn, &id, async |conn| conn.next_number(&pages).await).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let mut conn = Conn::establish(":memory:").await?;
//! diesel_locks::migrate_async(&mut conn).await?;
//! assert_eq!(tokio::spawn(number(conn, "contract-17".to_owned())).await??, 1);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    not(feature = "_async"),
    allow(
        unreachable_pub,
        reason = "in public signatures of the asynchronous methods"
    )
)]

/// A closure that returns a future.
pub trait Work<T, R>: AsyncFnOnce(T) -> R + FnOnce(T) -> <Self as Work<T, R>>::Future {
    /// The future.
    type Future: Future<Output = R>;
}

impl<F, T, R, Fut> Work<T, R> for F
where
    F: AsyncFnOnce(T) -> R + FnOnce(T) -> Fut,
    Fut: Future<Output = R>,
{
    type Future = Fut;
}

/// [`Work`] that may run several times.
pub trait RepeatedWork<T, R>:
    AsyncFnMut(T) -> R + FnMut(T) -> <Self as RepeatedWork<T, R>>::Future
{
    /// The future.
    type Future: Future<Output = R>;
}

impl<F, T, R, Fut> RepeatedWork<T, R> for F
where
    F: AsyncFnMut(T) -> R + FnMut(T) -> Fut,
    Fut: Future<Output = R>,
{
    type Future = Fut;
}

/// A closure that blocks, as one that returns a future. Borrowed, because each `async` function through which it passes
/// would have room for what it captures.
///
/// # Panics
///
/// In the future, if the closure was called before.
pub(crate) fn blocking<C, R, F: FnOnce(&mut C) -> R>(
    work: &mut Option<F>,
) -> impl for<'r> Work<&'r mut C, R> {
    async move |conn: &mut C| work.take().expect("a closure that was not called")(conn)
}
