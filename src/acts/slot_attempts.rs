//! Attempts to acquire a slot, repeated while a free slot is locked or slots are missing.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::acts::cancel_guard::{CancelGuard, unless_dropped};
use crate::acts::transaction::{self, assert_open_if_in_transaction};
use crate::engine::Engine;
use crate::engine::ending;
use crate::engine::slots::{
    AttemptContext, AttemptOutcome, BatchOutcome, Grant, LeaseRequest, RegisteredPermits,
};
use crate::link::depth;
use crate::rt::{self, backoff, caught};
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

/// Reads the number of permits of a semaphore that has none of its own. If it is 0, or another session has the table locked, no slot
/// may be granted: the attempt gets no candidates. It still checks the isolation level and autocommit.
async fn find_permits(
    engine: &mut dyn Engine,
    attempts: &mut SlotAttempts<'_>,
) -> Result<(), Error> {
    if attempts.semaphore.permits().is_some() {
        return Ok(());
    }
    let name = attempts.semaphore.name();
    let permits = match engine.registered_permits(name).await? {
        RegisteredPermits::Number(permits) => permits.unsigned_abs(),
        RegisteredPermits::TableLocked => 0,
        RegisteredPermits::Missing => {
            return Err(Error::NotRegistered {
                semaphore: name.to_owned(),
                permits: None,
            });
        }
    };
    if permits == 0 {
        attempts.context.candidates = Some(Vec::new());
    }
    let semaphore = Semaphore::new(name, permits.max(1));
    semaphore.validate()?;
    attempts.semaphore = Cow::Owned(semaphore);
    Ok(())
}

pub(crate) async fn acquire(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    token: Uuid,
    budget: RetryBudget,
) -> Result<Option<Slot>, Error> {
    semaphore.validate()?;
    lease.check()?;
    let holder = lease.holder_text();
    let (lease_us, min_hold_us) = (lease.micros()?, lease.min_hold_micros()?);
    // A time before the statement that set the lease: the start of the last attempt, or of its part after a wait for the write
    // lock.
    let mut started = Instant::now();
    let mut guard = CancelGuard::new(&mut *engine)?;
    guard.release_slots_of(semaphore.name(), vec![token]);
    let grant = caught(async {
        let engine = &mut *guard;
        assert_open_if_in_transaction(engine).await?;
        let mut attempts = SlotAttempts::new(engine, semaphore, budget)?;
        find_permits(engine, &mut attempts).await?;
        loop {
            started = Instant::now();
            let attempted = started;
            let request = LeaseRequest {
                semaphore: &attempts.semaphore,
                token: token.into_bytes(),
                holder: &holder,
                lease_us,
                min_hold_us,
            };
            let outcome = engine.try_lease(&request, &attempts.context).await?;
            if let AttemptOutcome::LeasedSince(_, since) = outcome {
                started = since;
            }
            if let ControlFlow::Break(grant) = attempts.after(engine, outcome, attempted).await? {
                return Ok::<_, Error>(grant);
            }
        }
    })
    .await;
    let grant = guard.finish_with(grant)?;
    Ok(grant.map(|grant| Slot {
        semaphore: semaphore.name().to_owned(),
        number: grant.number.unsigned_abs(),
        token,
        fence: grant.fence,
        deadline: started + lease.duration().saturating_sub(engine.clock_resolution()),
        others: Vec::new(),
    }))
}

/// Begins a transaction, or a savepoint, and locks a slot in it. Returns `None`, and leaves nothing open, when no slot is free.
pub(crate) async fn begin_with_slot(
    engine: &mut dyn Engine,
    semaphore: &Semaphore,
    budget: RetryBudget,
) -> Result<Option<()>, Error> {
    semaphore.validate()?;
    unless_dropped!(engine, |engine| async {
        let mut attempts = SlotAttempts::new(engine, semaphore, budget)?;
        let mut restarts = 0;
        loop {
            let attempted = Instant::now();
            let outcome = try_hold(engine, &mut attempts, &mut restarts).await?;
            if let ControlFlow::Break(grant) = attempts.after(engine, outcome, attempted).await? {
                return Ok::<_, Error>(grant.map(drop));
            }
        }
    })
}

async fn try_hold(
    engine: &mut dyn Engine,
    attempts: &mut SlotAttempts<'_>,
    restarts: &mut u32,
) -> Result<AttemptOutcome, Error> {
    let in_transaction = attempts.context.in_transaction;
    if in_transaction {
        transaction::begin_savepoint(engine).await?;
    } else if !engine.begin_hold().await? {
        return Ok(AttemptOutcome::Locked);
    }
    let held = async {
        // In the transaction too: in a session without autocommit the read would begin one.
        find_permits(engine, attempts).await?;
        engine
            .try_hold(&attempts.semaphore, &attempts.context)
            .await
    };
    let outcome = held.await;
    if !matches!(outcome, Ok(AttemptOutcome::Granted(_))) {
        ending::roll_back(engine).await;
    }
    match outcome {
        // A transaction that has done nothing else can be restarted without effect.
        Err(error) if error.is_retryable() && !in_transaction && *restarts < MAX_ATTEMPTS => {
            *restarts += 1;
            Ok(AttemptOutcome::Retry)
        }
        outcome => outcome,
    }
}

/// What follows an attempt: its end, or a pause and another attempt.
struct SlotAttempts<'a> {
    semaphore: Cow<'a, Semaphore>,
    budget: RetryBudget,
    context: AttemptContext,
    started: Instant,
    /// The number of attempts that found the free slots locked,
    locked: u32,
    /// and of those that found slots missing, which others were adding.
    looks: u32,
}

impl<'a> SlotAttempts<'a> {
    fn new(
        engine: &mut dyn Engine,
        semaphore: &'a Semaphore,
        budget: RetryBudget,
    ) -> Result<Self, Error> {
        let preferred = budget.preferred;
        Ok(Self {
            semaphore: Cow::Borrowed(semaphore),
            budget,
            context: AttemptContext {
                in_transaction: depth::depth(engine.status())? > 0,
                candidates: None,
                preferred: preferred.and_then(|number| i32::try_from(number).ok()),
            },
            started: Instant::now(),
            locked: 0,
            looks: 0,
        })
    }

    /// Ends with the slot that an attempt has acquired, or without one when none is free. Otherwise pauses.
    async fn after(
        &mut self,
        engine: &mut dyn Engine,
        outcome: AttemptOutcome,
        attempted: Instant,
    ) -> Result<ControlFlow<Option<Grant>>, Error> {
        const REFUSED: ControlFlow<Option<Grant>> = ControlFlow::Break(None);
        let (semaphore, budget) = (&*self.semaphore, self.budget);
        let in_transaction = self.context.in_transaction;
        let outcome = match outcome {
            AttemptOutcome::TooManyRows => engine.find_candidates(semaphore).await?,
            outcome => outcome,
        };
        match outcome {
            AttemptOutcome::Granted(grant) | AttemptOutcome::LeasedSince(grant, _) => {
                return Ok(ControlFlow::Break(Some(grant)));
            }
            AttemptOutcome::AllLeased
            | AttemptOutcome::TableLocked
            | AttemptOutcome::TooManyRows => return Ok(REFUSED),
            // Its rollback has found that the connection is lost. Another attempt would only find it broken.
            AttemptOutcome::Locked if !in_transaction && depth::depth(engine.status()).is_err() => {
                return Ok(REFUSED);
            }
            AttemptOutcome::Retry => {}
            AttemptOutcome::Locked => {
                self.locked += 1;
                if self.locked >= budget.max_attempts {
                    // Locked for longer: by transactions that hold slots, or by a session that adds or removes rows.
                    let resizing = !in_transaction
                        && self.started.elapsed() < budget.resize_timeout
                        && engine.resize_in_progress().await?;
                    if !resizing {
                        tracing::debug!(%semaphore, attempts = self.locked, "no slot: the free slots are locked");
                        return Ok(REFUSED);
                    }
                    // The free slots may be locked by others that have waited for the same session.
                    self.locked = 1;
                }
                rt::pause(pause_after(self.locked, attempted.elapsed())).await;
                self.context.candidates = None;
            }
            AttemptOutcome::TooFewRows if in_transaction => {
                return Err(Error::NotRegistered {
                    semaphore: semaphore.name().to_owned(),
                    permits: semaphore.permits(),
                });
            }
            AttemptOutcome::TooFewRows => {
                match create_slots(engine, semaphore, false).await? {
                    // The locked rows have been purged.
                    BatchOutcome::Complete => self.locked = 0,
                    BatchOutcome::TableLocked => return Ok(REFUSED),
                    _ => {
                        // Counted apart: when the slots are there, all that have waited for them try at once.
                        self.looks += 1;
                        let waited = self.started.elapsed();
                        if self.looks >= budget.max_attempts && waited >= budget.resize_timeout {
                            tracing::debug!(%semaphore, looks = self.looks, "no slot: slots are still being added");
                            return Ok(REFUSED);
                        }
                        rt::pause(pause_after(self.looks, attempted.elapsed())).await;
                    }
                }
            }
            AttemptOutcome::Candidates(slots) => self.context.candidates = Some(slots),
        }
        Ok(ControlFlow::Continue(()))
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

        let mut conn = diesel::SqliteConnection::establish(":memory:").expect("a connection");
        let mut engine = diesel::SqliteConnection::engine(&mut conn).expect("an engine");
        let semaphore = Semaphore::new("reports", 1);
        let mut attempts = SlotAttempts::new(&mut *engine, &semaphore, NO_WAIT).expect("sound");
        depth::mark_broken(engine.status());
        let locked = attempts.after(&mut *engine, AttemptOutcome::Locked, Instant::now());
        let ended = rt::block_on(locked);
        assert!(
            matches!(ended, Ok(ControlFlow::Break(None))),
            "another connection may acquire a slot"
        );
    }
}
