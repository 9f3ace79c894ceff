//! What happens when the future of a method is dropped before it is ready.

#[cfg(any(
    feature = "async-postgres",
    feature = "async-mysql",
    feature = "_async_pool"
))]
#[cfg_attr(
    not(any(feature = "async-postgres", feature = "async-mysql")),
    allow(dead_code, reason = "SQLite has no cancel requests")
)]
pub(crate) mod background;
#[cfg(feature = "async-postgres")]
pub(crate) mod tls;

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use uuid::Uuid;

use crate::Error;
#[cfg(feature = "_pool")]
use crate::activity::Activity;
use crate::engine::HasEngine;
use crate::semaphore::backend::SemaphoreBackend;
use crate::transaction::backend::TransactionBackend;
use crate::transaction::depth::{self, depth, mark_broken};

/// A connection while a method of this crate uses it. If the guard is dropped before [`finish_with`](Self::finish_with), it
/// ends what the method has started on the server: see [`TransactionBackend::abandon`].
///
/// The future of the method owns the guard, and borrows the connection from it for everything that it sends. So when the
/// future is dropped, what it was waiting for is dropped first.
pub(crate) struct CancelGuard<'c, C: HasEngine> {
    conn: &'c mut C,
    /// The number of open transactions before the method.
    depth: u32,
    /// A lease that may be committed.
    lease: Option<(&'c str, Uuid)>,
    finished: bool,
}

impl<'c, C: HasEngine> CancelGuard<'c, C> {
    /// Fails on a connection that is marked as broken.
    pub(crate) fn new(conn: &'c mut C) -> Result<Self, Error> {
        let depth = depth(conn)?;
        Ok(Self {
            conn,
            depth,
            lease: None,
            finished: false,
        })
    }

    /// [`new`](Self::new) after the method has begun a transaction or savepoint, without an await in between.
    pub(crate) fn after_begin(conn: &'c mut C) -> Result<Self, Error> {
        let mut guard = Self::new(conn)?;
        guard.depth = guard.depth.saturating_sub(1);
        Ok(guard)
    }

    /// Ends what a method has started on the server since the connection had `depth` open transactions. Its future has been dropped.
    pub(crate) fn abandon(conn: &'c mut C, depth: u32) {
        drop(Self {
            conn,
            depth,
            lease: None,
            finished: false,
        });
    }

    /// Has a slot released that may have been acquired with this token when the future is dropped.
    pub(crate) fn release_slot_of(&mut self, semaphore: &'c str, token: Uuid) {
        self.lease = Some((semaphore, token));
    }

    /// The method has ended, and with it all that it has started, also if it has panicked.
    pub(crate) fn finish_with<T>(mut self, outcome: thread::Result<T>) -> T {
        self.finished = match &outcome {
            Ok(_) => true,
            // A lease may have been committed before the panic.
            Err(_) => {
                self.lease.is_none()
                    && depth::counted(self.conn).is_ok_and(|depth| depth == self.depth)
            }
        };
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<C: HasEngine> Deref for CancelGuard<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.conn
    }
}

impl<C: HasEngine> DerefMut for CancelGuard<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.conn
    }
}

impl<C: HasEngine> Drop for CancelGuard<'_, C> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let undo = self.lease.map(|(semaphore, token)| {
            C::LockEngine::release_unused_statement(semaphore, token.as_bytes())
        });
        // The application's instrumentation sees what is sent, and may panic. A panic here could end the process.
        let abandoned = catch_unwind(AssertUnwindSafe(|| {
            C::LockEngine::abandon(self.conn, self.depth, undo.as_deref());
        }));
        if abandoned.is_err() {
            tracing::error!(
                target: "diesel_locks::cancel",
                "the instrumentation of a connection panicked: what a dropped future has left ends with the connection"
            );
            let _ = catch_unwind(AssertUnwindSafe(|| mark_broken(self.conn)));
        }
    }
}

/// A future that has an activity count what it leaves when it is dropped, until that has ended. Not an `async fn`, whose future
/// would have room for the one that it gets beside the box in which it puts it.
#[cfg(feature = "_async_pool")]
pub(crate) fn counted<T, F: Future<Output = T> + Send>(
    activity: &Activity,
    future: F,
) -> background::Counted<F> {
    background::Counted::new(activity, future)
}

/// On connections that block no future is dropped before it is ready.
#[cfg(all(feature = "_pool", not(feature = "_async_pool")))]
pub(crate) fn counted<T, F: Future<Output = T> + Send>(_: &Activity, future: F) -> F {
    future
}

/// Awaits `$work`, in which `$conn` is the connection of a [`CancelGuard`]. A macro, because a closure that returns a future
/// hides whether that is `Send`.
macro_rules! unless_dropped {
    ($guarded:expr, |$conn:ident| $work:expr) => {{
        let mut guard = crate::cancel::CancelGuard::new($guarded)?;
        let $conn = &mut *guard;
        let outcome = crate::poll::caught($work).await;
        guard.finish_with(outcome)
    }};
}
pub(crate) use unless_dropped;
