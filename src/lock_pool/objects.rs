//! Object locks, waited for without a connection.

use std::sync::Arc;
use std::time::Instant;

use diesel::r2d2::R2D2Connection;

use super::LockPool;
use crate::engine::HasBlockingEngine;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::LockOutcome;
use crate::object_lock::backend::ObjectLockBackend;
use crate::object_lock::events;
use crate::object_lock::run::begin;
use crate::poll::blocking;
use crate::pooled::{Borrowed, Connections};
use crate::queue::Queues;
use crate::transaction::run::{commit_or_rollback_then, roll_back};
use crate::waiting::{Answer, AtTheEnd, Attempt, RepeatedAttempt, Waiting, repeat};
use crate::{Error, LockRequest, ObjectId, ObjectLockExt, Wait};

impl<C: ObjectLockExt + R2D2Connection + 'static> LockPool<C> {
    /// Locks one object, or several ([`LockRequest::all`]), with a connection of the pool, calls `f` in the transaction that
    /// holds the locks, and commits it. Waits without a connection while another transaction holds one of the locks.
    ///
    /// `f`, the transaction and its errors are as with
    /// [`ObjectLockExt::with_object_lock`](crate::ObjectLockExt::with_object_lock) outside a transaction. `f` gets the connection
    /// that holds the locks; a call of this method in `f` takes another connection, and may wait for the locks of `f`
    /// until its time is up.
    ///
    /// `f` is not called for a request that has been stopped. A stop while `f` runs has no effect.
    ///
    /// # Errors
    ///
    /// Those of [`ObjectLockExt::with_object_lock`](crate::ObjectLockExt::with_object_lock), and before `f`:
    ///
    /// - [`Error::LockTimeout`] when the time is up;
    /// - [`Error::Stopped`] within 50 ms of a stop, and the time of one attempt if one is running;
    /// - [`Error::Pool`] when the pool has no connection for an attempt without a wait before it, within its time-out, or
    ///   within the time of the request (at least 200 ms) if that is shorter.
    pub fn with_object_lock<T, E, F>(&self, request: impl Into<LockRequest>, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut C) -> Result<T, E>,
        E: From<Error>,
    {
        let _active = self.activity().begin();
        let mut request = request.into();
        let limit = self.pool().connection_timeout().min(Wait::LONGEST);
        request.wait.get_or_insert(Wait::AtMost(limit));
        let request = Request::new(request)?;
        let waiting = request.waiting()?.stopped_by(self.stop.as_ref());
        let key = C::LockEngine::queue_key(&request);
        // Dropped after the connection, so that the next request finds it in the pool.
        let mut notify = NotifyOnDrop {
            queues: &self.shared.queues,
            key: &key,
            acquired: false,
        };
        let mut conn = self.begin(&request, &waiting, &key)?;
        notify.acquired = true;
        if let Err(stopped) = waiting.check_stop() {
            C::block_on(roll_back(&mut *conn));
            return Err(stopped.into());
        }
        let acquired = Instant::now();
        C::block_on(commit_or_rollback_then(
            &mut *conn,
            blocking(&mut Some(f)),
            || {
                events::record_released(&request, acquired.elapsed());
            },
        ))
    }

    /// Waits for the locks, and returns the connection whose transaction holds them.
    fn begin(
        &self,
        request: &Request,
        waiting: &Waiting,
        key: &[ObjectId],
    ) -> Result<Borrowed<C>, Error> {
        let acquired = self.wait(request, waiting, key);
        let outcome = acquired.as_ref().map(|_| LockOutcome::Acquired);
        events::record(request, outcome);
        acquired
    }

    fn wait(
        &self,
        request: &Request,
        waiting: &Waiting,
        key: &[ObjectId],
    ) -> Result<Borrowed<C>, Error> {
        let queues = &self.shared.queues;
        let ticket = if request.wait == Wait::No {
            queues.independent(key.to_vec())
        } else {
            queues.join(key.to_vec(), 1, |()| true)
        };
        let number = waiting.stop().zip(ticket.number());
        let _registration = number.map(|(stop, number)| {
            let (queues, key) = (Arc::clone(queues), key.to_vec());
            stop.on_stop(move || queues.wake(key.as_slice(), number))
        });
        let attempt = PooledAttempt {
            connections: &self.shared.connections,
            waiting,
            request: request.attempt(),
        };
        C::block_on(repeat(waiting, ticket, AtTheEnd::GiveUp, attempt))
    }
}

/// An attempt to begin a transaction that holds the locks, with a connection that is borrowed for it.
struct PooledAttempt<'a, C: R2D2Connection + 'static> {
    connections: &'a Connections<C>,
    waiting: &'a Waiting,
    request: Request,
}

impl<C: HasBlockingEngine + R2D2Connection + 'static> RepeatedAttempt for PooledAttempt<'_, C> {
    type Timer = C::LockTimer;
    type Target = ();
    type Value = Borrowed<C>;

    /// The key of the queue tells what is waited for.
    async fn target(&mut self) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }

    async fn run(&mut self, _: Attempt) -> Result<Answer<Borrowed<C>>, Error> {
        let mut conn = self.connections.borrow(self.waiting)?;
        match begin(&mut *conn, &self.request).await {
            Ok(LockOutcome::Acquired) => Ok(Answer::Granted(conn)),
            // A limit of the session, or a deadlock with another attempt, has ended the attempt and not the wait.
            Ok(LockOutcome::Unavailable) | Err(Error::LockTimeout { .. }) => {
                Ok(Answer::Refused { pause: None })
            }
            Err(error) => Err(error),
        }
    }
}

/// Notifies the next request when the transaction has ended, whatever its outcome.
struct NotifyOnDrop<'a> {
    queues: &'a Queues<Vec<ObjectId>, ()>,
    key: &'a [ObjectId],
    acquired: bool,
}

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        if self.acquired {
            self.queues.notify_released(self.key, 1, None);
            // Requests for one of these objects wait in a queue of their own.
            if self.key.len() > 1 {
                for id in self.key {
                    self.queues
                        .notify_released(std::slice::from_ref(id), 1, None);
                }
            }
        }
    }
}
