//! Attempts at a slot, one after the other, until one of them decides.

use std::thread::sleep;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::engine::slot_store::{Attempt, Granted, Place, SlotStore, Wanted};
use crate::{Error, Lease, Semaphore, Slot, Wait, nesting, pause, transaction};

/// When a slot that is free but locked is asked for no more: its lock is taken for a holder's then.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// How often it is asked for: the lock of somebody who acquires, releases or purges lasts for one
    /// statement or its commit.
    looks: u32,
    /// For how long somebody who adds or removes slots is waited for.
    change: Duration,
}

/// Of somebody who does not wait.
const ONCE: Effort = Effort {
    looks: LOOKS,
    change: LONGEST_CHANGE,
};

const LOOKS: u32 = 10;

/// The longest pause between two of them.
const LONGEST_LOOK: Duration = Duration::from_millis(8);

/// For how long slots that are being added or removed are waited for, at most: a batch of rows and its
/// COMMIT. And at least, however short the wait that was asked for.
const LONGEST_CHANGE: Duration = Duration::from_secs(2);
const SHORTEST_CHANGE: Duration = Duration::from_millis(100);

/// The first pause of somebody who waits for a slot, and the longest: between 10 and 20 questions a
/// second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Leases a slot; `None` when none is free.
pub(crate) fn lease<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &Lease,
    effort: Effort,
) -> Result<Option<Slot>, Error> {
    semaphore.check()?;
    lease.check()?;
    let token = Uuid::new_v4();
    let wanted = Wanted {
        semaphore,
        token: token.into_bytes(),
        holder: lease.holder_text(),
        lease_us: lease.micros()?,
        at_least_us: lease.at_least_micros()?,
    };
    let in_transaction = nesting::depth(conn)? > 0;
    let mut begun = Instant::now();
    let granted = decide(conn, semaphore, in_transaction, effort, |conn, place| {
        begun = Instant::now();
        C::try_lease(conn, &wanted, place)
    })?;
    Ok(granted.map(|granted| Slot {
        semaphore: semaphore.name().to_owned(),
        number: granted.number.unsigned_abs(),
        token,
        fence: granted.fence,
        deadline: begun + lease.duration().saturating_sub(C::CLOCK_STEP),
    }))
}

/// Repeats an attempt until it decides.
fn decide<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
    in_transaction: bool,
    effort: Effort,
    mut attempt: impl FnMut(&mut C, &Place) -> Result<Attempt, Error>,
) -> Result<Option<Granted>, Error> {
    let mut place = Place {
        in_transaction,
        open: None,
    };
    let mut looked = 0;
    let begun = Instant::now();
    loop {
        match attempt(conn, &place)? {
            Attempt::Granted(granted) => return Ok(Some(granted)),
            Attempt::Full => return Ok(None),
            Attempt::Again => {}
            Attempt::Locked => {
                looked += 1;
                if looked >= effort.looks {
                    // Locked for longer: by transactions that hold slots, or by whoever changes rows.
                    let others_turn = !in_transaction
                        && begun.elapsed() < effort.change
                        && C::slots_change(conn)?;
                    if !others_turn {
                        return Ok(None);
                    }
                }
                look_again_later(looked);
                place.open = None;
            }
            Attempt::Missing if in_transaction => return Err(not_registered(semaphore)),
            Attempt::Missing => {
                if C::add_slots(conn, semaphore, false)? {
                    // What was locked has been purged.
                    looked = 0;
                } else {
                    looked += 1;
                    if looked >= effort.looks && begun.elapsed() >= effort.change {
                        return Ok(None);
                    }
                    look_again_later(looked);
                }
            }
            Attempt::Surplus => place.open = Some(C::open_slots(conn, semaphore, in_transaction)?),
        }
    }
}

fn look_again_later(looked: u32) {
    // The first time at once: most of those who are in the way are gone by then.
    if looked > 1 {
        let longest = pause::growing(looked - 2, Duration::from_micros(500), LONGEST_LOOK);
        sleep(pause::jittered(longest));
    }
}

fn not_registered(semaphore: &Semaphore) -> Error {
    Error::NotRegistered {
        semaphore: semaphore.name().to_owned(),
        permits: semaphore.permits(),
    }
}

/// Leases a slot, within a time.
pub(crate) fn lease_within<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
    wanted: &Lease,
    wait: Wait,
) -> Result<Slot, Error> {
    within(semaphore, wait, |effort| {
        lease(conn, semaphore, wanted, effort)
    })
}

/// Repeats `attempt` until it has something or the time is up.
pub(crate) fn within<T>(
    semaphore: &Semaphore,
    wait: Wait,
    mut attempt: impl FnMut(Effort) -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    if let Wait::AtMost(asked) = wait
        && asked > Wait::LONGEST
    {
        return Err(Error::InvalidWait { asked });
    }
    let begun = Instant::now();
    let what = || format!("a slot of {semaphore}");
    for round in 0.. {
        let effort = Effort {
            // Who asks again soon need not look twice.
            looks: if round == 0 { LOOKS } else { 1 },
            change: match wait {
                Wait::AtMost(limit) => limit
                    .saturating_sub(begun.elapsed())
                    .clamp(SHORTEST_CHANGE, LONGEST_CHANGE),
                Wait::No | Wait::Forever => LONGEST_CHANGE,
            },
        };
        if let Some(value) = attempt(effort)? {
            return Ok(value);
        }
        let longest = pause::growing(round, FIRST_PAUSE, LONGEST_PAUSE);
        let pause = pause::jittered(longest);
        match wait {
            Wait::No => return Err(Error::Held { what: what() }),
            Wait::Forever => sleep(pause),
            Wait::AtMost(limit) => {
                let left = limit.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    return Err(Error::TimedOut {
                        what: what(),
                        waited: begun.elapsed(),
                        source: None,
                    });
                }
                sleep(pause.min(left));
            }
        }
    }
    unreachable!("rounds have no end")
}

/// The looks of somebody who does not wait.
pub(crate) fn lease_at_once<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
    wanted: &Lease,
) -> Result<Option<Slot>, Error> {
    lease(conn, semaphore, wanted, ONCE)
}

/// Runs `work` in a transaction that holds a slot; `None`, and `work` not run, when none is free.
pub(crate) fn hold_at_once<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    work: F,
) -> Result<Option<T>, E>
where
    C: SlotStore,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    if begin_holding(conn, semaphore, ONCE)? {
        transaction::finish(conn, work).map(Some)
    } else {
        Ok(None)
    }
}

/// The same, within a time.
pub(crate) fn hold_within<C, T, E, F>(
    conn: &mut C,
    semaphore: &Semaphore,
    wait: Wait,
    work: F,
) -> Result<T, E>
where
    C: SlotStore,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    within(semaphore, wait, |effort| {
        Ok(begin_holding(conn, semaphore, effort)?.then_some(()))
    })?;
    transaction::finish(conn, work)
}

/// Opens a transaction, or a savepoint, and locks a slot in it. `false`, and nothing open, when none is
/// free.
fn begin_holding<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
    effort: Effort,
) -> Result<bool, Error> {
    semaphore.check()?;
    let in_transaction = nesting::depth(conn)? > 0;
    let mut started_over = 0;
    let granted = decide(conn, semaphore, in_transaction, effort, |conn, place| {
        let begun = if in_transaction {
            transaction::begin_savepoint(conn)?;
            true
        } else {
            C::begin_to_hold(conn)?
        };
        if !begun {
            return Ok(Attempt::Locked);
        }
        let attempt = C::try_hold(conn, semaphore, place);
        if !matches!(attempt, Ok(Attempt::Granted(_))) {
            transaction::roll_back(conn);
        }
        match attempt {
            // A transaction that has done nothing else starts over unseen.
            Err(error) if error.is_retryable() && !in_transaction && started_over < LOOKS => {
                started_over += 1;
                Ok(Attempt::Again)
            }
            attempt => attempt,
        }
    })?;
    Ok(granted.is_some())
}
