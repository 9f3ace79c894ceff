//! What the database says about semaphores, locks and sequences.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use diesel_locks::chrono::{DateTime, Utc};
use diesel_locks::limits::MAX_LISTED;
use diesel_locks::{
    Error, HeldObjectLock, InspectExt, ListOptions, LockSession, SemaphoreInfo, SlotInfo,
};

use super::snapshot::{
    Holding, ObjectLock, ObjectLocks, Released, Semaphore, Sequence, Slot, SlotState, Waiter,
};
use crate::log::{Changes, with_causes};
use crate::store::Store;

/// The server reads all its locks for a list of them.
const LOCKS_PAUSE: Duration = Duration::from_secs(1);

/// The object locks that are shown at most.
const MAX_LOCKS: u32 = 50;

/// The semaphores that are shown at most.
const MAX_SEMAPHORES: usize = 100;

/// Free slots with larger numbers are not shown.
const MAX_FREE: u32 = 64;

/// What the database has said.
pub(super) struct Look {
    now_us: i64,
    semaphores: Vec<Semaphore>,
    sequences: Vec<Sequence>,
    /// The object locks, and an error for the log, if they were asked for.
    object_locks: Option<(ObjectLocks, Option<String>)>,
}

/// Asks for all that a snapshot needs.
pub(super) fn look<C: Store>(conn: &mut C, engine: &str, with_locks: bool) -> Result<Look, Error> {
    let now_us = conn.now_us()?;
    let all = ListOptions::new().limit(MAX_LISTED);
    let semaphores = conn.semaphores(&all)?;
    let held = conn.held_slots(&all)?;
    let names: HashSet<&str> = held.iter().map(|slot| slot.semaphore.as_str()).collect();
    let semaphores = held_first(semaphores, |it| names.contains(it.name.as_str()));
    let semaphores = with_slots(&semaphores, held);
    let sequences = conn.sequences(&ListOptions::new())?;
    let sequences = sequences.into_iter().map(|sequence| Sequence {
        name: sequence.name,
        key: sequence.key,
        last_number: sequence.last_number.to_string(),
    });
    Ok(Look {
        now_us,
        semaphores,
        sequences: sequences.collect(),
        object_locks: with_locks.then(|| object_locks(conn, engine)),
    })
}

/// What a snapshot needs of the database.
#[derive(Default)]
pub(super) struct Lists {
    pub(super) now_us: i64,
    pub(super) semaphores: Vec<Semaphore>,
    pub(super) object_locks: ObjectLocks,
    pub(super) sequences: Vec<Sequence>,
    locks_read: Option<Instant>,
    locks_error: Changes,
}

impl Lists {
    /// Whether the object locks are to be asked for again.
    pub(super) fn locks_are_due(&self) -> bool {
        let is_due = |read: Instant| read.elapsed() >= LOCKS_PAUSE;
        self.locks_read.is_none_or(is_due)
    }

    pub(super) fn take(&mut self, look: Look) {
        self.now_us = look.now_us;
        self.semaphores = look.semaphores;
        self.sequences = look.sequences;
        if let Some((object_locks, error)) = look.object_locks {
            self.object_locks = object_locks;
            self.locks_error.see("object locks are not shown", error);
            self.locks_read = Some(Instant::now());
        }
    }
}

/// Leaves semaphores out if there are too many: those that nobody holds first. The order stays, so that nothing moves
/// while somebody looks at it.
fn held_first<T>(semaphores: Vec<T>, is_held: impl Fn(&T) -> bool) -> Vec<T> {
    let held = semaphores.iter().filter(|it| is_held(it)).count();
    let mut free = MAX_SEMAPHORES.saturating_sub(held);
    let shown = semaphores.into_iter().filter(|semaphore| {
        if is_held(semaphore) {
            return true;
        }
        let has_room = free > 0;
        free = free.saturating_sub(1);
        has_room
    });
    shown.take(MAX_SEMAPHORES).collect()
}

fn with_slots(semaphores: &[SemaphoreInfo], held: Vec<SlotInfo>) -> Vec<Semaphore> {
    let mut by_name: HashMap<String, Vec<SlotInfo>> = HashMap::new();
    for slot in held {
        by_name
            .entry(slot.semaphore.clone())
            .or_default()
            .push(slot);
    }
    let with_slots = semaphores.iter().map(|semaphore| {
        let permits = semaphore.permits.unwrap_or(semaphore.slots);
        let held = by_name.remove(&semaphore.name).unwrap_or_default();
        let mut held: HashMap<u32, SlotInfo> =
            held.into_iter().map(|slot| (slot.number, slot)).collect();
        let free = (1..=semaphore.slots.min(MAX_FREE)).filter(|number| !held.contains_key(number));
        let mut numbers: Vec<u32> = free.chain(held.keys().copied()).collect();
        numbers.sort_unstable();
        let slots = numbers.into_iter().map(|number| Slot {
            number,
            state: held.remove(&number).map_or(SlotState::Free, state),
        });
        Semaphore {
            name: semaphore.name.clone(),
            permits,
            slots: slots.collect(),
        }
    });
    with_slots.collect()
}

fn state(slot: SlotInfo) -> SlotState {
    let holder = slot.holder.unwrap_or_default();
    if slot.token.is_none() {
        return SlotState::Released(Released {
            holder,
            free_us: slot.expires_at.timestamp_micros(),
        });
    }
    SlotState::Held(Holding {
        holder,
        acquired_us: slot.acquired_at.timestamp_micros(),
        expires_us: slot.expires_at.timestamp_micros(),
        fence: slot.fence.to_string(),
    })
}

/// The object locks, and an error for the log. The rest of the page does not depend on them.
fn object_locks<C: Store>(conn: &mut C, engine: &str) -> (ObjectLocks, Option<String>) {
    shown(conn.held_object_locks(MAX_LOCKS), engine)
}

fn shown(locks: Result<Vec<HeldObjectLock>, Error>, engine: &str) -> (ObjectLocks, Option<String>) {
    let not_shown = |note| ObjectLocks {
        shown: false,
        note,
        locks: Vec::new(),
    };
    match locks {
        Ok(locks) => {
            let shown = ObjectLocks {
                shown: true,
                note: note(engine).to_owned(),
                locks: locks.into_iter().map(object_lock).collect(),
            };
            (shown, None)
        }
        Err(error @ (Error::LocksNotShown { .. } | Error::InsufficientPrivilege { .. })) => {
            (not_shown(error.to_string()), None)
        }
        Err(error) => {
            // The cause may name the server: it is for the log.
            let note = "The database has not told its locks: the service's log has the cause.";
            (not_shown(note.to_owned()), Some(with_causes(&error)))
        }
    }
}

/// What the engine shows. Requests of this service wait without a session: no engine shows them as waiters.
fn note(engine: &str) -> &'static str {
    if engine.starts_with("PostgreSQL") {
        "A lock is shown with its id if a session waits for it, or its row is kept."
    } else if engine.starts_with("MariaDB") {
        "Only locks for which sessions wait are shown, and of those that wait for an object mostly the first."
    } else {
        "All held locks are shown."
    }
}

fn object_lock(lock: HeldObjectLock) -> ObjectLock {
    let waiters = lock.waiters.into_iter().map(|waiter| Waiter {
        session: session(&waiter.session),
        since_us: micros(waiter.waiting_since),
    });
    ObjectLock {
        label: lock
            .id
            .clone()
            .unwrap_or_else(|| "an object whose id is not shown".to_owned()),
        id: lock.id,
        session: session(&lock.holder),
        since_us: micros(lock.holder.started_at),
        waiters: waiters.collect(),
    }
}

fn session(session: &LockSession) -> String {
    session
        .id
        .map_or_else(|| "prepared transaction".to_owned(), |id| id.to_string())
}

fn micros(time: Option<DateTime<Utc>>) -> Option<i64> {
    time.map(|time| time.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use diesel_locks::Error;

    use super::{MAX_SEMAPHORES, held_first, shown};

    #[test]
    fn held_semaphores_are_shown_if_there_are_many() {
        let of = |semaphores: u32| held_first((0..semaphores).collect(), |number| *number >= 148);
        let shown = of(150);
        assert_eq!(shown.len(), MAX_SEMAPHORES);
        assert_eq!(shown[97..], [97, 148, 149]);
        assert_eq!(of(3), [0, 1, 2]);
        assert_eq!(of(1000).len(), MAX_SEMAPHORES);
    }

    #[test]
    fn error_of_the_locks_leaves_the_page() {
        let (locks, error) = shown(
            Err(Error::from(diesel::result::Error::NotFound)),
            "PostgreSQL 18",
        );
        assert!(!locks.shown && locks.note.contains("log"), "{}", locks.note);
        assert!(error.is_some_and(|error| error.contains("not found")));
    }
}
