//! Waits for slots without a connection: for leases, and for transactions, which it runs. How often a waiter asks is decided in
//! `acts::slot_queue`, and when in `queue`.

use crate::acts::cancel_guard::CancelGuard;
use crate::acts::closures::Work;
use crate::acts::events::SlotRequest;
use crate::acts::slot::{Acquire, Hold, Lease};
use crate::acts::slot_attempts::{NO_WAIT, RetryBudget};
use crate::acts::slot_queue::{
    Holders, NotifyOnDrop, Pace, begin_wait, join, max_concurrent, place, turn,
};
use crate::acts::transaction::commit_or_rollback;
use crate::acts::waiting::{Answer, Attempt, Attempts, Waiting};
use crate::engine::HasEngine;
use crate::link::depth::depth;
use crate::pools::lender::Lender;
use crate::pools::object_waits::Shared;
use crate::pools::{Borrowed, Connections, discard_if_unusable};
use crate::rt::caught;
use crate::rt::stop_token::StopToken;
use crate::{Error, LeaseOptions, Semaphore, Slot, Wait};

type Granted<L, A> = (<A as Acquire>::Granted, Borrowed<L>);

/// Leases a slot without waiting; `None` when none is free. The slot is released if the future is dropped.
#[cfg_attr(not(feature = "r2d2"), allow(dead_code, reason = "for renewers"))]
pub(crate) async fn try_lease<L: Lender>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(connections, stop, semaphore, Lease(lease)).await;
    let outcome = outcome.map(|granted| granted.map(|(slot, _)| slot));
    request.record(outcome.as_ref().map(Option::as_ref), |it| Some(it.number));
    outcome
}

/// Leases a slot within a time limit, or until `stop` is stopped. Otherwise as [`try_lease`].
#[cfg_attr(not(feature = "r2d2"), allow(dead_code, reason = "for renewers"))]
pub(crate) async fn lease<L: Lender>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
    pace: Pace,
) -> Result<Slot, Error> {
    let request = SlotRequest::new(semaphore);
    let pace = Some(pace);
    let outcome = poll(connections, stop, semaphore, wait, pace, Lease(lease)).await;
    let outcome = outcome.map(|(slot, _)| slot);
    request.record(outcome.as_ref().map(Some), |slot| Some(slot.number));
    outcome
}

/// A connection whose transaction, or savepoint, holds a slot.
pub(crate) struct HeldSlot<'a, L: Lender> {
    conn: Borrowed<L>,
    /// Dropped after the connection, so that the next waiter finds it in the pool. `None` in a savepoint.
    _notify: Option<NotifyOnDrop<'a>>,
}

/// Waits for a slot, and begins a transaction that holds it. The caller runs the work, without an await in between.
pub(crate) async fn begin<'a, L: Lender>(
    shared: &Shared<L>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
    wait: Wait,
) -> Result<HeldSlot<'a, L>, Error> {
    let _counted = shared.slot_waiters.begin();
    let request = SlotRequest::new(semaphore);
    let outcome = poll(&shared.connections, stop, semaphore, wait, None, Hold).await;
    request.record(outcome.as_ref().map(Some), |_| None);
    HeldSlot::new(outcome?.1, semaphore)
}

/// [`begin`] without waiting; `None` when no slot is free.
pub(crate) async fn try_begin<'a, L: Lender>(
    shared: &Shared<L>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
) -> Result<Option<HeldSlot<'a, L>>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = once(&shared.connections, stop, semaphore, Hold).await;
    request.record(outcome.as_ref().map(Option::as_ref), |_| None);
    let granted = outcome?.map(|((), conn)| HeldSlot::new(conn, semaphore));
    granted.transpose()
}

impl<'a, L: Lender> HeldSlot<'a, L> {
    fn new(mut conn: Borrowed<L>, semaphore: &'a Semaphore) -> Result<Self, Error> {
        let outermost = depth(conn.engine()?.status())? == 1;
        Ok(Self {
            conn,
            _notify: outermost.then(|| NotifyOnDrop::new(semaphore)),
        })
    }

    pub(crate) async fn run<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        for<'r> F: Work<&'r mut L::Connection, Result<T, E>>,
        E: From<Error>,
    {
        let mut guard = CancelGuard::after_begin(&mut *self.conn)?;
        let outcome = caught(commit_or_rollback(&mut *guard, work, || ())).await;
        guard.finish_with(outcome)
    }
}

/// Makes one attempt when its turn has come, and returns its result with the connection.
async fn once<L: Lender, A: Acquire>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    mut acquire: A,
) -> Result<Option<Granted<L, A>>, Error> {
    let waiting = begin_wait(semaphore, Wait::No)?.stopped_by(stop);
    waiting.check_stop()?;
    let max_concurrent = connections.max_concurrent(max_concurrent(semaphore));
    let _turn = turn(semaphore, max_concurrent).await;
    let mut conn = connections.borrow(&waiting).await?;
    if A::LEASES {
        conn.begin_to_lease();
    }
    let mut engine = conn.engine()?;
    let granted = acquire.attempt(&mut *engine, semaphore, &waiting, NO_WAIT);
    let granted = granted.await;
    let granted = discard_if_unusable(&mut *engine, granted)?;
    drop(engine);
    Ok(granted.map(|granted| (granted, conn)))
}

/// Attempts to acquire a slot until it is granted, the time is up or the wait is stopped, in turn with other waiters of this
/// process. Returns what was granted with the connection of the attempt.
async fn poll<L: Lender, A: Acquire>(
    connections: &Connections<L>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    wait: Wait,
    timing: Option<Pace>,
    mut acquire: A,
) -> Result<Granted<L, A>, Error> {
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
            let identity = waiting.answer(L::Connection::IN_PROCESS, identity).await;
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
                &mut acquire,
                attempt,
            );
            let answer = waiting
                .answer(L::Connection::IN_PROCESS, Box::pin(asked))
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
async fn ask<L: Lender, A: Acquire>(
    connections: &Connections<L>,
    mut conn: Borrowed<L>,
    semaphore: &Semaphore,
    waiting: &Waiting,
    holders: &mut Holders,
    acquire: &mut A,
    attempt: Attempt,
) -> Result<Answer<Granted<L, A>>, Error> {
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
    if A::LEASES {
        conn.begin_to_lease();
    }
    let mut engine = conn.engine()?;
    let granted = acquire.attempt(&mut *engine, semaphore, waiting, budget);
    let granted = granted.await;
    match discard_if_unusable(&mut *engine, granted) {
        Ok(Some(granted)) => {
            drop(engine);
            Ok(Answer::Break((granted, conn)))
        }
        Err(error) if !waiting.outlasts(&error) => Err(error),
        refused => {
            connections.refresh_identity(&mut *engine).await?;
            refused.map(|_| Answer::Continue(None))
        }
    }
}
