//! Object locks, waited for without a connection.

use std::sync::Arc;
use std::time::Instant;

use super::shared::Shared;
use crate::cancel::{CancelGuard, unless_dropped};
use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::object_lock::{events, run};
use crate::poll::{Work, caught};
use crate::pooled::{Borrowed, Connections, discard_if_unusable};
use crate::queue::Queues;
use crate::stop::StopToken;
use crate::transaction::run::{commit_or_rollback_then, roll_back_stopped};
use crate::waiting::{Answer, AtTheEnd, Attempt, RepeatedAttempt, Waiting, repeat};
use crate::{Error, LockRequest, ObjectId, Wait};

/// A request that waits.
pub(super) struct ObjectWait {
    request: Request,
    waiting: Waiting,
    /// Of its queue.
    key: Vec<ObjectId>,
}

impl ObjectWait {
    /// The wait begins now. Without a limit of its own it lasts as long as the pool waits for a connection.
    pub(super) fn new<L: Lender>(
        shared: &Shared<L>,
        stop: Option<&StopToken>,
        mut request: LockRequest,
    ) -> Result<Self, Error> {
        let limit = shared.pool().timeout().min(Wait::LONGEST);
        request.wait.get_or_insert(Wait::AtMost(limit));
        let request = Request::new(request)?;
        Ok(Self {
            waiting: request.waiting()?.stopped_by(stop),
            key: queue_key::<L::Connection>(&request),
            request,
        })
    }
}

fn queue_key<C: HasEngine>(request: &Request) -> Vec<ObjectId> {
    C::LockEngine::queue_key(request)
}

/// A connection whose transaction, or savepoint, holds the locks.
pub(super) struct HeldObjects<'a, L: Lender> {
    conn: Borrowed<L>,
    wait: &'a ObjectWait,
    /// Dropped after the connection, so that the next request finds it in the pool.
    _notify: NotifyOnDrop<'a>,
}

/// Waits for the locks, and begins a transaction that holds them. The caller runs the work, without an await in between.
pub(super) async fn begin<'a, L: Lender>(
    shared: &'a Shared<L>,
    wait: &'a ObjectWait,
) -> Result<HeldObjects<'a, L>, Error> {
    let acquired = acquire(shared, wait).await;
    let outcome = acquired.as_ref().map(|_| LockOutcome::Acquired);
    events::record(&wait.request, outcome);
    Ok(HeldObjects {
        conn: acquired?,
        wait,
        _notify: NotifyOnDrop {
            queues: &shared.queues,
            key: &wait.key,
        },
    })
}

async fn acquire<L: Lender>(shared: &Shared<L>, wait: &ObjectWait) -> Result<Borrowed<L>, Error> {
    let ObjectWait {
        request,
        waiting,
        key,
    } = wait;
    let queues = &shared.queues;
    let ticket = if request.wait == Wait::No {
        queues.independent(key.clone())
    } else {
        queues.join_target(key.clone(), (), 1)
    };
    let number = waiting.stop().zip(ticket.number());
    let _registration = number.map(|(stop, number)| {
        let (queues, key) = (Arc::clone(queues), key.clone());
        stop.on_stop(move || queues.wake(key.as_slice(), number))
    });
    let attempt = PooledAttempt {
        connections: &shared.connections,
        waiting,
        request: request.attempt(),
    };
    repeat(waiting, ticket, AtTheEnd::GiveUp, attempt).await
}

impl<L: Lender> HeldObjects<'_, L> {
    /// Runs the work in the transaction, and ends it. Fails without running it for a request that has been stopped.
    pub(super) async fn run<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        for<'r> F: Work<&'r mut L::Connection, Result<T, E>>,
        E: From<Error>,
    {
        let ObjectWait {
            request, waiting, ..
        } = self.wait;
        if let Err(stopped) = waiting.check_stop() {
            roll_back_stopped(&mut *self.conn).await;
            return Err(stopped.into());
        }
        let acquired = Instant::now();
        let mut guard = CancelGuard::after_begin(&mut *self.conn)?;
        let ended = || events::record_released(request, acquired.elapsed());
        let outcome = caught(commit_or_rollback_then(&mut *guard, work, ended)).await;
        guard.finish_with(outcome)
    }
}

/// An attempt to begin a transaction that holds the locks, with a connection that is borrowed for it.
struct PooledAttempt<'a, L> {
    connections: &'a Connections<L>,
    waiting: &'a Waiting,
    request: Request,
}

impl<L: Lender> RepeatedAttempt for PooledAttempt<'_, L> {
    type Timer = <L::Connection as HasEngine>::LockTimer;
    type Target = ();
    type Value = Borrowed<L>;

    /// The key of the queue tells what is waited for.
    async fn target(&mut self) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }

    async fn run(&mut self, _: Attempt) -> Result<Answer<Borrowed<L>>, Error> {
        let mut conn = self.connections.borrow(self.waiting).await?;
        let attempt = Box::pin(attempt(&mut *conn, &self.request));
        match self.waiting.answer::<L::Connection, _>(attempt).await {
            Some(Ok(LockOutcome::Acquired)) => Ok(Answer::Granted(conn)),
            // A limit of the session, or a deadlock with another attempt, has ended the attempt and not the wait.
            Some(Ok(LockOutcome::Unavailable) | Err(Error::LockTimeout { .. })) | None => {
                Ok(Answer::Refused { pause: None })
            }
            Some(Err(error)) => Err(error),
        }
    }
}

async fn attempt<C: HasEngine>(conn: &mut C, request: &Request) -> Result<LockOutcome, Error> {
    let begun = unless_dropped!(conn, |conn| run::begin(conn, request));
    discard_if_unusable(conn, begun)
}

/// Notifies the next request when the transaction has ended, whatever its outcome.
struct NotifyOnDrop<'a> {
    queues: &'a Queues<Vec<ObjectId>, ()>,
    key: &'a [ObjectId],
}

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
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

#[cfg(all(test, feature = "r2d2", feature = "sqlite"))]
mod tests {
    use diesel::SqliteConnection;
    use diesel::r2d2::{ConnectionManager, Pool};

    use super::*;
    use crate::StopToken;
    use crate::poll::{blocking, poll_once};
    use crate::transaction::depth::mark_broken;

    #[test]
    fn stop_takes_precedence_over_the_loss_of_the_connection() {
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        crate::migrate(&mut pool.get().expect("a connection")).expect("no tables yet");
        let shared = Shared::new(pool);
        let stop = StopToken::new();
        let request = LockRequest::new(ObjectId::new("Document", "1"));
        let wait = ObjectWait::new(&shared, Some(&stop), request).expect("a valid request");
        let mut held = poll_once(begin(&shared, &wait)).expect("it is free");
        mark_broken(&mut *held.conn);
        stop.stop();
        let mut work = Some(|_: &mut SqliteConnection| -> Result<(), Error> { panic!("it runs") });
        let outcome = poll_once(held.run(blocking(&mut work)));
        assert!(matches!(outcome, Err(Error::Stopped { .. })), "{outcome:?}");
    }
}
