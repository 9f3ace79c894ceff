//! Waits for slots without a connection: for leases, and for transactions, which it runs. How often a waiter asks is decided in
//! `acts::slot_queue`, and when in `queue`.

use crate::acts::cancel_guard::{CancelGuard, discard_if_unusable};
use crate::acts::closures::Work;
use crate::acts::events::SlotRequest;
use crate::acts::slot::Acquire;
use crate::acts::slot_attempts::{NO_WAIT, RetryBudget};
use crate::acts::slot_queue::{
    Holders, NotifyOnDrop, Pace, begin_wait, join, max_concurrent, place, turn,
};
use crate::acts::transaction::commit_or_rollback;
use crate::acts::waiting::{Answer, Attempt, Attempts, Waiting};
use crate::engine::HasEngine;
use crate::link::depth::depth;
use crate::pools::connections::{Borrowed, Connections};
use crate::pools::object_waits::Shared;
use crate::rt::caught;
use crate::rt::stop_token::StopToken;
use crate::{Error, LeaseOptions, Pool, Semaphore, Slot, Wait};

/// The connection of the attempt, and the slot of a lease.
type Granted<P> = (Option<Slot>, Borrowed<P>);

/// Leases a slot without waiting; `None` when none is free. The slot is released if the future is dropped.
pub(crate) async fn try_lease<P: Pool>(
    connections: &Connections<P>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(connections, stop, semaphore, Acquire::Lease(lease)).await;
    let outcome = outcome.map(|granted| granted.and_then(|(slot, _)| slot));
    request.record(outcome.as_ref().map(Option::as_ref), |it| Some(it.number));
    outcome
}

/// Leases a slot within a time limit, or until `stop` is stopped. Otherwise as [`try_lease`].
pub(crate) async fn lease<P: Pool>(
    connections: &Connections<P>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
    pace: Pace,
) -> Result<Slot, Error> {
    let request = SlotRequest::new(semaphore);
    let acquire = Acquire::Lease(lease);
    let outcome = poll(connections, stop, semaphore, wait, Some(pace), acquire).await;
    let outcome = outcome.map(|(slot, _)| slot.expect("the slot of a lease"));
    request.record(outcome.as_ref().map(Some), |slot| Some(slot.number));
    outcome
}

/// A connection whose transaction, or savepoint, holds a slot.
pub(crate) struct HeldSlot<'a, P: Pool> {
    conn: Borrowed<P>,
    /// Dropped after the connection, so that the next waiter finds it in the pool. `None` in a savepoint.
    _notify: Option<NotifyOnDrop<'a>>,
}

/// Waits for a slot, and begins a transaction that holds it. The caller runs the work, without an await in between.
pub(crate) async fn begin<'a, P: Pool>(
    shared: &Shared<P>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
    wait: Wait,
) -> Result<HeldSlot<'a, P>, Error> {
    let _counted = shared.slot_waiters.begin();
    let request = SlotRequest::new(semaphore);
    let (connections, acquire) = (&shared.connections, Acquire::Transaction);
    let outcome = poll(connections, stop, semaphore, wait, None, acquire).await;
    request.record(outcome.as_ref().map(Some), |_| None);
    HeldSlot::new(outcome?.1, semaphore)
}

/// [`begin`] without waiting; `None` when no slot is free.
pub(crate) async fn try_begin<'a, P: Pool>(
    shared: &Shared<P>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
) -> Result<Option<HeldSlot<'a, P>>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(&shared.connections, stop, semaphore, Acquire::Transaction).await;
    request.record(outcome.as_ref().map(Option::as_ref), |_| None);
    let granted = outcome?.map(|(_, conn)| HeldSlot::new(conn, semaphore));
    granted.transpose()
}

impl<'a, P: Pool> HeldSlot<'a, P> {
    fn new(mut conn: Borrowed<P>, semaphore: &'a Semaphore) -> Result<Self, Error> {
        let outermost = depth(conn.engine()?.status())? == 1;
        Ok(Self {
            conn,
            _notify: outermost.then(|| NotifyOnDrop::new(semaphore)),
        })
    }

    pub(crate) async fn run<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>>,
        E: From<Error>,
    {
        let mut guard = CancelGuard::after_begin(&mut *self.conn)?;
        let outcome = caught(commit_or_rollback(&mut *guard, None, work, || ())).await;
        guard.finish_with(outcome)
    }
}

/// Makes one attempt when its turn has come, and returns its result with the connection.
async fn once<P: Pool>(
    connections: &Connections<P>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    acquire: Acquire<'_>,
) -> Result<Option<Granted<P>>, Error> {
    let waiting = begin_wait(semaphore, Wait::No)?.stopped_by(stop);
    waiting.check_stop()?;
    let max_concurrent = connections.max_concurrent(max_concurrent(semaphore));
    let _turn = turn(semaphore, max_concurrent).await;
    let mut conn = connections.borrow(&waiting).await?;
    if let Acquire::Lease(_) = acquire {
        conn.begin_to_lease();
    }
    let mut engine = conn.engine()?;
    let granted = acquire.attempt(&mut *engine, semaphore, &waiting, NO_WAIT);
    let granted = granted.await;
    let granted = discard_if_unusable(&mut *engine, granted)?;
    drop(engine);
    Ok(granted.break_value().map(|slot| (slot, conn)))
}

/// Attempts to acquire a slot until it is granted, the time is up or the wait is stopped, in turn with other waiters of this
/// process. Returns what was granted with the connection of the attempt.
async fn poll<P: Pool>(
    connections: &Connections<P>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    wait: Wait,
    timing: Option<Pace>,
    acquire: Acquire<'_>,
) -> Result<Granted<P>, Error> {
    let waiting = &begin_wait(semaphore, wait)?.stopped_by(stop);
    let max_concurrent = connections.max_concurrent(max_concurrent(semaphore));
    let mut attempts = Attempts::borrowing(waiting, place(semaphore));
    let mut holders = Holders::new(timing);
    // It joins its queue when the database is known to the pool. Until then it queries first if nobody waits, and otherwise
    // finds the database out.
    let mut joins = wait != Wait::No;
    let mut queries_first = false;
    if joins && !connections.is_identified() {
        queries_first = attempts.place.query_first(max_concurrent).await;
        if !queries_first {
            attempts.has_begun = true;
        }
    }
    loop {
        if joins && !queries_first {
            let identity = Box::pin(connections.database_id(waiting));
            let identity = waiting.answer(P::Connection::IN_PROCESS, identity).await;
            // When its time is up, it asks once, on its own.
            match identity.unwrap_or(Ok(None)) {
                Ok(database) => {
                    let place = &mut attempts.place;
                    join(place, semaphore, database, max_concurrent, timing, false);
                    joins = false;
                }
                Err(error) => {
                    attempts.place.stay_alone();
                    attempts.failed(error)?;
                    attempts.next().await?;
                    continue;
                }
            }
        }
        let attempt = attempts.next().await?;
        let answer = async {
            let conn = connections.borrow(waiting).await?;
            let asked = ask(
                connections,
                conn,
                semaphore,
                waiting,
                &mut holders,
                acquire,
                attempt,
            );
            let answer = waiting
                .answer(P::Connection::IN_PROCESS, Box::pin(asked))
                .await;
            // No answer is no refusal, which would count for the others of the queue too.
            answer.unwrap_or_else(|| Err(waiting.timed_out(None)))
        };
        if let Some(granted) = attempts.after(answer.await)? {
            return Ok(granted);
        }
        queries_first = false;
    }
}

/// Looks whether a slot may be free, and attempts to acquire it.
async fn ask<P: Pool>(
    connections: &Connections<P>,
    mut conn: Borrowed<P>,
    semaphore: &Semaphore,
    waiting: &Waiting,
    holders: &mut Holders,
    acquire: Acquire<'_>,
    attempt: Attempt,
) -> Result<Answer<Granted<P>>, Error> {
    let mut engine = conn.engine()?;
    let look = holders.look(&mut *engine, semaphore, waiting, attempt);
    let pause = look.await;
    let pause = discard_if_unusable(&mut *engine, pause)?;
    if pause.is_some() {
        connections.refresh_identity(&mut *engine).await?;
        return Ok(Answer::Continue(pause));
    }
    let budget = RetryBudget::of(waiting, attempt);
    drop(engine);
    if let Acquire::Lease(_) = acquire {
        conn.begin_to_lease();
    }
    let mut engine = conn.engine()?;
    let granted = acquire.attempt(&mut *engine, semaphore, waiting, budget);
    let granted = granted.await;
    match discard_if_unusable(&mut *engine, granted) {
        Ok(Answer::Break(slot)) => {
            drop(engine);
            Ok(Answer::Break((slot, conn)))
        }
        Err(error) if !waiting.outlasts(&error) => Err(error),
        refused => {
            connections.refresh_identity(&mut *engine).await?;
            refused.map(|_| Answer::Continue(None))
        }
    }
}
