//! Waits for object locks without a connection, and runs the transactions that hold them.

use std::sync::Arc;
use std::time::Instant;

use crate::acts::cancel_guard::{CancelGuard, unless_dropped};
use crate::acts::closures::Work;
use crate::acts::events;
use crate::acts::object_lock;
use crate::acts::transaction::{commit_or_rollback, roll_back_stopped};
use crate::acts::waiting::{Answer, Attempts, Waiting};
use crate::engine::HasEngine;
use crate::error::limits::LONGEST_WAIT;
use crate::pools::connections::{Borrowed, Connections};
use crate::queue::{MAX_POLL_INTERVAL, Options, Queues};
use crate::rt::activity::Activity;
use crate::rt::caught;
use crate::rt::stop_token::StopToken;
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, LockRequest, ObjectId, Pool, Wait};

pub(crate) struct Shared<P> {
    pub(crate) connections: Connections<P>,
    /// The requests that wait for object locks, by the objects.
    queues: Arc<Queues>,
    /// Those that wait for a slot. Their queues belong to the process.
    pub(crate) slot_waiters: Activity,
}

impl<P> Shared<P> {
    pub(crate) fn new(pool: P) -> Self {
        Self {
            connections: Connections::new(pool),
            queues: Queues::new(true),
            slot_waiters: Activity::default(),
        }
    }

    pub(crate) fn pool(&self) -> &P {
        self.connections.pool()
    }

    /// How many requests wait for a lock or a slot, or make an attempt.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.waiting() + self.slot_waiters.counts().running
    }
}

pub(crate) struct ObjectWait {
    request: Request,
    waiting: Waiting,
    /// For which it queues: nothing where one lock is for all objects.
    ids: Vec<ObjectId>,
}

impl ObjectWait {
    /// The wait begins now. Without a limit of its own it lasts as long as the pool waits for a connection.
    pub(crate) fn new<P: Pool>(
        shared: &Shared<P>,
        stop: Option<&StopToken>,
        mut request: LockRequest,
    ) -> Result<Self, Error> {
        let limit = shared.pool().timeout().min(LONGEST_WAIT);
        request.wait.get_or_insert(Wait::AtMost(limit));
        Self::of::<P>(stop, Request::new(request)?)
    }

    /// No wait.
    pub(crate) fn without<P: Pool>(
        stop: Option<&StopToken>,
        request: LockRequest,
    ) -> Result<Self, Error> {
        Self::of::<P>(
            stop,
            Request::without_wait(request, "try_with_object_lock")?,
        )
    }

    fn of<P: Pool>(stop: Option<&StopToken>, request: Request) -> Result<Self, Error> {
        Ok(Self {
            waiting: Waiting::new(request.wait, request.resource())?.stopped_by(stop),
            ids: if P::Connection::IN_PROCESS {
                Vec::new()
            } else {
                request.ids.clone()
            },
            request,
        })
    }
}

pub(crate) struct HeldObjects<'a, P: Pool> {
    conn: Borrowed<P>,
    wait: &'a ObjectWait,
    /// Dropped after the connection, so that the next request finds it in the pool.
    _notify: NotifyOnDrop<'a>,
}

/// Waits for the locks, and begins a transaction that holds them. The caller runs the work, without an await in between.
pub(crate) async fn begin<'a, P: Pool>(
    shared: &'a Shared<P>,
    wait: &'a ObjectWait,
) -> Result<HeldObjects<'a, P>, Error> {
    let acquired = acquire(shared, wait).await;
    let outcome = acquired.as_ref().map(|_| LockOutcome::Acquired);
    events::record_locks(&wait.request, outcome);
    Ok(HeldObjects {
        conn: acquired?,
        wait,
        _notify: NotifyOnDrop {
            queues: &shared.queues,
            ids: &wait.ids,
        },
    })
}

/// [`begin`] of a request that does not wait; `None` when another transaction holds one of the locks.
pub(crate) async fn try_begin<'a, P: Pool>(
    shared: &'a Shared<P>,
    wait: &'a ObjectWait,
) -> Result<Option<HeldObjects<'a, P>>, Error> {
    match begin(shared, wait).await {
        Err(Error::Unavailable { .. }) => Ok(None),
        begun => begun.map(Some),
    }
}

async fn acquire<P: Pool>(shared: &Shared<P>, wait: &ObjectWait) -> Result<Borrowed<P>, Error> {
    let ObjectWait {
        request,
        waiting,
        ids,
    } = wait;
    let mut attempts = Attempts::borrowing(waiting, shared.queues.place(queue_of(ids)));
    if request.wait != Wait::No {
        let options = Options {
            connected: false,
            longest_pause: MAX_POLL_INTERVAL,
        };
        attempts.place.join("", 1, options);
    }
    let request = request.attempt();
    loop {
        attempts.next().await?;
        let answer = attempt(&shared.connections, waiting, &request).await;
        if let Some(conn) = attempts.after(answer)? {
            return Ok(conn);
        }
    }
}

/// Attempts to begin a transaction that holds the locks, with a connection that is borrowed for it.
async fn attempt<P: Pool>(
    connections: &Connections<P>,
    waiting: &Waiting,
    request: &Request,
) -> Result<Answer<Borrowed<P>>, Error> {
    let mut conn = connections.borrow(waiting).await?;
    let mut engine = conn.engine()?;
    let begun = Box::pin(async move {
        unless_dropped!(borrowed &mut *engine, |engine| object_lock::begin(engine, request))
    });
    match waiting.answer(P::Connection::IN_PROCESS, begun).await {
        Some(Ok(LockOutcome::Acquired)) => Ok(Answer::Break(conn)),
        Some(Ok(LockOutcome::Unavailable)) => Ok(Answer::Continue(None)),
        // A limit of the session, or a deadlock with another attempt, has ended the attempt and not the wait.
        Some(Err(error)) if waiting.outlasts(&error) => Ok(Answer::Continue(None)),
        Some(Err(error)) => Err(error),
        // Not a refusal, which would count for the others of the queue too.
        None => Err(waiting.timed_out(None)),
    }
}

impl<P: Pool> HeldObjects<'_, P> {
    pub(crate) async fn run<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>>,
        E: From<Error>,
    {
        let ObjectWait {
            request, waiting, ..
        } = self.wait;
        if let Err(stopped) = waiting.check_stop() {
            roll_back_stopped(&mut *self.conn.engine()?).await;
            return Err(stopped.into());
        }
        let acquired = Instant::now();
        let mut guard = CancelGuard::after_begin(&mut *self.conn)?;
        let ended = || events::record_locks_released(request, acquired.elapsed());
        let outcome = caught(commit_or_rollback(&mut *guard, work, ended)).await;
        guard.finish_with(outcome)
    }
}

/// The name of the queue for these objects together. Their texts are quoted, so that others have another name.
fn queue_of(ids: &[ObjectId]) -> String {
    format!("{ids:?}")
}

struct NotifyOnDrop<'a> {
    queues: &'a Arc<Queues>,
    ids: &'a [ObjectId],
}

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        // Without a waiter the names of the queues, thousands at most, are not needed. A new request queries the database first.
        if self.queues.waiting() == 0 {
            return;
        }
        self.queues.notify_released(&queue_of(self.ids), 1, None);
        // Requests for one of these objects wait in a queue of their own.
        if self.ids.len() > 1 {
            for id in self.ids.chunks(1) {
                self.queues.notify_released(&queue_of(id), 1, None);
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
    use crate::acts::closures::blocking;
    use crate::link::depth::mark_broken;
    use crate::rt::block_on;

    #[test]
    fn stop_takes_precedence_over_the_loss_of_the_connection() {
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        crate::migrate(&mut pool.get().expect("a connection")).expect("no tables yet");
        let shared = Shared::new(pool);
        let stop = StopToken::new();
        let request = LockRequest::new(ObjectId::new("Document", "1"));
        let wait = ObjectWait::new(&shared, Some(&stop), request).expect("a valid request");
        let mut held = block_on(begin(&shared, &wait)).expect("it is free");
        mark_broken(held.conn.engine().expect("an engine").status());
        stop.stop();
        let mut work = Some(|_: &mut SqliteConnection| -> Result<(), Error> { panic!("it runs") });
        let outcome = block_on(held.run(blocking(&mut work)));
        assert!(matches!(outcome, Err(Error::Stopped { .. })), "{outcome:?}");
    }
}
