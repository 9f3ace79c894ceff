//! Attempts at a slot, one after the other, until one of them decides.

use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::semaphore::backend::{Attempt, Granted, Place, SlotStore, Wanted};
use crate::semaphore::queue::{Freed, Next, Queues, Ticket};
use crate::{
    Error, LeaseOptions, Semaphore, Slot, Wait, backoff, transaction::depth, transaction::run,
};

/// When a slot that is free but locked is asked for no more: its lock is taken for a holder's then.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// How often it is asked for: the lock of somebody who acquires, releases or purges lasts for one
    /// statement or its commit.
    looks: u32,
    /// For how long somebody who adds or removes slots is waited for.
    change: Duration,
    /// A slot that is likely to be free.
    likely: Option<u32>,
}

/// Of somebody who does not wait.
const ONCE: Effort = Effort {
    looks: LOOKS,
    change: LONGEST_CHANGE,
    likely: None,
};

const LOOKS: u32 = 10;

/// The longest pause between two of them.
const LONGEST_LOOK: Duration = Duration::from_millis(8);

/// For how long slots that are being added or removed are waited for, at most: a batch of rows and its
/// COMMIT. And at least, however short the wait that was asked for.
const LONGEST_CHANGE: Duration = Duration::from_secs(2);
const SHORTEST_CHANGE: Duration = Duration::from_millis(100);

/// How long somebody who does not wait for a slot waits for its turn to ask: a few questions of others.
const LONGEST_TURN: Duration = Duration::from_millis(10);

/// Those of this process who wait for slots, by the semaphore's name.
static WAITING: LazyLock<Queues<String, Site>> = LazyLock::new(Queues::new);

/// Where a name is one semaphore, and all who wait for it want the same.
#[derive(Clone, PartialEq, Eq)]
struct Site {
    database: String,
    permits: u32,
}

/// Leases a slot; `None` when none is free.
pub(crate) fn lease<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
    effort: Effort,
) -> Result<Option<Slot>, Error> {
    semaphore.validate()?;
    lease.check()?;
    let token = Uuid::new_v4();
    let wanted = Wanted {
        semaphore,
        token: token.into_bytes(),
        holder: lease.holder_text(),
        lease_us: lease.micros()?,
        at_least_us: lease.at_least_micros()?,
    };
    let in_transaction = depth::depth(conn)? > 0;
    if in_transaction {
        C::assert_open(conn)?;
    }
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
        likely: effort.likely.and_then(|number| i32::try_from(number).ok()),
    };
    let mut looked = 0;
    let begun = Instant::now();
    loop {
        match attempt(conn, &place)? {
            Attempt::Granted(granted) => return Ok(Some(granted)),
            Attempt::Full | Attempt::TableLocked => return Ok(None),
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
        let longest = backoff::growing(looked - 2, Duration::from_micros(500), LONGEST_LOOK);
        sleep(backoff::jittered(longest));
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
    wanted: &LeaseOptions,
    wait: Wait,
) -> Result<Slot, Error> {
    within(&mut Connected(conn), semaphore, wait, |conn, effort| {
        lease(&mut *conn.0, semaphore, wanted, effort)
    })
}

/// What those who wait ask the database with.
pub(crate) trait Asker {
    /// Whether a transaction is open on the connection.
    fn is_in_transaction(&mut self) -> Result<bool, Error>;

    /// As [`SlotStore::database`].
    fn database(&mut self) -> Result<Option<String>, Error>;
}

struct Connected<'a, C>(&'a mut C);

impl<C: SlotStore> Asker for Connected<'_, C> {
    fn is_in_transaction(&mut self) -> Result<bool, Error> {
        Ok(depth::depth(self.0)? > 0)
    }

    fn database(&mut self) -> Result<Option<String>, Error> {
        C::database(self.0)
    }
}

/// Repeats `attempt` until it has something or the time is up, in turn with others of this process.
pub(crate) fn within<A: Asker, T>(
    asker: &mut A,
    semaphore: &Semaphore,
    wait: Wait,
    mut attempt: impl FnMut(&mut A, Effort) -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    if let Wait::AtMost(requested) = wait
        && requested > Wait::LONGEST
    {
        return Err(Error::InvalidWait { requested });
    }
    semaphore.validate()?;
    let begun = Instant::now();
    let what = || format!("a slot of {semaphore}");
    let until = match wait {
        Wait::AtMost(limit) => Some(begun + limit),
        Wait::No | Wait::Forever => None,
    };
    let (name, permits) = (semaphore.name().to_owned(), semaphore.permits());
    // A transaction does not stand in its own way, but would in that of those who wait before it.
    let mut ticket = if wait == Wait::No || asker.is_in_transaction()? {
        WAITING.alone(name)
    } else {
        WAITING.enter(name, most_at_once(semaphore), |site| {
            site.permits == permits
        })
    };
    let mut first = true;
    loop {
        let told = match ticket.wait(until) {
            Next::Ask { told } => told,
            Next::Identify => {
                ticket.is_at(site(asker, permits)?);
                continue;
            }
        };
        let effort = Effort {
            // Who asks again soon need not look often: what is locked is mostly being taken by another.
            looks: match wait {
                Wait::No => LOOKS,
                Wait::AtMost(_) | Wait::Forever if first || told.is_some() => 3,
                Wait::AtMost(_) | Wait::Forever => 1,
            },
            change: match wait {
                Wait::AtMost(limit) => limit
                    .saturating_sub(begun.elapsed())
                    .clamp(SHORTEST_CHANGE, LONGEST_CHANGE),
                Wait::No | Wait::Forever => LONGEST_CHANGE,
            },
            likely: told.and_then(|Freed(which)| which),
        };
        first = false;
        if let Some(value) = attempt(asker, effort)? {
            ticket.served();
            return Ok(value);
        }
        if wait == Wait::No {
            return Err(Error::Unavailable { resource: what() });
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(Error::LockTimeout {
                resource: what(),
                waited: begun.elapsed(),
                source: None,
            });
        }
        if ticket.is_unknown() {
            ticket.is_at(site(asker, permits)?);
        }
        ticket.refused();
    }
}

/// So many may ask for the first time at once: more would be in each other's way.
fn most_at_once(semaphore: &Semaphore) -> usize {
    usize::try_from(semaphore.permits()).unwrap_or(usize::MAX)
}

fn site(asker: &mut impl Asker, permits: u32) -> Result<Option<Site>, Error> {
    let database = asker.database()?;
    Ok(database.map(|database| Site { database, permits }))
}

/// So many slots of the semaphore have been released in this process, and this one among them: those who wait here
/// ask for them.
pub(crate) fn released(semaphore: &str, count: usize, number: Option<u32>) {
    WAITING.freed(semaphore, count, number);
}

/// Tells of a slot when the transaction that holds it has ended, however that ended.
struct Freeing<'a>(Option<&'a Semaphore>);

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        if let Some(semaphore) = self.0 {
            released(semaphore.name(), 1, None);
        }
    }
}

/// Runs `work` in the transaction, or savepoint, that holds a slot, and ends it.
fn finish_holding<C, T, E, F>(conn: &mut C, semaphore: &Semaphore, work: F) -> Result<T, E>
where
    C: SlotStore,
    F: FnOnce(&mut C) -> Result<T, E>,
    E: From<Error>,
{
    let outermost = depth::depth(conn)? == 1;
    let _freeing = Freeing(outermost.then_some(semaphore));
    run::commit_or_rollback(conn, work)
}

/// The looks of somebody who does not wait.
pub(crate) fn lease_at_once<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
    wanted: &LeaseOptions,
) -> Result<Option<Slot>, Error> {
    let _turn = turn_to_try(conn, semaphore)?;
    lease(conn, semaphore, wanted, ONCE)
}

/// The turn of somebody who asks once.
fn turn_to_try<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
) -> Result<Ticket<'static, String, Site>, Error> {
    semaphore.validate()?;
    let name = semaphore.name().to_owned();
    if depth::depth(conn)? > 0 {
        return Ok(WAITING.alone(name));
    }
    let mut ticket = WAITING.enter_once(name, most_at_once(semaphore));
    ticket.wait(Some(Instant::now() + LONGEST_TURN));
    Ok(ticket)
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
    let turn = turn_to_try(conn, semaphore)?;
    let begun = begin_holding(conn, semaphore, ONCE)?;
    drop(turn);
    if begun {
        finish_holding(conn, semaphore, work).map(Some)
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
    within(&mut Connected(conn), semaphore, wait, |conn, effort| {
        Ok(begin_holding(&mut *conn.0, semaphore, effort)?.then_some(()))
    })?;
    finish_holding(conn, semaphore, work)
}

/// Opens a transaction, or a savepoint, and locks a slot in it. `false`, and nothing open, when none is
/// free.
fn begin_holding<C: SlotStore>(
    conn: &mut C,
    semaphore: &Semaphore,
    effort: Effort,
) -> Result<bool, Error> {
    semaphore.validate()?;
    let in_transaction = depth::depth(conn)? > 0;
    let mut started_over = 0;
    let granted = decide(conn, semaphore, in_transaction, effort, |conn, place| {
        let begun = if in_transaction {
            run::begin_savepoint(conn)?;
            true
        } else {
            C::begin_to_hold(conn)?
        };
        if !begun {
            return Ok(Attempt::Locked);
        }
        let attempt = C::try_hold(conn, semaphore, place);
        if !matches!(attempt, Ok(Attempt::Granted(_))) {
            run::roll_back(conn);
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
