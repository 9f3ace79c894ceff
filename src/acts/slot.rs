//! Acquires slots, for a lease or for one transaction; renews, releases and pins those that are held.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::CancelGuard;
use crate::acts::closures::Work;
use crate::acts::events::{Period, record_slot, record_slot_released};
#[cfg(feature = "testing")]
use crate::acts::failures;
use crate::acts::several::Several;
use crate::acts::slot_attempts::{RetryBudget, acquire, begin_with_slot};
use crate::acts::slot_queue::{self, NotifyOnDrop, Pace, max_concurrent, poll_until, turn};
use crate::acts::transaction::{
    TransactionFailure, assert_in_transaction, assert_open_if_in_transaction, commit_or_rollback,
    outside, roll_back_stopped, run_begun,
};
use crate::acts::waiting::{Answer, Waiting, unless_refused};
use crate::engine::slots::{Change, Expiry, ReleaseKind};
use crate::engine::tables::Named;
use crate::engine::{Engine, HasEngine};
use crate::error::NameKind;
use crate::link::depth::depth;
use crate::rt::caught;
use crate::values::lease::{self, RenewalRequest};
use crate::{Error, LeaseOptions, LeaseState, Semaphore, Slot, SlotInfo, Wait};

/// Leases a slot to this token without waiting; `None` when none is free. After an error it may have been granted.
pub(crate) async fn try_acquire(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
) -> Result<Option<Slot>, Error> {
    let acquire = Acquire::lease(semaphore, lease, Some(token));
    let acquired = request(engine, semaphore, acquire, None).await;
    unless_refused(acquired).map(Option::flatten)
}

pub(crate) async fn acquire_timeout(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
) -> Result<Slot, Error> {
    let acquire = Acquire::lease(semaphore, lease, None);
    let slot = request(engine, semaphore, acquire, Some(wait)).await?;
    Ok(slot.expect("the slot of a lease"))
}

/// Acquires slots, and records the outcome. Without a wait it makes one attempt, when its turn has come. Returns the slot of a lease
/// or of several permits.
async fn request(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    acquire: Result<Acquire<'_>, Error>,
    wait: Option<Wait>,
) -> Result<Option<Slot>, Error> {
    let started = Instant::now();
    let _waiting = Period::wait_for_slot(semaphore.name());
    let is_lease = acquire.as_ref().is_ok_and(Acquire::is_lease);
    let outcome = async {
        let mut acquire = acquire?;
        // Before it waits for its turn, in the order of a number of permits.
        semaphore.validate()?;
        let _turn = if wait.is_none() && depth(engine.status())? == 0 {
            Some(turn(semaphore, max_concurrent(semaphore)).await)
        } else {
            None
        };
        poll_until(engine, semaphore, wait.unwrap_or(Wait::No), &mut acquire).await
    };
    let outcome = outcome.await;
    let leased = |slot: &Option<Slot>| slot.as_ref().filter(|_| is_lease).map(Slot::number);
    record_slot(semaphore, started, outcome.as_ref().map(leased));
    outcome
}

/// Begins a transaction that holds a slot, or so many permits, and returns the slot of these. The caller calls [`run`], without an
/// await in between.
pub(crate) async fn begin<C: HasEngine>(
    conn: &mut C,
    semaphore: &Semaphore,
    permits: Option<u32>,
    wait: Option<Wait>,
) -> Result<Option<Slot>, Error> {
    let acquire = Acquire::in_transaction(semaphore, permits);
    request(&mut *C::engine(conn)?, semaphore, acquire, wait).await
}

pub(crate) async fn run<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    several: Option<Slot>,
    work: F,
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    if let Some(slot) = several {
        return finish_with_slots(conn, &slot, work).await;
    }
    let outermost = depth(C::engine(conn)?.status())? == 1;
    // Dropped last: the slot is free when others are notified.
    let _notify = outermost.then(|| NotifyOnDrop::new(semaphore));
    commit_or_rollback(conn, None, work, || ()).await
}

/// Runs the closure in the open transaction, which has locked the slots, and releases them after its end.
pub(crate) async fn finish_with_slots<C, T, E, F>(
    conn: &mut C,
    slot: &Slot,
    work: F,
) -> Result<T, E>
where
    C: HasEngine,
    for<'r> F: Work<&'r mut C, Result<T, E>>,
    E: From<Error>,
{
    let inside = Period::hold_slot(&slot.semaphore);
    let mut guard = CancelGuard::after_begin(conn)?;
    let outcome = caught(run_begun(&mut *guard, None, work, || ())).await;
    record_slot_released(&slot.semaphore, None, inside.elapsed());
    let released = caught(async {
        let mut engine = C::engine(&mut *guard)?;
        release_unused(&mut *engine, slot).await
    });
    let outcome = match released.await {
        Ok(Ok(())) => outcome,
        Ok(Err(error)) => {
            tracing::debug!(semaphore = slot.semaphore, %error, "slots not released: their leases end");
            outcome
        }
        Err(panic) => outcome.and(Err(panic)),
    };
    let result = guard.finish_with(outcome);
    result.map_err(TransactionFailure::into_error)
}

/// What a request acquires.
pub(crate) enum Acquire<'a> {
    /// A lease of a slot, which outlives the session: by this token, if there is one.
    Lease(&'a LeaseOptions, Option<Uuid>),
    /// A transaction that holds a slot.
    Transaction,
    /// Several permits, leased or for a transaction.
    Several(Box<Several<'a>>),
}

impl<'a> Acquire<'a> {
    pub(crate) fn lease(
        semaphore: &'a Semaphore,
        lease: &'a LeaseOptions,
        token: Option<Uuid>,
    ) -> Result<Self, Error> {
        let several = Several::leased(semaphore, lease)?.map(Box::new);
        Ok(several.map_or(Self::Lease(lease, token), Self::Several))
    }

    /// A transaction that holds a slot, or so many permits.
    pub(crate) fn in_transaction(
        semaphore: &'a Semaphore,
        permits: Option<u32>,
    ) -> Result<Self, Error> {
        permits.map_or(Ok(Self::Transaction), |permits| {
            let several = Several::of_transaction(semaphore, permits)?;
            Ok(Self::Several(Box::new(several)))
        })
    }

    /// Several permits, which a request keeps between its attempts. So it does not look at the holders before an attempt, and
    /// others do not wait behind it.
    pub(crate) fn several(&mut self) -> Option<&mut Several<'a>> {
        match self {
            Self::Several(several) => Some(several),
            Self::Lease(..) | Self::Transaction => None,
        }
    }

    pub(crate) fn is_several(&self) -> bool {
        matches!(self, Self::Several(_))
    }

    /// Whether there is something to release. Such a request polls on its own: the first of a queue may wait for what it keeps.
    pub(crate) fn keeps_any(&self) -> bool {
        matches!(self, Self::Several(several) if several.keeps_any())
    }

    /// How many may query at once for the first time. Of those that want several permits one, which then has the turn.
    pub(crate) fn max_concurrent(&self, semaphore: &Semaphore) -> usize {
        if self.is_several() {
            1
        } else {
            max_concurrent(semaphore)
        }
    }

    /// The pace of those that wait for a lease, or for several permits. The holders of slots of transactions can't be read.
    pub(crate) fn timing(&self, pace: Pace) -> Option<Pace> {
        (!matches!(self, Self::Transaction)).then_some(pace)
    }

    /// Whether no transaction is begun.
    pub(crate) fn is_lease(&self) -> bool {
        match self {
            Self::Lease(..) => true,
            Self::Several(several) => several.lease.is_some(),
            Self::Transaction => false,
        }
    }

    /// Is granted the slot of the lease, or a transaction. Keeps nothing if the wait was stopped meanwhile.
    pub(crate) async fn attempt(
        &mut self,
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
            Self::Lease(lease, token) => {
                let token = token.unwrap_or_else(Uuid::new_v4);
                let slot = acquire(engine, semaphore, lease, token, budget).await?;
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
            Self::Several(several) => match several.attempt(engine, waiting, budget).await? {
                Answer::Break(slot) => Some(slot),
                Answer::Continue(pause) => return Ok(Answer::Continue(pause)),
            },
        };
        if let Err(stopped) = waiting.check_stop() {
            if !self.is_lease() {
                end_stopped(engine, semaphore).await;
            }
            if let Some(slot) = &slot {
                release_stopped(engine, slot).await;
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
        let tokens = slot.rows().map(|row| row.token).collect();
        guard.release_slots_of(&slot.semaphore, tokens);
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
    let notify = || NotifyOnDrop {
        semaphore,
        inside: None,
    };
    let _notify = outermost.then(notify);
    roll_back_stopped(engine).await;
}

/// Changes the row. Returns the state of its lease, and the time before the statement; `None` if the token does not hold the slot.
async fn change_row(
    engine: &mut dyn Engine,
    row: &Slot,
    change: Change<'_>,
) -> Result<Option<(LeaseState, Instant)>, Error> {
    // The common case comes first.
    for (expiry, state) in [
        (Expiry::Unexpired, LeaseState::Unexpired),
        (Expiry::IncludeExpired, LeaseState::Expired),
    ] {
        let started = Instant::now();
        if engine.change(row, change, expiry).await? > 0 {
            return Ok(Some((state, started)));
        }
    }
    Ok(None)
}

pub(crate) async fn renew(
    engine: &mut dyn Engine,
    slot: &mut Slot,
    duration: Duration,
) -> Result<LeaseState, Error> {
    let lease_us = lease::micros(duration)?;
    check_names(slot)?;
    assert_open_if_in_transaction(engine).await?;
    #[cfg(feature = "testing")]
    if failures::loses_slot(&slot.semaphore) {
        return Err(lost(slot));
    }
    let resolution = engine.clock_resolution();
    let mut first = None;
    let renewed = async {
        let mut states = Vec::new();
        for row in slot.rows() {
            let renewed = change_row(engine, row, Change::Renew { lease_us }).await?;
            let (state, started) = renewed.ok_or_else(|| lost(row))?;
            first.get_or_insert(started);
            states.push(state);
        }
        Ok::<_, Error>(state_of(states))
    };
    let renewed = renewed.await;
    if let Some(started) = first {
        let end = started + duration.saturating_sub(resolution);
        // After an error some are renewed.
        let all = renewed.is_ok();
        slot.deadline = if all { end } else { slot.deadline.min(end) };
    }
    renewed
}

fn check_names(slot: &Slot) -> Result<(), Error> {
    for row in slot.rows() {
        NameKind::Semaphore.check(&row.semaphore)?;
    }
    Ok(())
}

/// That of several permits: expired if one has expired.
fn state_of(states: impl IntoIterator<Item = LeaseState>) -> LeaseState {
    let mut states = states.into_iter();
    let expired = states.find(|state| state.is_expired());
    expired.unwrap_or(LeaseState::Unexpired)
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
    // Without a token it is released.
    if held.token.is_some()
        && let Some((state, _)) = change_row(engine, &slot, Change::RequestRelease).await?
    {
        let (semaphore, number) = (slot.semaphore, slot.number);
        tracing::info!(semaphore, number, "release of a slot requested");
        return Ok(state);
    }
    Err(lost(&slot))
}

/// Not in a transaction, for the same reason.
pub(crate) async fn set_data(
    engine: &mut dyn Engine,
    slot: &Slot,
    data: &str,
) -> Result<LeaseState, Error> {
    check_names(slot)?;
    NameKind::Data.check(data)?;
    let reason = "the lease could not be renewed until the end of the transaction";
    outside(engine, "set_slot_data", reason)?;
    let mut found = Vec::new();
    for row in slot.rows() {
        let changed = change_row(engine, row, Change::Data(Named(data))).await?;
        found.push(changed.ok_or_else(|| lost(row))?.0);
    }
    Ok(state_of(found))
}

/// Of several permits, releases those that are not lost, also if one is.
pub(crate) async fn release(engine: &mut dyn Engine, slot: &Slot) -> Result<LeaseState, Error> {
    check_names(slot)?;
    assert_open_if_in_transaction(engine).await?;
    let mut found = Vec::new();
    let mut first_lost = None;
    for row in slot.rows() {
        let Some((state, _)) = change_row(engine, row, Change::Release(ReleaseKind::Used)).await?
        else {
            first_lost.get_or_insert(row);
            continue;
        };
        if depth(engine.status())? == 0 {
            slot_queue::notify_released(&row.semaphore, 1, Some(row.number));
        }
        found.push(state);
    }
    first_lost.map_or_else(|| Ok(state_of(found)), |row| Err(lost(row)))
}

/// Releases slots by one statement, which does not wait. Returns the tokens of those that are not released because another session has
/// locked their rows.
pub(crate) async fn release_batch(
    engine: &mut dyn Engine,
    slots: &[&Slot],
    kind: ReleaseKind,
) -> Result<Vec<Vec<u8>>, Error> {
    let rows = || slots.iter().flat_map(|slot| slot.rows());
    let requests: Vec<_> = rows().map(|row| RenewalRequest::new(row, 0)).collect();
    let locked = engine.release_batch(&requests, kind).await?;
    for row in rows() {
        if !locked.iter().any(|token| token == row.token.as_bytes()) {
            slot_queue::notify_released(&row.semaphore, 1, Some(row.number));
        }
    }
    Ok(locked)
}

/// Outside a transaction, if it is of several permits.
pub(crate) async fn release_unused(engine: &mut dyn Engine, slot: &Slot) -> Result<(), Error> {
    let mut left: Vec<&Slot> = slot.rows().collect();
    if left.len() > 1 {
        let locked = release_batch(engine, &[slot], ReleaseKind::Unused).await?;
        left.retain(|row| locked.iter().any(|token| token == row.token.as_bytes()));
    }
    for row in left {
        let unused = Change::Release(ReleaseKind::Unused);
        let released = engine.change(row, unused, Expiry::IncludeExpired).await?;
        if released > 0 && depth(engine.status())? == 0 {
            slot_queue::notify_released(&row.semaphore, 1, Some(row.number));
        }
    }
    Ok(())
}

pub(crate) async fn pin(engine: &mut dyn Engine, slot: &Slot) -> Result<(), Error> {
    assert_in_transaction(engine, "pin_slot").await?;
    check_names(slot)?;
    for row in slot.rows() {
        if !engine.pin(row).await? {
            return Err(lost(row));
        }
    }
    Ok(())
}

pub(crate) fn lost(slot: &Slot) -> Error {
    Error::SlotLost {
        semaphore: slot.semaphore.clone(),
        number: slot.number,
    }
}
