//! Connections of diesel-async, which are awaited; and the last step after a future was dropped (the first is
//! `acts::cancel_guard`): what it has left on the server is ended by the runtime of this crate.

#[cfg(feature = "async-mysql")]
mod mysql;
#[cfg(feature = "async-postgres")]
pub(crate) mod postgres;
#[cfg(feature = "async-sqlite")]
pub(crate) mod sqlite;

#[cfg(feature = "_async_pool")]
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use diesel::QueryResult;
use diesel::connection::TransactionManagerStatus;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::result::Error;
use diesel_async::AsyncConnectionCore;
use futures_util::TryStreamExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;

#[cfg(feature = "_async_pool")]
use crate::link::activity::Activity;
#[cfg(any(feature = "async-postgres", feature = "async-mysql"))]
use crate::rt::task::spawn_apart;

/// The functions of [`Link`] that the connections to PostgreSQL and MySQL have alike. `TransactionManager` is in scope.
#[cfg(any(feature = "async-postgres", feature = "async-mysql"))]
macro_rules! client_server_link {
    () => {
        type Db = <Self as diesel_async::AsyncConnectionCore>::Backend;

        async fn batch(&mut self, sql: &str) -> diesel::QueryResult<()> {
            diesel_async::SimpleAsyncConnection::batch_execute(self, sql).await
        }

        fn status(&mut self) -> &mut diesel::connection::TransactionManagerStatus {
            crate::link::nonblocking::status(self)
        }

        async fn begin(&mut self, sql: &str) -> diesel::QueryResult<()> {
            diesel_async::AnsiTransactionManager::begin_transaction_sql(self, sql).await
        }

        async fn begin_nested(&mut self) -> diesel::QueryResult<()> {
            diesel_async::AnsiTransactionManager::begin_transaction(self).await
        }

        async fn commit(&mut self) -> diesel::QueryResult<()> {
            diesel_async::AnsiTransactionManager::commit_transaction(self).await
        }

        async fn roll_back(&mut self) -> diesel::QueryResult<()> {
            diesel_async::AnsiTransactionManager::rollback_transaction(self).await
        }
    };
}
#[cfg(any(feature = "async-postgres", feature = "async-mysql"))]
use client_server_link;

pub(crate) fn status<C>(conn: &mut C) -> &mut TransactionManagerStatus
where
    C: diesel_async::AsyncConnection,
{
    use diesel_async::TransactionManager;

    C::TransactionManager::transaction_manager_status_mut(conn)
}

/// A future. If it is dropped before it is ready, a function gets it.
pub(crate) struct DroppedBy<F, D: FnMut(Pin<Box<F>>)> {
    future: Option<Pin<Box<F>>>,
    drop: D,
}

impl<F, D: FnMut(Pin<Box<F>>)> DroppedBy<F, D> {
    pub(crate) fn new(future: F, drop: D) -> Self {
        let future = Some(Box::pin(future));
        Self { future, drop }
    }
}

impl<F: Future, D: FnMut(Pin<Box<F>>) + Unpin> Future for DroppedBy<F, D> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // A future that panics can't be polled again, so `drop` must not find it.
        let mut future = self.future.take().expect("a future that was not ready");
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl<F, D: FnMut(Pin<Box<F>>)> Drop for DroppedBy<F, D> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            (self.drop)(future);
        }
    }
}

/// Cancel requests are connections of their own: no more than these at a time.
static REQUESTS: Semaphore = Semaphore::const_new(8);

/// A cancel request that takes longer is given up.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

#[cfg(feature = "_async_pool")]
thread_local! {
    /// What counts the work that is left by a future that is being polled or dropped on this thread.
    static COUNTED_BY: RefCell<Option<Activity>> = const { RefCell::new(None) };
}

/// A future that has an activity count what it leaves when it is dropped, or drops itself, until that has [ended](end_dropped). Not
/// an `async fn`, whose future would have room for the one that it gets beside the box in which it puts it.
#[cfg(feature = "_async_pool")]
pub(crate) fn counted<F: Future + Send>(
    activity: &Activity,
    future: F,
) -> impl Future<Output = F::Output> + Send {
    Counted {
        future: Some(Box::pin(future)),
        activity: activity.clone(),
    }
}

#[cfg(feature = "_async_pool")]
struct Counted<F> {
    future: Option<Pin<Box<F>>>,
    activity: Activity,
}

#[cfg(feature = "_async_pool")]
impl<F> Counted<F> {
    fn count(&self) -> CountedBy {
        CountedBy(COUNTED_BY.replace(Some(self.activity.clone())))
    }
}

#[cfg(feature = "_async_pool")]
impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _count = self.count();
        let future = self.future.as_mut().expect("a future until it is dropped");
        future.as_mut().poll(context)
    }
}

#[cfg(feature = "_async_pool")]
impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        let _count = self.count();
        self.future = None;
    }
}

/// Restores what counts, also after a panic.
#[cfg(feature = "_async_pool")]
struct CountedBy(Option<Activity>);

#[cfg(feature = "_async_pool")]
impl Drop for CountedBy {
    fn drop(&mut self) {
        COUNTED_BY.set(self.0.take());
    }
}

/// Runs the work: it ends what a future has left that is being dropped. [`counted`] counts it.
#[cfg(any(feature = "async-postgres", feature = "async-mysql"))]
pub(crate) fn end_dropped(work: impl Future<Output = ()> + Send + 'static) {
    #[cfg(feature = "_async_pool")]
    let work = {
        let active = COUNTED_BY.with_borrow(|activity| activity.as_ref().map(|it| it.begin(None)));
        async move {
            let _active = active;
            work.await;
        }
    };
    spawn_apart(work);
}

/// Sends a cancel request, in turn with others. It has no effect on a session whose statement has not started, so the caller
/// repeats it. Returns `None` when it took too long.
pub(crate) async fn cancel_in_turn<T>(request: impl Future<Output = T>) -> Option<T> {
    let _turn = REQUESTS.acquire().await.ok()?;
    timeout(LONGEST_REQUEST, request).await.ok()
}

async fn rows<C, Q, T>(conn: &mut C, query: Q) -> QueryResult<Vec<T>>
where
    C: AsyncConnectionCore,
    Q: AsQuery<Query: QueryFragment<C::Backend> + QueryId + Send> + Send,
    C::Backend: QueryMetadata<Q::SqlType>,
    T: FromSqlRow<Q::SqlType, C::Backend> + Send,
{
    let rows = AsyncConnectionCore::load(conn, query).await?;
    rows.and_then(|row| async move { T::build_from_row(&row).map_err(Error::DeserializationError) })
        .try_collect()
        .await
}
