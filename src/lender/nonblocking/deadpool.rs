//! diesel-async's pool for deadpool.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::for_each_connection;

/// How long a waiter waits for a connection if the pool sets no time-out: as the other pools by default.
const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// The pool's own limit is for connections that are in use; it may be zero. Opening and checking one takes longer.
const SHORTEST_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(200);

/// How much longer than the caller's limit a connection is opened, so that it gets into the pool.
pub(super) const OPENING: std::time::Duration = std::time::Duration::from_secs(10);

/// A connection of deadpool, which is closed when it is dropped and broken. deadpool would keep it until it lends it again, and
/// the server its transaction, if the client has not read all rows of a statement whose future was dropped (MySQL).
pub struct Lent<O: PoolObject>(Option<O>);

/// deadpool's handle to a connection.
pub trait PoolObject: DerefMut {
    /// Whether the pool would not lend the connection again.
    fn is_broken(&mut self) -> bool;

    /// Closes the connection. The pool may open another one.
    fn close(self);
}

const LENT: &str = "an object until it is dropped";

impl<O: PoolObject> Deref for Lent<O> {
    type Target = O::Target;

    fn deref(&self) -> &O::Target {
        self.0.as_ref().expect(LENT)
    }
}

impl<O: PoolObject> DerefMut for Lent<O> {
    fn deref_mut(&mut self) -> &mut O::Target {
        self.0.as_mut().expect(LENT)
    }
}

impl<O: PoolObject> Drop for Lent<O> {
    fn drop(&mut self) {
        if let Some(mut object) = self.0.take() {
            // On SQLite, diesel-async panics while a statement runs on another thread. The pool asks later.
            let broken = catch_unwind(AssertUnwindSafe(|| object.is_broken()));
            if broken.unwrap_or(false) {
                object.close();
            }
        }
    }
}

macro_rules! implement {
    ($conn:ty) => {
        impl crate::lender::Lender for diesel_async::pooled_connection::deadpool::Pool<$conn> {
            type Connection = $conn;
            type Lent = Lent<diesel_async::pooled_connection::deadpool::Object<$conn>>;

            async fn lend(
                &self,
                limit: std::time::Duration,
                stop: Option<&crate::StopToken>,
            ) -> Result<Option<Self::Lent>, crate::Error> {
                use ::deadpool::managed::TimeoutType;
                use diesel_async::pooled_connection::deadpool::PoolError;

                use super::in_turn::{Progress, Request};
                use crate::error::AsyncPoolError;
                use crate::link::Link;

                let started = std::time::Instant::now();
                let limit = limit.min(self.timeout());
                let progress = Progress::default();
                let step = || Some(progress.step());
                super::get(limit, stop, step, async {
                    // The limits of the pool for opening and checking a connection hold as well.
                    let timeouts = self.timeouts();
                    let waits = timeouts.wait != Some(std::time::Duration::ZERO);
                    let mut at_once = timeouts;
                    at_once.wait = Some(std::time::Duration::ZERO);
                    let take = |timeouts| {
                        let pool = self.clone();
                        // A check of a connection may be dropped when the task ends.
                        <$conn as Link>::droppable(async move {
                            loop {
                                let mut lent = Lent(Some(pool.timeout_get(&timeouts).await?));
                                if super::is_in_step(&mut *lent).await {
                                    return Ok(lent);
                                }
                            }
                        })
                    };
                    let request = Request {
                        at_once: take(at_once),
                        is_busy: move |taken: &Result<_, _>| {
                            waits && matches!(taken, Err(PoolError::Timeout(TimeoutType::Wait)))
                        },
                        queued: take(timeouts),
                    };
                    let longest = limit.saturating_add(OPENING);
                    let taken =
                        super::in_turn::on_task_in_turn(longest, progress.clone(), request).await;
                    let timed_out = || AsyncPoolError::TimedOut {
                        waited: Some(started.elapsed()),
                        step: step(),
                    };
                    let taken = taken.map_err(|_| timed_out())?;
                    taken.map_err(|error| match error {
                        PoolError::Timeout(_) => timed_out(),
                        error => error.into(),
                    })
                })
                .await
            }

            fn give_back_abandoned<K: Send + 'static>(conn: Self::Lent, kept: K) {
                super::give_back_abandoned(conn, kept);
            }

            fn timed_out(&self, waited: std::time::Duration) -> Option<crate::Error> {
                Some(super::timed_out(waited))
            }

            fn timeout(&self) -> std::time::Duration {
                let timeout = self.timeouts().wait.unwrap_or(DEFAULT_TIMEOUT);
                timeout.max(SHORTEST_TIMEOUT)
            }

            fn max_size(&self) -> usize {
                self.status().max_size
            }
        }

        impl crate::AsyncPool for diesel_async::pooled_connection::deadpool::Pool<$conn> {}

        impl PoolObject for diesel_async::pooled_connection::deadpool::Object<$conn> {
            fn is_broken(&mut self) -> bool {
                diesel_async::pooled_connection::PoolableConnection::is_broken(&mut **self)
            }

            fn close(self) {
                drop(Self::take(self));
            }
        }
    };
}

for_each_connection!(implement);
