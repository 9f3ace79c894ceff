//! Waits for slots without a connection: for leases, and for transactions, which it runs. How often a waiter asks is decided in
//! `acts::slot_queue`, and when in `queue`.

use std::time::Duration;

use crate::acts::cancel_guard::{CancelGuard, discard_if_unusable};
use crate::acts::closures::Work;
use crate::acts::events::SlotRequest;
use crate::acts::several::Several;
use crate::acts::slot::{Acquire, finish_with_slots};
use crate::acts::slot_attempts::{NO_WAIT, RetryBudget};
use crate::acts::slot_queue::{Holders, NotifyOnDrop, Pace, begin_wait, join, place, turn};
use crate::acts::transaction::commit_or_rollback;
use crate::acts::waiting::{Answer, Attempt, Attempts, Waiting};
use crate::engine::HasEngine;
use crate::link::activity::Active;
use crate::link::depth::depth;
use crate::pools::connections::{Borrowed, Connections};
use crate::pools::object_waits::Shared;
use crate::rt::caught;
use crate::rt::stop_token::StopToken;
use crate::{Error, LeaseOptions, Pool, RequestSubject, Semaphore, Slot, Wait};

/// How long a wait that has ended waits for a connection to release what it keeps.
const GIVE_UP: Duration = Duration::from_millis(200);

/// The connection of the attempt, and the slot of a lease or of several permits.
type Granted<P> = (Option<Slot>, Borrowed<P>);

/// Leases a slot without waiting; `None` when none is free. The slot is released if the future is dropped.
pub(crate) async fn try_lease<P: Pool>(
    connections: &Connections<P>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = async {
        let several = Several::leased(semaphore, lease)?;
        let acquire = Acquire::leased(lease, several.as_ref());
        let granted = once(connections, stop, semaphore, acquire).await?;
        Ok(granted.and_then(|(slot, _)| slot))
    };
    let outcome = outcome.await;
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
    let outcome = async {
        let several = Several::leased(semaphore, lease)?;
        let acquire = Acquire::leased(lease, several.as_ref());
        let granted = poll(connections, stop, semaphore, wait, Some(pace), acquire).await?;
        Ok(granted.0.expect("the slot of a lease"))
    };
    let outcome = outcome.await;
    request.record(outcome.as_ref().map(Some), |slot| Some(slot.number));
    outcome
}

/// A connection whose transaction, or savepoint, holds a slot.
pub(crate) struct HeldSlot<'a, P: Pool> {
    conn: Borrowed<P>,
    /// Those of several permits, which are released after the transaction.
    several: Option<Slot>,
    /// Dropped after the connection, so that the next waiter finds it in the pool. `None` in a savepoint.
    _notify: Option<NotifyOnDrop<'a>>,
    /// Dropped last: a shutdown waits for all of it.
    _active: Active,
}

/// Waits for a slot, and begins a transaction that holds it. The caller runs the work, without an await in between.
pub(crate) async fn begin<'a, P: Pool>(
    shared: &Shared<P>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
    wait: Wait,
) -> Result<HeldSlot<'a, P>, Error> {
    let subject = RequestSubject::slots(semaphore, 1);
    let active = shared.activity.begin(Some(subject));
    let request = SlotRequest::new(semaphore);
    let (connections, acquire) = (&shared.connections, Acquire::Transaction);
    let outcome = poll(connections, stop, semaphore, wait, None, acquire).await;
    request.record(outcome.as_ref().map(Some), |_| None);
    HeldSlot::new(outcome?, semaphore, active)
}

/// [`begin`] with several permits.
pub(crate) async fn begin_several<'a, P: Pool>(
    shared: &Shared<P>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
    permits: u32,
    wait: Wait,
) -> Result<HeldSlot<'a, P>, Error> {
    let subject = RequestSubject::slots(semaphore, permits);
    let active = shared.activity.begin(Some(subject));
    let request = SlotRequest::new(semaphore);
    let outcome = async {
        let several = Several::of_transaction(semaphore, permits)?;
        let (connections, acquire) = (&shared.connections, Acquire::Several(&several));
        poll(
            connections,
            stop,
            semaphore,
            wait,
            Some(Pace::default()),
            acquire,
        )
        .await
    };
    let outcome = outcome.await;
    request.record(outcome.as_ref().map(Some), |_| None);
    HeldSlot::new(outcome?, semaphore, active)
}

/// [`begin`] without waiting; `None` when no slot is free.
pub(crate) async fn try_begin<'a, P: Pool>(
    shared: &Shared<P>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
) -> Result<Option<HeldSlot<'a, P>>, Error> {
    let subject = RequestSubject::slots(semaphore, 1);
    let active = shared.activity.begin(Some(subject));
    let request = SlotRequest::new(semaphore);
    let outcome = once(&shared.connections, stop, semaphore, Acquire::Transaction).await;
    request.record(outcome.as_ref().map(Option::as_ref), |_| None);
    let granted = outcome?.map(|granted| HeldSlot::new(granted, semaphore, active));
    granted.transpose()
}

impl<'a, P: Pool> HeldSlot<'a, P> {
    fn new(granted: Granted<P>, semaphore: &'a Semaphore, active: Active) -> Result<Self, Error> {
        let (several, mut conn) = granted;
        let outermost = depth(conn.engine()?.status())? == 1;
        let notifies = outermost && several.is_none();
        active.set_inside(true);
        Ok(Self {
            conn,
            several,
            _notify: notifies.then(|| NotifyOnDrop::new(semaphore)),
            _active: active,
        })
    }

    pub(crate) async fn run<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>>,
        E: From<Error>,
    {
        if let Some(slot) = &self.several {
            return finish_with_slots(&mut *self.conn, slot, work).await;
        }
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
    let max_concurrent = connections.max_concurrent(acquire.max_concurrent(semaphore));
    let _turn = turn(semaphore, max_concurrent).await;
    let mut conn = connections.borrow(&waiting).await?;
    if !matches!(acquire, Acquire::Transaction) {
        conn.begin_to_lease();
    }
    let mut engine = conn.engine()?;
    let granted = acquire.attempt(&mut *engine, semaphore, &waiting, NO_WAIT);
    let granted = granted.await;
    let granted = discard_if_unusable(&mut *engine, granted);
    drop(engine);
    if granted.is_err()
        && let Some(several) = acquire.several()
    {
        // Not on a connection that is lost.
        drop(conn);
        give_up(connections, semaphore, several).await;
        return granted.map(|_| None);
    }
    Ok(granted?.break_value().map(|slot| (slot, conn)))
}

/// Releases what a request keeps that has ended, if the pool has a connection. What it can't release expires.
async fn give_up<P: Pool>(
    connections: &Connections<P>,
    semaphore: &Semaphore,
    several: &Several<'_>,
) {
    if !several.keeps_any() {
        return;
    }
    let given_up = async {
        let waiting = begin_wait(semaphore, Wait::AtMost(GIVE_UP))?;
        let mut conn = connections.borrow(&waiting).await?;
        conn.begin_to_lease();
        let mut engine = conn.engine()?;
        let given_up = Box::pin(several.give_up(&mut *engine));
        waiting.answer(P::Connection::IN_PROCESS, given_up).await;
        Ok::<_, Error>(())
    };
    if let Err(error) = given_up.await {
        tracing::debug!(%semaphore, %error, "permits not released: their leases end");
    }
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
    let polled = poll_attempts(connections, semaphore, waiting, timing, acquire).await;
    if polled.is_err()
        && let Some(several) = acquire.several()
    {
        give_up(connections, semaphore, several).await;
    }
    polled
}

async fn poll_attempts<P: Pool>(
    connections: &Connections<P>,
    semaphore: &Semaphore,
    waiting: &Waiting,
    timing: Option<Pace>,
    acquire: Acquire<'_>,
) -> Result<Granted<P>, Error> {
    let wait = waiting.wait;
    let max_concurrent = connections.max_concurrent(acquire.max_concurrent(semaphore));
    let mut attempts = Attempts::borrowing(waiting, place(semaphore));
    let mut holders = Holders::new(timing.filter(|_| acquire.several().is_none()));
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
                    let kind = (false, acquire);
                    join(place, semaphore, database, max_concurrent, timing, kind);
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
        let answer = answer.await;
        if acquire.several().is_some_and(Several::keeps_any) {
            attempts.place.stay_alone();
            joins = false;
        }
        if let Some(granted) = attempts.after(answer)? {
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
    if !matches!(acquire, Acquire::Transaction) {
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
            refused.map(|refused| Answer::Continue(refused.continue_value().flatten()))
        }
    }
}
