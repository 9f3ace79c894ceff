//! Attempts to acquire a slot, repeated while a free slot is locked or slots are missing.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::{CancelGuard, unless_dropped};
use crate::acts::transaction;
use crate::engine::Engine;
use crate::engine::ending;
use crate::engine::slots::{AttemptContext, AttemptOutcome, BatchOutcome, Grant, LeaseRequest};
use crate::link::depth;
use crate::rt;
use crate::rt::backoff;
use crate::rt::caught;
use crate::{Error, LeaseOptions, Semaphore, Slot};

/// How long an acquisition retries a free slot that is locked before it counts the slot as held.
#[derive(Clone, Copy)]
pub(crate) struct RetryBudget {
    /// The lock of a session that acquires, releases or purges a slot lasts for one statement or its COMMIT.
    pub(crate) max_attempts: u32,
    /// The time limit for waiting for a session that adds or removes slots.
    pub(crate) resize_timeout: Duration,
    pub(crate) preferred: Option<u32>,
}

pub(crate) const NO_WAIT: RetryBudget = RetryBudget {
    max_attempts: MAX_ATTEMPTS,
    resize_timeout: MAX_RESIZE_WAIT,
    preferred: None,
};

pub(crate) const MAX_ATTEMPTS: u32 = 10;

/// The longest pauses after the first and after a later attempt, while attempts are fast.
const MIN_RETRY_DELAY: Duration = Duration::from_micros(250);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(8);

/// How many times as long as the attempt the pause may be, because attempts that are refused take processor time from the
/// holders: see "Semaphores" in DESIGN.md.
const PAUSE_PER_ATTEMPT: u32 = 3;

/// The longest pause for [`PAUSE_PER_ATTEMPT`].
const MAX_BUSY_DELAY: Duration = Duration::from_millis(50);

/// The limits of the wait for slots that are being added or removed: a batch of rows and its COMMIT. The lower limit
/// applies however short the requested wait is.
pub(crate) const MAX_RESIZE_WAIT: Duration = Duration::from_secs(2);
pub(crate) const MIN_RESIZE_WAIT: Duration = Duration::from_millis(100);

pub(crate) async fn acquire(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
    budget: RetryBudget,
) -> Result<Option<Slot>, Error> {
    semaphore.validate()?;
    lease.check()?;
    let mut guard = CancelGuard::new(engine)?;
    guard.release_slot_of(semaphore.name(), token);
    let slot = caught(lease_slot(&mut *guard, semaphore, lease, token, budget)).await;
    guard.finish_with(slot)
}

async fn lease_slot(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
    budget: RetryBudget,
) -> Result<Option<Slot>, Error> {
    let request = LeaseRequest {
        semaphore,
        token: token.into_bytes(),
        holder: lease.holder_text(),
        lease_us: lease.micros()?,
        min_hold_us: lease.min_hold_micros()?,
    };
    let in_transaction = depth::depth(engine.status())? > 0;
    if in_transaction {
        engine.assert_open().await?;
    }
    let mut attempt = LeaseAttempt {
        request: &request,
        started: Instant::now(),
    };
    let grant = acquire_loop(engine, semaphore, in_transaction, budget, &mut attempt).await?;
    let started = attempt.started;
    Ok(grant.map(|grant| Slot {
        semaphore: semaphore.name().to_owned(),
        number: grant.number.unsigned_abs(),
        token,
        fence: grant.fence,
        deadline: started + lease.duration().saturating_sub(engine.clock_resolution()),
    }))
}

trait SlotAttempt {
    fn run(
        &mut self,
        engine: &mut dyn Engine,
        context: &AttemptContext,
    ) -> impl Future<Output = Result<AttemptOutcome, Error>> + Send;
}

struct LeaseAttempt<'a> {
    request: &'a LeaseRequest<'a>,
    /// A time before the statement that set the lease: the start of the last attempt, or of its part after a wait for the
    /// write lock.
    started: Instant,
}

impl SlotAttempt for LeaseAttempt<'_> {
    async fn run(
        &mut self,
        engine: &mut dyn Engine,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        self.started = Instant::now();
        let outcome = engine.try_lease(self.request, context).await?;
        if let AttemptOutcome::LeasedSince(_, since) = outcome {
            self.started = since;
        }
        Ok(outcome)
    }
}

struct HoldAttempt<'a> {
    semaphore: &'a Semaphore,
    restarts: u32,
}

impl SlotAttempt for HoldAttempt<'_> {
    async fn run(
        &mut self,
        engine: &mut dyn Engine,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error> {
        let started = if context.in_transaction {
            transaction::begin_savepoint(engine).await?;
            true
        } else {
            engine.begin_hold().await?
        };
        if !started {
            return Ok(AttemptOutcome::Locked);
        }
        let outcome = engine.try_hold(self.semaphore, context).await;
        if !matches!(outcome, Ok(AttemptOutcome::Granted(_))) {
            ending::roll_back(engine).await;
        }
        match outcome {
            // A transaction that has done nothing else can be restarted without effect.
            Err(error)
                if error.is_retryable()
                    && !context.in_transaction
                    && self.restarts < MAX_ATTEMPTS =>
            {
                self.restarts += 1;
                Ok(AttemptOutcome::Retry)
            }
            outcome => outcome,
        }
    }
}

async fn acquire_loop(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    in_transaction: bool,
    budget: RetryBudget,
    attempt: &mut impl SlotAttempt,
) -> Result<Option<Grant>, Error> {
    let preferred = budget.preferred;
    let mut context = AttemptContext {
        in_transaction,
        candidates: None,
        preferred: preferred.and_then(|number| i32::try_from(number).ok()),
    };
    let (mut attempts, mut looks) = (0, 0);
    let started = Instant::now();
    loop {
        let attempted = Instant::now();
        match attempt.run(engine, &context).await? {
            AttemptOutcome::Granted(grant) | AttemptOutcome::LeasedSince(grant, _) => {
                return Ok(Some(grant));
            }
            AttemptOutcome::AllLeased | AttemptOutcome::TableLocked => return Ok(None),
            // Its rollback has found that the connection is lost. Another attempt would only find it broken.
            AttemptOutcome::Locked if !in_transaction && depth::depth(engine.status()).is_err() => {
                return Ok(None);
            }
            AttemptOutcome::Retry => {}
            AttemptOutcome::Locked => {
                attempts += 1;
                if attempts >= budget.max_attempts {
                    // Locked for longer: by transactions that hold slots, or by a session that adds or removes rows.
                    let resizing = !in_transaction
                        && started.elapsed() < budget.resize_timeout
                        && engine.resize_in_progress().await?;
                    if !resizing {
                        tracing::debug!(%semaphore, attempts, "no slot: the free slots are locked");
                        return Ok(None);
                    }
                    // The free slots may be locked by others that have waited for the same session.
                    attempts = 1;
                }
                rt::pause(pause_after(attempts, attempted.elapsed())).await;
                context.candidates = None;
            }
            AttemptOutcome::TooFewRows if in_transaction => return Err(not_registered(semaphore)),
            AttemptOutcome::TooFewRows => {
                match create_slots(engine, semaphore, false).await? {
                    // The locked rows have been purged.
                    BatchOutcome::Complete => attempts = 0,
                    BatchOutcome::TableLocked => return Ok(None),
                    _ => {
                        // Counted apart: when the slots are there, all that have waited for them try at once.
                        looks += 1;
                        let waited = started.elapsed();
                        if looks >= budget.max_attempts && waited >= budget.resize_timeout {
                            tracing::debug!(%semaphore, looks, "no slot: slots are still being added");
                            return Ok(None);
                        }
                        rt::pause(pause_after(looks, attempted.elapsed())).await;
                    }
                }
            }
            AttemptOutcome::TooManyRows => match engine.grantable_slots(semaphore).await? {
                Some(grantable) => context.candidates = Some(grantable),
                None => return Ok(None),
            },
        }
    }
}

/// Creates the missing slots up to the number of permits, in transactions of its own. When another session is
/// adding or removing slots, or has a table locked, waits for it if `block` is set, and otherwise returns
/// [`Contended`](BatchOutcome::Contended) or [`TableLocked`](BatchOutcome::TableLocked).
pub(crate) async fn create_slots(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    block: bool,
) -> Result<BatchOutcome, Error> {
    loop {
        match engine.create_batch(semaphore, block).await? {
            BatchOutcome::Partial => {}
            BatchOutcome::NoFenceFloor => engine.create_fence_floor().await?,
            ended => return Ok(ended),
        }
    }
}

fn pause_after(attempts: u32, attempt: Duration) -> Duration {
    backoff::jittered(retry_delay(attempts, attempt))
}

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

/// Begins a transaction, or a savepoint, and locks a slot in it. Returns `None`, and leaves nothing open, when no slot is free.
pub(crate) async fn begin_with_slot(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    budget: RetryBudget,
) -> Result<Option<()>, Error> {
    semaphore.validate()?;
    let in_transaction = depth::depth(engine.status())? > 0;
    let mut attempt = HoldAttempt {
        semaphore,
        restarts: 0,
    };
    let grant = unless_dropped!(engine, |engine| acquire_loop(
        engine,
        semaphore,
        in_transaction,
        budget,
        &mut attempt
    ));
    Ok(grant?.map(drop))
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

    #[cfg(all(feature = "r2d2", feature = "sqlite"))]
    #[test]
    fn attempt_that_loses_its_connection_is_a_refusal() {
        use diesel::Connection;

        use crate::engine::HasEngine;

        struct LostAtRollback(u32);

        impl SlotAttempt for LostAtRollback {
            async fn run(
                &mut self,
                engine: &mut dyn Engine,
                _: &AttemptContext,
            ) -> Result<AttemptOutcome, Error> {
                self.0 += 1;
                depth::mark_broken(engine.status());
                Ok(AttemptOutcome::Locked)
            }
        }

        let mut conn = diesel::SqliteConnection::establish(":memory:").expect("a connection");
        let semaphore = Semaphore::new("reports", 1);
        let mut attempt = LostAtRollback(0);
        let granted = rt::block_on(acquire_loop(
            &mut *diesel::SqliteConnection::engine(&mut conn).expect("an engine"),
            &semaphore,
            false,
            NO_WAIT,
            &mut attempt,
        ));
        assert!(
            matches!(granted, Ok(None)),
            "another connection may acquire a slot"
        );
        assert_eq!(attempt.0, 1);
    }
}
