//! What the page reads from the database, and does in it, on any connection.

use std::collections::HashMap;

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};
use diesel_locks::limits::MAX_LISTED;
use diesel_locks::{
    Error, HeldObjectLock, InspectExt, ListOptions, LockSession, SemaphoreExt, SemaphoreInfo, Slot,
    SlotInfo,
};
use serde::Serialize;

use crate::acts::{Act, Grant};

/// The semaphores that are shown at most: those with leases first.
const MOST_SEMAPHORES: usize = 2000;

/// The slots of a semaphore, and the rows of every other list, that are shown at most.
const MOST_ROWS: usize = 200;

pub(crate) trait Database: Send + Sync {
    fn read(&self, prefix: &str) -> Result<Lists, Error>;

    /// Returns whether somebody held the grant.
    fn act(&self, act: Act, grant: &Grant) -> Result<bool, Error>;
}

/// What is in the database under names that begin with a text. The database's clock measures how long something is held.
#[derive(Serialize)]
pub(crate) struct Lists {
    object_locks: List<ObjectLock>,
    semaphores: List<Semaphore>,
    sequences: List<Sequence>,
}

/// The first of what was found.
#[derive(Serialize)]
pub(crate) struct List<T> {
    rows: Vec<T>,
    total: usize,
    /// Whether there may be others, which were not counted.
    may_be_more: bool,
    /// Why there is nothing, if the user may not read it, or the server does not show it.
    refusal: Option<String>,
}

#[derive(Serialize)]
struct ObjectLock {
    /// `None` if the database does not show it.
    id: Option<String>,
    session: String,
    held_s: Option<u64>,
    waiters: Vec<Waiter>,
}

#[derive(Serialize)]
struct Waiter {
    session: String,
    waited_s: Option<u64>,
}

#[derive(Serialize)]
struct Semaphore {
    name: String,
    /// `None` if the number is not in the database.
    permits: Option<u32>,
    held: u32,
    /// Those that are not free.
    slots: Vec<HeldSlot>,
}

#[derive(Serialize)]
struct HeldSlot {
    number: u32,
    holder: Option<String>,
    /// Its holder has released it, and it is free when its minimum hold time is over.
    released: bool,
    held_s: i64,
    left_s: u64,
    /// Text: JavaScript rounds numbers above 2^53.
    fence: String,
    /// How long ago its release was requested.
    requested_s: Option<i64>,
}

#[derive(Serialize)]
struct Sequence {
    name: String,
    key: Option<String>,
    last_number: String,
}

impl<C> Database for Pool<ConnectionManager<C>>
where
    C: R2D2Connection + InspectExt + SemaphoreExt + 'static,
{
    fn read(&self, prefix: &str) -> Result<Lists, Error> {
        let conn: &mut C = &mut *self.get()?;
        let all = ListOptions::new().limit(MAX_LISTED).name_prefix(prefix);
        let mut locks = conn.held_object_locks(MAX_LISTED);
        let listed = locks.as_ref().map_or(0, Vec::len);
        if let Ok(locks) = &mut locks {
            // A lock whose id is not shown may be one of them.
            locks.retain(|lock| lock.id.as_deref().is_none_or(|id| id.starts_with(prefix)));
        }
        Ok(Lists {
            object_locks: List {
                may_be_more: may_be_more(listed),
                ..List::of(locks, MOST_ROWS, ObjectLock::from)?
            },
            semaphores: semaphores(conn, &all)?,
            sequences: List::of(conn.sequences(&all), MOST_ROWS, |it| Sequence {
                name: it.name,
                key: it.key,
                last_number: it.last_number.to_string(),
            })?,
        })
    }

    fn act(&self, act: Act, grant: &Grant) -> Result<bool, Error> {
        let conn: &mut C = &mut *self.get()?;
        let held = conn.held_slots(&ListOptions::new().name(&grant.semaphore))?;
        let is_it = |it: &SlotInfo| it.number == grant.slot && it.fence.to_string() == grant.fence;
        let Some(held) = held.into_iter().find(is_it) else {
            return Ok(false);
        };
        let Some(token) = held.token else {
            return Ok(false);
        };
        let done = match act {
            Act::Release => {
                let name = grant.semaphore.as_str();
                conn.release_slot(Slot::from_parts(name, held.number, token, held.fence))
            }
            Act::RequestRelease => conn.request_release(&held),
        };
        match done {
            Ok(_) => Ok(true),
            Err(Error::SlotLost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn semaphores<C: InspectExt>(
    conn: &mut C,
    options: &ListOptions,
) -> Result<List<Semaphore>, Error> {
    let both = conn.semaphores(options).and_then(|mut found| {
        found.sort_by_key(|it| it.held == 0);
        Ok((found, conn.held_slots(options)?))
    });
    let (found, held) = match both {
        Ok((found, held)) => (Ok(found), held),
        Err(error) => (Err(error), Vec::new()),
    };
    let mut slots: HashMap<String, Vec<HeldSlot>> = HashMap::new();
    for slot in held {
        let of_semaphore = slots.entry(slot.semaphore.clone()).or_default();
        if of_semaphore.len() < MOST_ROWS {
            of_semaphore.push(slot.into());
        }
    }
    List::of(found, MOST_SEMAPHORES, |it: SemaphoreInfo| Semaphore {
        slots: slots.remove(&it.name).unwrap_or_default(),
        permits: it.permits,
        held: it.held,
        name: it.name,
    })
}

fn may_be_more(listed: usize) -> bool {
    listed >= MAX_LISTED as usize
}

impl<T> List<T> {
    /// A list that the user may not read, or that the server does not show, contains the reason and no rows. Other errors are returned.
    fn of<U>(
        found: Result<Vec<U>, Error>,
        most: usize,
        row: impl FnMut(U) -> T,
    ) -> Result<Self, Error> {
        let (found, refusal) = match found {
            Ok(found) => (found, None),
            Err(error)
                if error.is_insufficient_privilege()
                    || matches!(error, Error::LocksNotShown { .. }) =>
            {
                (Vec::new(), Some(error.to_string()))
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            total: found.len(),
            may_be_more: may_be_more(found.len()),
            rows: found.into_iter().take(most).map(row).collect(),
            refusal,
        })
    }
}

impl From<SlotInfo> for HeldSlot {
    fn from(slot: SlotInfo) -> Self {
        let now = slot.expires_at - slot.remaining;
        Self {
            number: slot.number,
            holder: slot.holder,
            released: slot.token.is_none(),
            held_s: (now - slot.acquired_at).num_seconds(),
            left_s: slot.remaining.as_secs(),
            fence: slot.fence.to_string(),
            requested_s: slot.release_requested_at.map(|at| (now - at).num_seconds()),
        }
    }
}

impl From<HeldObjectLock> for ObjectLock {
    fn from(lock: HeldObjectLock) -> Self {
        let waiters = lock.waiters.into_iter().map(|waiter| Waiter {
            session: session(&waiter.session),
            waited_s: waiter.waited.map(|waited| waited.as_secs()),
        });
        Self {
            id: lock.id,
            session: match lock.is_shared {
                true if lock.holder.id.is_none() => "readers".to_owned(),
                true => format!("{} (shared)", session(&lock.holder)),
                false => session(&lock.holder),
            },
            held_s: lock.holder.open_for.map(|open_for| open_for.as_secs()),
            waiters: waiters.collect(),
        }
    }
}

/// The session's number, with which an operator ends it, and whose it is, as far as the server shows it.
fn session(session: &LockSession) -> String {
    let Some(id) = session.id else {
        return "prepared transaction".to_owned();
    };
    let mut text = id.to_string();
    let details = [&session.application, &session.user, &session.host];
    for detail in details.into_iter().flatten().filter(|it| !it.is_empty()) {
        text.extend([" · ", detail]);
    }
    text
}
