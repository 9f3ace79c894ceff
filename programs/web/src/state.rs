//! What the page shows: snapshots of all semaphores, object locks and sequences, made once for all listeners.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use diesel_locks::{
    Error, HeldObjectLock, InspectExt, ListOptions, LockSession, SlotInfo, StopToken,
};
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use crate::store::{Asker, NoAnswer};

/// The pause between two snapshots. MariaDB returns an old list of locks if it is asked every 0.1 s.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a look at the database may take.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

const SILENT: &str = "the database does not answer";
const UNREADABLE: &str = "the database can't be read, and the service's log says why";

/// The semaphores, slots and sequences that are shown at most.
const MOST_ROWS: u32 = 1000;

/// The object locks that are shown at most.
const MOST_LOCKS: u32 = 50;

/// The state when the database was last read. The database's clock measures how long something is held.
#[derive(Serialize)]
pub(crate) struct Snapshot {
    /// The instance that made the snapshot.
    instance: String,
    engine: Engine,
    /// Why the rest is not new.
    pub(crate) error: Option<&'static str>,
    /// Seconds since the database was read.
    #[serde(rename = "age_s", serialize_with = "seconds_since")]
    read: Instant,
    #[serde(flatten)]
    lists: Lists,
}

#[derive(Default, Serialize)]
struct Lists {
    semaphores: Vec<Semaphore>,
    object_locks: Vec<ObjectLock>,
    /// Why there are no object locks.
    object_locks_note: Option<String>,
    sequences: Vec<Sequence>,
}

#[derive(Serialize)]
struct Semaphore {
    name: String,
    permits: u32,
    /// Those that are not free.
    slots: Vec<Slot>,
}

#[derive(Serialize)]
struct Slot {
    number: u32,
    holder: Option<String>,
    /// Its holder has released it, and it is free when its minimum hold time is over.
    released: bool,
    held_s: i64,
    left_s: u64,
    /// Text: JavaScript rounds numbers above 2^53.
    fence: String,
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
struct Sequence {
    name: String,
    key: Option<String>,
    last_number: String,
}

impl Snapshot {
    pub(crate) fn new(instance: &str, engine: Engine) -> Self {
        Self {
            instance: instance.to_owned(),
            engine,
            error: None,
            read: Instant::now(),
            lists: Lists::default(),
        }
    }
}

/// Makes snapshots on the calling thread, until the process is to end.
pub(crate) fn publish(database: &Database, stop: &StopToken, snapshots: &watch::Sender<Snapshot>) {
    let mut asker = Asker::new(database);
    loop {
        let looked = asker.ask(LONGEST_LOOK, Lists::read);
        let (error, cause) = match &looked {
            Ok(_) => (None, "it answers again".to_owned()),
            Err(NoAnswer::Silent) => (Some(SILENT), SILENT.to_owned()),
            // The causes may name the server: they are for the log.
            Err(NoAnswer::NotConnected(cause)) => (Some(SILENT), format!("{cause:#}")),
            Err(NoAnswer::Failed(cause)) => (Some(UNREADABLE), format!("{cause:#}")),
        };
        snapshots.send_modify(|snapshot| {
            if snapshot.error != error {
                crate::log(&format!("the database of the page: {cause}"));
            }
            snapshot.error = error;
            if let Ok(lists) = looked {
                snapshot.read = Instant::now();
                snapshot.lists = lists;
            }
        });
        if !stop.sleep(PAUSE) {
            return;
        }
    }
}

impl Lists {
    fn read(conn: &mut AnyConnection) -> Result<Self, Error> {
        let all = ListOptions::new().limit(MOST_ROWS);
        let mut slots: HashMap<String, Vec<Slot>> = HashMap::new();
        for slot in conn.held_slots(&all)? {
            let of_semaphore = slots.entry(slot.semaphore.clone()).or_default();
            of_semaphore.push(slot.into());
        }
        let semaphores = conn.semaphores(&all)?.into_iter().map(|it| Semaphore {
            slots: slots.remove(&it.name).unwrap_or_default(),
            permits: it.permits.unwrap_or(it.slots),
            name: it.name,
        });
        let semaphores = semaphores.collect();
        let sequences = conn.sequences(&all)?.into_iter().map(|it| Sequence {
            name: it.name,
            key: it.key,
            last_number: it.last_number.to_string(),
        });
        let sequences = sequences.collect();
        let (object_locks, object_locks_note) = match conn.held_object_locks(MOST_LOCKS) {
            Ok(locks) => (locks.into_iter().map(ObjectLock::from).collect(), None),
            // The rest is shown without them.
            Err(error @ (Error::LocksNotShown { .. } | Error::InsufficientPrivilege { .. })) => {
                (Vec::new(), Some(error.to_string()))
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            semaphores,
            object_locks,
            object_locks_note,
            sequences,
        })
    }
}

impl From<SlotInfo> for Slot {
    fn from(slot: SlotInfo) -> Self {
        let now = slot.expires_at - slot.remaining;
        Self {
            number: slot.number,
            holder: slot.holder,
            released: slot.token.is_none(),
            held_s: (now - slot.acquired_at).num_seconds(),
            left_s: slot.remaining.as_secs(),
            fence: slot.fence.to_string(),
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

fn session(session: &LockSession) -> String {
    let id = session.id.map(|id| id.to_string());
    id.unwrap_or_else(|| "prepared transaction".to_owned())
}

fn seconds_since<S: Serializer>(time: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.elapsed().as_secs())
}
