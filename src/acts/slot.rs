//! Acquires slots, for a lease or for one transaction; renews, releases and pins those that are held.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::CancelGuard;
use crate::acts::closures::Work;
use crate::acts::events::SlotRequest;
#[cfg(feature = "testing")]
use crate::acts::failures;
use crate::acts::slot_attempts::{NO_WAIT, RetryBudget, acquire, begin_with_slot};
use crate::acts::slot_queue::{self, NotifyOnDrop, Pace, poll_until, wait_for_turn};
use crate::acts::transaction::{
    assert_in_transaction, assert_open_if_in_transaction, commit_or_rollback, outside,
    roll_back_stopped,
};
use crate::acts::waiting::{Answer, Waiting};
use crate::engine::slots::Expiry;
use crate::engine::{Engine, HasEngine};
use crate::error::NameKind;
use crate::link::depth::depth;
use crate::rt::caught;
use crate::values::lease;
use crate::{Error, LeaseOptions, LeaseState, Semaphore, Slot, SlotInfo, Wait};

/// Leases a slot to this token without waiting; `None` when none is free. After an error it may have been granted.
pub(crate) async fn try_acquire(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
) -> Result<Option<Slot>, Error> {
    let request = SlotRequest::new(semaphore);
    let outcome = acquire_once(engine, semaphore, lease, token).await;
    request.record(outcome.as_ref().map(Option::as_ref), |it| Some(it.number));
    outcome
}

async fn acquire_once(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
) -> Result<Option<Slot>, Error> {
    let _turn = wait_for_turn(engine, semaphore).await?;
    #[cfg(feature = "testing")]
    if failures::of_slot(engine, semaphore)? {
        return Ok(None);
    }
    acquire(engine, semaphore, lease, token, NO_WAIT).await
}

pub(crate) async fn acquire_timeout(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
) -> Result<Slot, Error> {
    let request = SlotRequest::new(semaphore);
    let pace = Some(Pace::default());
    let outcome = poll_until(engine, semaphore, wait, pace, Acquire::Lease(lease)).await;
    let outcome = outcome.map(|slot| slot.expect("the slot of a lease"));
    request.record(outcome.as_ref().map(Some), |slot| Some(slot.number));
    outcome
}

pub(crate) async fn try_with_slot<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    work: F,
) -> Result<Option<T>, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let request = SlotRequest::new(semaphore);
    let outcome = try_begin(&mut *C::engine(conn)?, semaphore).await;
    request.record(outcome.as_ref().map(Option::as_ref), |()| None);
    match outcome? {
        Some(()) => finish_with_slot(conn, semaphore, work).await.map(Some),
        None => Ok(None),
    }
}

async fn try_begin(engine: &mut dyn Engine, semaphore: &Semaphore) -> Result<Option<()>, Error> {
    let _turn = wait_for_turn(engine, semaphore).await?;
    #[cfg(feature = "testing")]
    if failures::of_slot(engine, semaphore)? {
        return Ok(None);
    }
    begin_with_slot(engine, semaphore, NO_WAIT).await
}

pub(crate) async fn with_slot<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    wait: Wait,
    work: F,
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let request = SlotRequest::new(semaphore);
    let mut engine = C::engine(conn)?;
    let outcome = poll_until(&mut *engine, semaphore, wait, None, Acquire::Transaction).await;
    drop(engine);
    request.record(outcome.as_ref().map(Some), |_| None);
    outcome?;
    finish_with_slot(conn, semaphore, work).await
}

async fn finish_with_slot<C, T, E, F>(conn: &mut C, semaphore: &Semaphore, work: F) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let outermost = depth(C::engine(conn)?.status())? == 1;
    let _notify = outermost.then(|| NotifyOnDrop::new(semaphore));
    // Dropped before `_notify`: the slot is free when others are notified.
    let mut guard = CancelGuard::after_begin(conn)?;
    let outcome = caught(commit_or_rollback(&mut *guard, None, work, || ())).await;
    guard.finish_with(outcome)
}

/// What a waiter acquires.
#[derive(Clone, Copy)]
pub(crate) enum Acquire<'a> {
    /// A lease of a slot, which outlives the session.
    Lease(&'a LeaseOptions),
    /// A transaction that holds a slot.
    Transaction,
}

impl Acquire<'_> {
    /// Is granted the slot of the lease, or a transaction. Keeps nothing if the wait was stopped meanwhile.
    pub(crate) async fn attempt(
        self,
        engine: &mut dyn Engine,
        semaphore: &Semaphore,
        waiting: &Waiting,
        budget: RetryBudget,
    ) -> Result<Answer<Option<Slot>>, Error> {
        #[cfg(feature = "testing")]
        if failures::of_slot(engine, semaphore)? {
            return Ok(Answer::Continue(None));
        }
        let slot = match self {
            Self::Lease(lease) => {
                let slot = acquire(engine, semaphore, lease, Uuid::new_v4(), budget).await?;
                let Some(slot) = slot else {
                    return Ok(Answer::Continue(None));
                };
                Some(slot)
            }
            Self::Transaction => {
                if begin_with_slot(engine, semaphore, budget).await?.is_none() {
                    return Ok(Answer::Continue(None));
                }
                None
            }
        };
        if let Err(stopped) = waiting.check_stop() {
            match &slot {
                Some(slot) => release_stopped(engine, slot).await,
                None => end_stopped(engine, semaphore).await,
            }
            return Err(stopped);
        }
        Ok(Answer::Break(slot))
    }
}

/// Releases the slot of a wait that was stopped, also if the future is dropped.
async fn release_stopped(engine: &mut dyn Engine, slot: &Slot) {
    let released = async {
        let mut guard = CancelGuard::new(engine)?;
        guard.release_slot_of(&slot.semaphore, slot.token);
        let released = caught(release_unused(&mut *guard, slot)).await;
        guard.finish_with(released)
    };
    if let Err(error) = released.await {
        tracing::warn!(semaphore = slot.semaphore, %error, "slot not released: its lease ends");
    }
}

/// Rolls back the transaction of a wait that was stopped.
async fn end_stopped(engine: &mut dyn Engine, semaphore: &Semaphore) {
    // On a connection that is marked as broken too: no transaction of it holds the slot.
    let outermost = !depth(engine.status()).is_ok_and(|depth| depth > 1);
    let _notify = outermost.then(|| NotifyOnDrop::unused(semaphore));
    roll_back_stopped(engine).await;
}

/// The common case comes first.
const STATES: [(Expiry, LeaseState); 2] = [
    (Expiry::Unexpired, LeaseState::Unexpired),
    (Expiry::IncludeExpired, LeaseState::Expired),
];

pub(crate) async fn renew(
    engine: &mut dyn Engine,
    slot: &mut Slot,
    duration: Duration,
) -> Result<LeaseState, Error> {
    let lease_us = lease::micros(duration)?;
    NameKind::Semaphore.check(&slot.semaphore)?;
    assert_open_if_in_transaction(engine).await?;
    #[cfg(feature = "testing")]
    if failures::loses_slot(&slot.semaphore) {
        return Err(lost(slot));
    }
    for (expiry, state) in STATES {
        let started = Instant::now();
        if engine.renew_one(slot, lease_us, expiry).await? > 0 {
            slot.deadline = started + duration.saturating_sub(engine.clock_resolution());
            return Ok(state);
        }
    }
    Err(lost(slot))
}

/// Not in a transaction, which would keep the row locked: renewals skip locked rows, and the lease could end.
pub(crate) async fn request_release(
    engine: &mut dyn Engine,
    held: &SlotInfo,
) -> Result<LeaseState, Error> {
    NameKind::Semaphore.check(&held.semaphore)?;
    let reason = "the holder could not renew its lease until the end of the transaction";
    outside(engine, "request_release", reason)?;
    let token = held.token.unwrap_or_default();
    let slot = Slot::from_parts(&held.semaphore, held.number, token, held.fence);
    for (expiry, state) in STATES {
        // Without a token it is released.
        if held.token.is_some() && engine.request_release(&slot, expiry).await? > 0 {
            let (semaphore, number) = (slot.semaphore, slot.number);
            tracing::info!(semaphore, number, "release of a slot requested");
            return Ok(state);
        }
    }
    Err(lost(&slot))
}

/// Not in a transaction, for the same reason.
pub(crate) async fn set_data(
    engine: &mut dyn Engine,
    slot: &Slot,
    data: &str,
) -> Result<LeaseState, Error> {
    NameKind::Semaphore.check(&slot.semaphore)?;
    NameKind::Data.check(data)?;
    let reason = "the lease could not be renewed until the end of the transaction";
    outside(engine, "set_slot_data", reason)?;
    for (expiry, state) in STATES {
        if engine.set_data(slot, data, expiry).await? > 0 {
            return Ok(state);
        }
    }
    Err(lost(slot))
}

pub(crate) async fn release(engine: &mut dyn Engine, slot: &Slot) -> Result<LeaseState, Error> {
    NameKind::Semaphore.check(&slot.semaphore)?;
    assert_open_if_in_transaction(engine).await?;
    for (expiry, state) in STATES {
        if engine.release(slot, expiry).await? > 0 {
            if depth(engine.status())? == 0 {
                slot_queue::notify_released(&slot.semaphore, 1, Some(slot.number));
            }
            return Ok(state);
        }
    }
    Err(lost(slot))
}

pub(crate) async fn release_unused(engine: &mut dyn Engine, slot: &Slot) -> Result<(), Error> {
    if engine.release_unused(slot).await? > 0 && depth(engine.status())? == 0 {
        slot_queue::notify_released(&slot.semaphore, 1, Some(slot.number));
    }
    Ok(())
}

pub(crate) async fn pin(engine: &mut dyn Engine, slot: &Slot) -> Result<(), Error> {
    assert_in_transaction(engine, "pin_slot").await?;
    NameKind::Semaphore.check(&slot.semaphore)?;
    if engine.pin(slot).await? {
        Ok(())
    } else {
        Err(lost(slot))
    }
}

pub(crate) fn lost(slot: &Slot) -> Error {
    Error::SlotLost {
        semaphore: slot.semaphore.clone(),
        number: slot.number,
    }
}
