//! Attempts to acquire a slot, repeated while a free slot is locked or slots are missing.

use std::thread::sleep;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, Grant, LeaseRequest, SemaphoreBackend,
};
use crate::{Error, LeaseOptions, Semaphore, Slot, backoff, transaction::depth, transaction::run};

/// How long an acquisition retries a free slot that is locked before it counts the slot as held.
#[derive(Clone, Copy)]
pub(super) struct RetryBudget {
    /// The lock of a session that acquires, releases or purges a slot lasts for one statement or its COMMIT.
    pub(super) max_attempts: u32,
    /// The time limit for waiting for a session that adds or removes slots.
    pub(super) resize_timeout: Duration,
    /// A slot that is probably free.
    pub(super) preferred: Option<u32>,
}

/// The budget of an acquisition that does not wait.
pub(super) const NO_WAIT: RetryBudget = RetryBudget {
    max_attempts: MAX_ATTEMPTS,
    resize_timeout: MAX_RESIZE_WAIT,
    preferred: None,
};

pub(super) const MAX_ATTEMPTS: u32 = 10;

/// The longest pauses after the first and after a later attempt, while attempts are fast.
const MIN_RETRY_DELAY: Duration = Duration::from_micros(250);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(8);

/// How many times as long as the attempt the pause may be, so that attempts that are refused leave the server's processors
/// to the sessions that hold the slots, however many others try. With 32 connections and 8 permits, grants per second
/// doubled on each engine with a durable disk.
const PAUSE_PER_ATTEMPT: u32 = 3;

/// The longest pause for [`PAUSE_PER_ATTEMPT`].
const MAX_BUSY_DELAY: Duration = Duration::from_millis(50);

/// The limits of the wait for slots that are being added or removed: a batch of rows and its COMMIT. The lower limit
/// applies however short the requested wait is.
pub(super) const MAX_RESIZE_WAIT: Duration = Duration::from_secs(2);
pub(super) const MIN_RESIZE_WAIT: Duration = Duration::from_millis(100);

/// Leases a slot; `None` when none is free.
pub(super) fn acquire<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    budget: RetryBudget,
) -> Result<Option<Slot>, Error> {
    acquire_as(conn, semaphore, lease, Uuid::new_v4(), budget)
}

/// Leases a slot to this token; `None` when none is free.
pub(super) fn acquire_as<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
    budget: RetryBudget,
) -> Result<Option<Slot>, Error> {
    semaphore.validate()?;
    lease.check()?;
    let request = LeaseRequest {
        semaphore,
        token: token.into_bytes(),
        holder: lease.holder_text(),
        lease_us: lease.micros()?,
        min_hold_us: lease.min_hold_micros()?,
    };
    let in_transaction = depth::depth(conn)? > 0;
    if in_transaction {
        C::assert_open(conn)?;
    }
    let mut started = Instant::now();
    let grant = acquire_loop(conn, semaphore, in_transaction, budget, |conn, context| {
        started = Instant::now();
        C::try_lease(conn, &request, context)
    })?;
    Ok(grant.map(|grant| Slot {
        semaphore: semaphore.name().to_owned(),
        number: grant.number.unsigned_abs(),
        token,
        fence: grant.fence,
        deadline: started + lease.duration().saturating_sub(C::clock_resolution(conn)),
    }))
}

/// Repeats an attempt until it is granted or refused.
fn acquire_loop<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    in_transaction: bool,
    budget: RetryBudget,
    mut attempt: impl FnMut(&mut C, &AttemptContext) -> Result<AttemptOutcome, Error>,
) -> Result<Option<Grant>, Error> {
    let preferred = budget.preferred;
    let mut context = AttemptContext {
        in_transaction,
        candidates: None,
        preferred: preferred.and_then(|number| i32::try_from(number).ok()),
    };
    let mut attempts = 0;
    let started = Instant::now();
    loop {
        let attempted = Instant::now();
        match attempt(conn, &context)? {
            AttemptOutcome::Granted(grant) => return Ok(Some(grant)),
            AttemptOutcome::AllLeased | AttemptOutcome::TableLocked => return Ok(None),
            AttemptOutcome::Retry => {}
            AttemptOutcome::Locked => {
                attempts += 1;
                if attempts >= budget.max_attempts {
                    // Locked for longer: by transactions that hold slots, or by a session that adds or removes rows.
                    let resizing = !in_transaction
                        && started.elapsed() < budget.resize_timeout
                        && C::resize_in_progress(conn)?;
                    if !resizing {
                        return Ok(None);
                    }
                }
                back_off(attempts, attempted.elapsed());
                context.candidates = None;
            }
            AttemptOutcome::TooFewRows if in_transaction => return Err(not_registered(semaphore)),
            AttemptOutcome::TooFewRows => {
                if C::create_slots(conn, semaphore, false)? {
                    // The locked rows have been purged.
                    attempts = 0;
                } else {
                    attempts += 1;
                    if attempts >= budget.max_attempts && started.elapsed() >= budget.resize_timeout
                    {
                        return Ok(None);
                    }
                    back_off(attempts, attempted.elapsed());
                }
            }
            AttemptOutcome::TooManyRows => {
                context.candidates = Some(C::grantable_slots(conn, semaphore, in_transaction)?);
            }
        }
    }
}

fn back_off(attempts: u32, attempt: Duration) {
    sleep(backoff::jittered(retry_delay(attempts, attempt)));
}

/// The longest pause after an attempt that found locked slots only.
fn retry_delay(attempts: u32, attempt: Duration) -> Duration {
    let growing = backoff::growing(attempts - 1, MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    growing.max((attempt * PAUSE_PER_ATTEMPT).min(MAX_BUSY_DELAY))
}

fn not_registered(semaphore: &Semaphore) -> Error {
    Error::NotRegistered {
        semaphore: semaphore.name().to_owned(),
        permits: semaphore.permits(),
    }
}

/// Begins a transaction, or a savepoint, and locks a slot in it. Returns `false`, and leaves nothing open, when no
/// slot is free.
pub(super) fn begin_with_slot<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    budget: RetryBudget,
) -> Result<bool, Error> {
    semaphore.validate()?;
    let in_transaction = depth::depth(conn)? > 0;
    let mut restarts = 0;
    let grant = acquire_loop(conn, semaphore, in_transaction, budget, |conn, context| {
        let started = if in_transaction {
            run::begin_savepoint(conn)?;
            true
        } else {
            C::begin_hold(conn)?
        };
        if !started {
            return Ok(AttemptOutcome::Locked);
        }
        let outcome = C::try_hold(conn, semaphore, context);
        if !matches!(outcome, Ok(AttemptOutcome::Granted(_))) {
            run::roll_back(conn);
        }
        match outcome {
            // A transaction that has done nothing else can be restarted without effect.
            Err(error) if error.is_retryable() && !in_transaction && restarts < MAX_ATTEMPTS => {
                restarts += 1;
                Ok(AttemptOutcome::Retry)
            }
            outcome => outcome,
        }
    })?;
    Ok(grant.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_attempts_are_repeated_less_often() {
        let millis = Duration::from_millis;
        for (attempts, attempt, expected) in [
            (1, Duration::ZERO, Duration::from_micros(250)),
            (3, Duration::ZERO, millis(1)),
            (3, millis(4), millis(12)),
            (u32::MAX, Duration::ZERO, millis(8)),
            (1, millis(10_000), millis(50)),
        ] {
            assert_eq!(retry_delay(attempts, attempt), expected);
        }
    }
}
