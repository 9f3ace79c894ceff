//! Acquires slots: repeats attempts, waits in the process's queue, and retries until a time limit.

use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::queue::{Queues, Released, Ticket, Turn};
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, Grant, LeaseRequest, SemaphoreBackend,
};
use crate::{
    Error, LeaseOptions, Semaphore, Slot, Wait, backoff, transaction::depth, transaction::run,
};

/// How long an acquisition retries a free slot that is locked before it counts the slot as held.
#[derive(Clone, Copy)]
pub(crate) struct RetryBudget {
    /// The lock of a session that acquires, releases or purges a slot lasts for one statement or its COMMIT.
    max_attempts: u32,
    /// The time limit for waiting for a session that adds or removes slots.
    resize_timeout: Duration,
    /// A slot that is probably free.
    preferred: Option<u32>,
}

/// The budget of an acquisition that does not wait.
const NO_WAIT: RetryBudget = RetryBudget {
    max_attempts: MAX_ATTEMPTS,
    resize_timeout: MAX_RESIZE_WAIT,
    preferred: None,
};

const MAX_ATTEMPTS: u32 = 10;

/// The longest pause between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(8);

/// The limits of the wait for slots that are being added or removed: a batch of rows and its COMMIT. The lower limit
/// applies however short the requested wait is.
const MAX_RESIZE_WAIT: Duration = Duration::from_secs(2);
const MIN_RESIZE_WAIT: Duration = Duration::from_millis(100);

/// How long an acquisition that does not wait for a slot waits for its turn to query: a few queries of others.
const MAX_TURN_WAIT: Duration = Duration::from_millis(10);

/// The waiters of this process by the semaphore's name.
static QUEUES: LazyLock<Queues<String, Target>> = LazyLock::new(Queues::new);

/// Waiters with the same name and the same target wait for the same slots.
#[derive(Clone, PartialEq, Eq)]
struct Target {
    database: String,
    permits: u32,
}

/// Leases a slot; `None` when none is free.
pub(crate) fn acquire<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    budget: RetryBudget,
) -> Result<Option<Slot>, Error> {
    semaphore.validate()?;
    lease.check()?;
    let token = Uuid::new_v4();
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
                back_off(attempts);
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
                    back_off(attempts);
                }
            }
            AttemptOutcome::TooManyRows => {
                context.candidates = Some(C::grantable_slots(conn, semaphore, in_transaction)?);
            }
        }
    }
}

fn back_off(attempts: u32) {
    // The first retry follows at once: most locks have ended by then.
    if attempts > 1 {
        let longest = backoff::growing(attempts - 2, Duration::from_micros(500), MAX_RETRY_DELAY);
        sleep(backoff::jittered(longest));
    }
}

fn not_registered(semaphore: &Semaphore) -> Error {
    Error::NotRegistered {
        semaphore: semaphore.name().to_owned(),
        permits: semaphore.permits(),
    }
}

/// Leases a slot within a time limit.
pub(crate) fn acquire_timeout<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    wait: Wait,
) -> Result<Slot, Error> {
    poll_until(&mut OwnConnection(conn), semaphore, wait, |conn, budget| {
        acquire(&mut *conn.0, semaphore, lease, budget)
    })
}

/// How a waiter reaches the database.
pub(crate) trait WaiterConnection {
    /// Whether a transaction is open on the connection.
    fn is_in_transaction(&mut self) -> Result<bool, Error>;

    /// See [`SemaphoreBackend::database_id`].
    fn database_id(&mut self) -> Result<Option<String>, Error>;
}

/// The connection on which the method was called.
struct OwnConnection<'a, C>(&'a mut C);

impl<C: SemaphoreBackend> WaiterConnection for OwnConnection<'_, C> {
    fn is_in_transaction(&mut self) -> Result<bool, Error> {
        Ok(depth::depth(self.0)? > 0)
    }

    fn database_id(&mut self) -> Result<Option<String>, Error> {
        C::database_id(self.0)
    }
}

/// Repeats `attempt` until it returns a value or the time limit has passed, in turn with other waiters of this
/// process.
pub(crate) fn poll_until<W: WaiterConnection, T>(
    waiter: &mut W,
    semaphore: &Semaphore,
    wait: Wait,
    mut attempt: impl FnMut(&mut W, RetryBudget) -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    if let Wait::AtMost(requested) = wait
        && requested > Wait::LONGEST
    {
        return Err(Error::InvalidWait { requested });
    }
    semaphore.validate()?;
    let started = Instant::now();
    let resource = || format!("a slot of {semaphore}");
    let deadline = match wait {
        Wait::AtMost(limit) => Some(started + limit),
        Wait::No | Wait::Forever => None,
    };
    let (name, permits) = (semaphore.name().to_owned(), semaphore.permits());
    // Acquisition is re-entrant in a transaction; in the queue the transaction could wait for waiters that wait for it.
    let mut ticket = if wait == Wait::No || waiter.is_in_transaction()? {
        QUEUES.independent(name)
    } else {
        QUEUES.join(name, max_concurrent(semaphore), |target| {
            target.permits == permits
        })
    };
    let mut first = true;
    loop {
        let notified = match ticket.wait(deadline) {
            Turn::Query { notified } => notified,
            Turn::Identify => {
                ticket.set_target(target(waiter, permits)?);
                continue;
            }
        };
        let budget = RetryBudget {
            // A waiter that polls soon again needs few attempts: a locked slot is mostly being granted to another.
            max_attempts: match wait {
                Wait::No => MAX_ATTEMPTS,
                Wait::AtMost(_) | Wait::Forever if first || notified.is_some() => 3,
                Wait::AtMost(_) | Wait::Forever => 1,
            },
            resize_timeout: match wait {
                Wait::AtMost(limit) => limit
                    .saturating_sub(started.elapsed())
                    .clamp(MIN_RESIZE_WAIT, MAX_RESIZE_WAIT),
                Wait::No | Wait::Forever => MAX_RESIZE_WAIT,
            },
            preferred: notified.and_then(|Released(number)| number),
        };
        first = false;
        if let Some(value) = attempt(waiter, budget)? {
            ticket.finish();
            return Ok(value);
        }
        if wait == Wait::No {
            return Err(Error::Unavailable {
                resource: resource(),
            });
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::LockTimeout {
                resource: resource(),
                waited: started.elapsed(),
                limit: match wait {
                    Wait::AtMost(limit) => Some(limit),
                    Wait::No | Wait::Forever => None,
                },
                source: None,
            });
        }
        if ticket.needs_target() {
            ticket.set_target(target(waiter, permits)?);
        }
        ticket.record_refusal();
    }
}

/// The number of threads that may query at once for the first time: more would contend for the same slots.
fn max_concurrent(semaphore: &Semaphore) -> usize {
    usize::try_from(semaphore.permits()).unwrap_or(usize::MAX)
}

fn target(waiter: &mut impl WaiterConnection, permits: u32) -> Result<Option<Target>, Error> {
    let database = waiter.database_id()?;
    Ok(database.map(|database| Target { database, permits }))
}

/// Notifies waiters of this process that `count` slots of the semaphore were released, among them `number` if it is
/// known.
pub(crate) fn notify_released(semaphore: &str, count: usize, number: Option<u32>) {
    QUEUES.notify_released(semaphore, count, number);
}

/// Notifies waiters when the transaction that holds a slot has ended, whatever its outcome.
struct NotifyOnDrop<'a>(Option<&'a Semaphore>);

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(semaphore) = self.0 {
            notify_released(semaphore.name(), 1, None);
        }
    }
}

/// Runs `work` in the transaction, or savepoint, that holds a slot, and ends it.
fn finish_with_slot<C, T, E, F>(conn: &mut C, semaphore: &Semaphore, work: F) -> Result<T, E>
where
    C: SemaphoreBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    let outermost = depth::depth(conn)? == 1;
    let _notify = NotifyOnDrop(outermost.then_some(semaphore));
    run::commit_or_rollback(conn, work)
}

/// Leases a slot without waiting; `None` when none is free.
pub(crate) fn try_acquire<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let _turn = wait_for_turn(conn, semaphore)?;
    acquire(conn, semaphore, lease, NO_WAIT)
}

/// Waits for the turn of an acquisition that queries once.
fn wait_for_turn<C: SemaphoreBackend>(
    conn: &mut C,
    semaphore: &Semaphore,
) -> Result<Ticket<'static, String, Target>, Error> {
    semaphore.validate()?;
    let name = semaphore.name().to_owned();
    if depth::depth(conn)? > 0 {
        return Ok(QUEUES.independent(name));
    }
    let mut ticket = QUEUES.join_once(name, max_concurrent(semaphore));
    ticket.wait(Some(Instant::now() + MAX_TURN_WAIT));
    Ok(ticket)
}

/// Runs `work` in a transaction that holds a slot; returns `None`, without running `work`, when none is free.
pub(crate) fn try_with_slot<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    work: F,
) -> Result<Option<T>, E>
where
    C: SemaphoreBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    let turn = wait_for_turn(conn, semaphore)?;
    let started = begin_with_slot(conn, semaphore, NO_WAIT)?;
    drop(turn);
    if started {
        finish_with_slot(conn, semaphore, work).map(Some)
    } else {
        Ok(None)
    }
}

/// Runs `work` in a transaction that holds a slot, which it acquires within a time limit.
pub(crate) fn with_slot<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    wait: Wait,
    work: F,
) -> Result<T, E>
where
    C: SemaphoreBackend,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    poll_until(&mut OwnConnection(conn), semaphore, wait, |conn, budget| {
        Ok(begin_with_slot(&mut *conn.0, semaphore, budget)?.then_some(()))
    })?;
    finish_with_slot(conn, semaphore, work)
}

/// Begins a transaction, or a savepoint, and locks a slot in it. Returns `false`, and leaves nothing open, when no
/// slot is free.
fn begin_with_slot<C: SemaphoreBackend>(
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
