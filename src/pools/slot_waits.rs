//! Waits for slots without a connection: for leases, and for transactions, which it runs. How often a waiter asks is decided in
//! `acts::slot_queue`, and when in `queue`.

use std::time::{Duration, Instant};

use crate::acts::cancel_guard::discard_if_unusable;
use crate::acts::closures::Work;
use crate::acts::events::{Period, record_slot};
use crate::acts::several::Several;
use crate::acts::slot::{Acquire, finish_with_slots};
use crate::acts::slot_attempts::RetryBudget;
use crate::acts::slot_queue::{Holders, NotifyOnDrop, Pace, begin_wait, join, place, turn};
use crate::acts::transaction::commit_or_rollback;
use crate::acts::waiting::{Answer, Attempt, Attempts, Waiting};
use crate::engine::HasEngine;
use crate::link::activity::Active;
use crate::link::depth::depth;
use crate::pools::connections::{Borrowed, Connections};
use crate::pools::object_waits::Shared;
use crate::rt::stop_token::StopToken;
use crate::{Error, Pool, RequestSubject, Semaphore, Slot, Wait};

/// How long a wait that has ended waits for a connection to release what it keeps.
const GIVE_UP: Duration = Duration::from_millis(200);

/// The connection of the attempt, and the slot of a lease or of several permits.
type Granted<P> = (Option<Slot>, Borrowed<P>);

/// Acquires slots within a time limit, or until `stop` is stopped, and records the outcome. Without a wait it makes one attempt, when
/// its turn has come. What it has leased is released if the future is dropped.
pub(crate) async fn request<P: Pool>(
    connections: &Connections<P>,
    stop: Option<&StopToken>,
    semaphore: &Semaphore,
    acquire: Result<Acquire<'_>, Error>,
    wait: Option<Wait>,
    pace: Pace,
) -> Result<Granted<P>, Error> {
    let started = Instant::now();
    let _waiting = Period::wait_for_slot(semaphore.name());
    let is_lease = acquire.as_ref().is_ok_and(Acquire::is_lease);
    let outcome = async {
        let mut acquire = acquire?;
        let max_concurrent = connections.max_concurrent(acquire.max_concurrent(semaphore));
        let waiting = begin_wait(semaphore, wait.unwrap_or(Wait::No))?.stopped_by(stop);
        waiting.check_stop()?;
        let _turn = match wait {
            None => Some(turn(semaphore, max_concurrent).await),
            Some(_) => None,
        };
        let polled = poll(connections, semaphore, &waiting, pace, &mut acquire).await;
        if polled.is_err()
            && let Some(several) = acquire.several()
        {
            give_up(connections, semaphore, several).await;
        }
        polled
    };
    let outcome = outcome.await;
    let leased = |(slot, _): &Granted<P>| slot.as_ref().filter(|_| is_lease).map(Slot::number);
    record_slot(semaphore, started, outcome.as_ref().map(leased));
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

/// Begins a transaction that holds a slot, or so many permits, when they are granted. The caller runs the work, without an await in
/// between.
pub(crate) async fn begin<'a, P: Pool>(
    shared: &Shared<P>,
    stop: Option<&StopToken>,
    semaphore: &'a Semaphore,
    permits: Option<u32>,
    wait: Option<Wait>,
) -> Result<HeldSlot<'a, P>, Error> {
    let subject = RequestSubject::slots(semaphore, permits.unwrap_or(1));
    let active = shared.activity.begin(Some(subject));
    let acquire = Acquire::in_transaction(semaphore, permits);
    let (connections, pace) = (&shared.connections, Pace::default());
    let granted = request(connections, stop, semaphore, acquire, wait, pace).await?;
    let (several, mut conn) = granted;
    let outermost = depth(conn.engine()?.status())? == 1;
    let notifies = outermost && several.is_none();
    active.set_inside(true);
    Ok(HeldSlot {
        conn,
        several,
        _notify: notifies.then(|| NotifyOnDrop::new(semaphore)),
        _active: active,
    })
}

impl<P: Pool> HeldSlot<'_, P> {
    pub(crate) async fn run<T, E, F>(&mut self, work: F) -> Result<T, E>
    where
        for<'r> F: Work<&'r mut P::Connection, Result<T, E>>,
        E: From<Error>,
    {
        match &self.several {
            Some(slot) => finish_with_slots(&mut *self.conn, slot, work).await,
            None => commit_or_rollback(&mut *self.conn, None, work, || ()).await,
        }
    }
}

/// Releases what a request keeps that has ended, if the pool has a connection. What it can't release expires.
async fn give_up<P: Pool>(
    connections: &Connections<P>,
    semaphore: &Semaphore,
    several: &mut Several<'_>,
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
    semaphore: &Semaphore,
    waiting: &Waiting,
    pace: Pace,
    acquire: &mut Acquire<'_>,
) -> Result<Granted<P>, Error> {
    let (wait, timing) = (waiting.wait, acquire.timing(pace));
    let max_concurrent = connections.max_concurrent(acquire.max_concurrent(semaphore));
    let mut attempts = Attempts::borrowing(waiting, place(semaphore), Some(semaphore.name()));
    let mut holders = Holders::new(timing.filter(|_| !acquire.is_several()));
    // It joins its queue when the database is known to the pool. Until then it queries first if nobody waits, and otherwise
    // finds the database out.
    let mut joins = wait != Wait::No;
    let mut queries_first = false;
    if joins && connections.known_identity().is_none() {
        queries_first = attempts.place.query_first(max_concurrent, None).await;
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
                    let (of, kind) = (&mut attempts.place, (false, &*acquire));
                    join(of, semaphore, database, max_concurrent, timing, kind);
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
        if acquire.keeps_any() {
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
    acquire: &mut Acquire<'_>,
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
            if waiting.wait != Wait::No {
                connections.refresh_identity(&mut *engine).await?;
            }
            refused.map(|refused| Answer::Continue(refused.continue_value().flatten()))
        }
    }
}
