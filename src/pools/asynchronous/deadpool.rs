//! diesel-async's pool for deadpool, in whose queue a future waits, and then opens or checks a connection.

use std::future::{pending, poll_fn};
use std::io;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ::deadpool::managed::{Manager, Object, TimeoutType, Timeouts};
use diesel_async::pooled_connection::deadpool::{Pool, PoolError};
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, PoolError as ConnectionError, PoolableConnection,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::Async;
use crate::engine::HasAsyncEngine;
use crate::error::{AsyncPoolError, PoolStep};
use crate::pools::Lending;
use crate::pools::asynchronous::{get, give_back_abandoned, is_in_step, on_task, spawn};
use crate::rt::lock;
use crate::rt::permits::Permit;
use crate::rt::stop_token::StopToken;

/// How long a waiter waits for a connection if the pool sets no time-out: as the other pools by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The pool's own limit is for connections that are in use; it may be zero. Opening and checking one takes longer.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(200);

/// How much longer than the caller's limit a connection is opened, so that it gets into the pool.
pub(crate) const OPENING: Duration = Duration::from_secs(10);

/// A connection of deadpool, which is closed when it is dropped and broken. deadpool would keep it until it lends it again, and
/// the server its transaction, if the client has not read all rows of a statement whose future was dropped (MySQL).
pub struct Lent<M: Manager<Type: PoolableConnection>>(Option<Object<M>>);

const LENT: &str = "an object until it is dropped";

impl<M: Manager<Type: PoolableConnection>> Deref for Lent<M> {
    type Target = M::Type;

    fn deref(&self) -> &M::Type {
        self.0.as_ref().expect(LENT)
    }
}

impl<M: Manager<Type: PoolableConnection>> DerefMut for Lent<M> {
    fn deref_mut(&mut self) -> &mut M::Type {
        self.0.as_mut().expect(LENT)
    }
}

impl<M: Manager<Type: PoolableConnection>> Drop for Lent<M> {
    fn drop(&mut self) {
        if let Some(mut object) = self.0.take() {
            // On SQLite, diesel-async panics while a statement runs on another thread. The pool asks later.
            let broken = catch_unwind(AssertUnwindSafe(|| object.is_broken()));
            if broken.unwrap_or(false) {
                // The pool may open another one.
                drop(Object::take(object));
            }
        }
    }
}

impl<C: HasAsyncEngine + PoolableConnection + 'static> crate::Pool for Pool<C>
where
    AsyncDieselConnectionManager<C>: Manager<Type = C, Error = ConnectionError>,
{
    type Connection = C;
    type Style = Async;
    type Lent = Lent<AsyncDieselConnectionManager<C>>;

    const BLOCKS: bool = false;

    async fn lend(
        &self,
        limit: Duration,
        stop: Option<&StopToken>,
        permit: Option<Permit>,
    ) -> Lending<Self::Lent> {
        let limit = limit.min(self.timeout());
        let awaited = Arc::new(Mutex::new(PoolStep::Queue));
        let longest = limit.saturating_add(OPENING);
        let taken = take_in_turn(self.clone(), longest, Arc::clone(&awaited), permit);
        get(limit, stop, || Some(*lock(&awaited)), taken).await
    }

    fn give_back_abandoned(conn: Self::Lent, permit: Option<Permit>) {
        give_back_abandoned(conn, permit);
    }

    fn droppable<T: Send>(work: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
        C::droppable(work)
    }

    fn spawn(
        _: &str,
        apart: bool,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        spawn(apart, work);
        Ok(())
    }

    fn timeout(&self) -> Duration {
        let timeout = self.timeouts().wait.unwrap_or(DEFAULT_TIMEOUT);
        timeout.max(SHORTEST_TIMEOUT)
    }

    fn max_size(&self) -> usize {
        self.status().max_size
    }
}

/// What a request waits for.
type Step = Arc<Mutex<PoolStep>>;

/// Takes a connection from the pool in a task of its own. If the caller is dropped, the task ends while it waits in the queue,
/// so that it delays no others there. Later it continues until `longest` has passed, and returns the connection to the pool:
/// one that opens more slowly than the caller waits would never be there. It has the permit as long.
async fn take_in_turn<C: HasAsyncEngine + PoolableConnection + 'static>(
    pool: Pool<C>,
    longest: Duration,
    awaited: Step,
    permit: Option<Permit>,
) -> Result<(Lent<AsyncDieselConnectionManager<C>>, Option<Permit>), AsyncPoolError>
where
    AsyncDieselConnectionManager<C>: Manager<Type = C, Error = ConnectionError>,
{
    // The limits of the pool for opening and checking a connection hold as well.
    let timeouts = pool.timeouts();
    let waits = timeouts.wait != Some(Duration::ZERO);
    let mut at_once = timeouts;
    at_once.wait = Some(Duration::ZERO);
    // Fails if it would have to wait in the queue: in its first poll, or later if the connection that it has checked can't be
    // lent.
    let at_once = take(pool.clone(), at_once);
    let queued = take(pool, timeouts);
    let (_caller, caller_left) = oneshot::channel();
    let taken = on_task(timeout(longest, async move {
        let mut at_once = pin!(at_once);
        let first = poll_fn(|context| Poll::Ready(at_once.as_mut().poll(context)));
        let taken = match first.await {
            Poll::Ready(taken) => taken,
            Poll::Pending => {
                *lock(&awaited) = PoolStep::Connect;
                at_once.await
            }
        };
        if waits && matches!(taken, Err(PoolError::Timeout(TimeoutType::Wait))) {
            // Perhaps again.
            *lock(&awaited) = PoolStep::Queue;
            let taken = in_queue(awaited, caller_left, queued).await?;
            return Some(taken.map(|taken| (taken, permit)));
        }
        Some(taken.map(|taken| (taken, permit)))
    }));
    match taken.await {
        Ok(Some(taken)) => Ok(taken?),
        // Only a caller that was dropped gets none.
        Ok(None) => pending().await,
        Err(_) => Err(PoolError::Timeout(TimeoutType::Create).into()),
    }
}

/// Takes a connection that can be lent. Its check may be dropped when the task ends.
fn take<C: HasAsyncEngine + PoolableConnection + 'static>(
    pool: Pool<C>,
    timeouts: Timeouts,
) -> impl Future<Output = Result<Lent<AsyncDieselConnectionManager<C>>, PoolError>> + Send + 'static
where
    AsyncDieselConnectionManager<C>: Manager<Type = C, Error = ConnectionError>,
{
    C::droppable(async move {
        loop {
            let mut lent = Lent(Some(pool.timeout_get(&timeouts).await?));
            if is_in_step(&mut *lent).await {
                return Ok(lent);
            }
        }
    })
}

/// Returns `None` if the caller is dropped while the request is in the queue.
async fn in_queue<T>(
    awaited: Step,
    caller_left: oneshot::Receiver<()>,
    queued: impl Future<Output = T>,
) -> Option<T> {
    let mut queued = pin!(queued);
    let mut caller_left = pin!(caller_left);
    let mut has_joined = false;
    poll_fn(|context| {
        let is_queued = *lock(&awaited) == PoolStep::Queue;
        if is_queued && caller_left.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(taken) = queued.as_mut().poll(context) {
            return Poll::Ready(Some(taken));
        }
        // It joins the queue in its first poll, and nothing but its turn has it polled again.
        if has_joined {
            *lock(&awaited) = PoolStep::Connect;
        }
        has_joined = true;
        Poll::Pending
    })
    .await
}
