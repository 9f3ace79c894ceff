//! What the page reads from the database, and does in it, on the connections of any pool.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::time::Duration;

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};
use diesel_locks::limits::MAX_LISTED;
use diesel_locks::{
    Async, AsyncInspectExt, AsyncSemaphoreExt, Blocking, Error, HeldObjectLock, InspectExt,
    ListOptions, LockSession, SemaphoreExt, SemaphoreInfo, SequenceInfo, Slot, SlotInfo,
};
use serde::Serialize;
use tokio::task::{self, JoinHandle};

use crate::acts::{Act, Grant};

/// The semaphores that are shown at most: those with leases first.
const MOST_SEMAPHORES: usize = 2000;

/// The slots of a semaphore, and the rows of every other list, that are shown at most.
const MOST_ROWS: usize = 200;

/// The database of a pool. A reading or an act that has begun runs to its end, also if its caller is dropped.
pub trait Database: Send + Sync {
    #[doc(hidden)]
    fn read(&self, prefix: &str) -> JoinHandle<Result<Lists, Error>>;

    /// Returns whether somebody held the grant.
    #[doc(hidden)]
    fn act(&self, act: Act, grant: Grant) -> JoinHandle<Result<bool, Error>>;
}

/// A pool, and how the methods on its connections wait.
pub struct Source<P, Style> {
    pool: P,
    style: PhantomData<fn() -> Style>,
}

impl<P: diesel_locks::Pool> Source<P, P::Style> {
    pub(crate) fn new(pool: P) -> Self {
        Self {
            pool,
            style: PhantomData,
        }
    }
}

impl<C> Database for Source<Pool<ConnectionManager<C>>, Blocking>
where
    C: R2D2Connection + InspectExt + SemaphoreExt + 'static,
{
    fn read(&self, prefix: &str) -> JoinHandle<Result<Lists, Error>> {
        let (pool, prefix) = (self.pool.clone(), prefix.to_owned());
        task::spawn_blocking(move || blocking::read(&mut *pool.get()?, &prefix))
    }

    fn act(&self, act: Act, grant: Grant) -> JoinHandle<Result<bool, Error>> {
        let pool = self.pool.clone();
        task::spawn_blocking(move || blocking::act(&mut *pool.get()?, act, &grant))
    }
}

impl<P> Database for Source<P, Async>
where
    P: diesel_locks::Pool<Style = Async, Connection: AsyncInspectExt + AsyncSemaphoreExt>,
{
    fn read(&self, prefix: &str) -> JoinHandle<Result<Lists, Error>> {
        let (pool, prefix) = (self.pool.clone(), prefix.to_owned());
        task::spawn(async move { nonblocking::read(&mut *lend(&pool).await?, &prefix).await })
    }

    fn act(&self, act: Act, grant: Grant) -> JoinHandle<Result<bool, Error>> {
        let pool = self.pool.clone();
        task::spawn(async move { nonblocking::act(&mut *lend(&pool).await?, act, &grant).await })
    }
}

/// The pools of diesel-async have no trait in common but that of diesel-locks.
async fn lend<P: diesel_locks::Pool>(pool: &P) -> Result<P::Lent, Error> {
    let lent = pool.lend(Duration::MAX, None, None).await?;
    let (conn, _) = lent.expect("nothing stops it");
    Ok(conn)
}

/// Defines a module with the functions `read` and `act` for connections of Diesel, or with `async` and `.await` for those of diesel-async.
macro_rules! on_connections {
    ($module:ident, [$($async:tt)?], [$($wait:tt)*], $($bounds:tt)+) => {
        mod $module {
            use super::*;

            pub(super) $($async)? fn read<C: $($bounds)+>(
                conn: &mut C,
                prefix: &str,
            ) -> Result<Lists, Error> {
                let all = ListOptions::new().limit(MAX_LISTED).name_prefix(prefix);
                let mut locks = conn.held_object_locks(MAX_LISTED)$($wait)*;
                let listed = locks.as_ref().map_or(0, Vec::len);
                if let Ok(locks) = &mut locks {
                    // A lock whose id is not shown may be one of them.
                    locks.retain(|lock| lock.id.as_deref().is_none_or(|id| id.starts_with(prefix)));
                }
                let found = conn.semaphores(&all)$($wait)*;
                let held = match found {
                    Ok(_) => conn.held_slots(&all)$($wait)*,
                    Err(_) => Ok(Vec::new()),
                };
                Ok(Lists {
                    object_locks: List {
                        may_be_more: may_be_more(listed),
                        ..List::of(locks, MOST_ROWS, ObjectLock::from)?
                    },
                    semaphores: semaphores(found, held)?,
                    sequences: List::of(conn.sequences(&all)$($wait)*, MOST_ROWS, Sequence::from)?,
                })
            }

            pub(super) $($async)? fn act<C: $($bounds)+>(
                conn: &mut C,
                act: Act,
                grant: &Grant,
            ) -> Result<bool, Error> {
                let of_semaphore = ListOptions::new().name(&grant.semaphore);
                let held = conn.held_slots(&of_semaphore)$($wait)*?;
                let is_it = |it: &SlotInfo| it.number == grant.slot && it.fence.to_string() == grant.fence;
                let Some(held) = held.into_iter().find(is_it) else {
                    return Ok(false);
                };
                let Some(token) = held.token else {
                    return Ok(false);
                };
                let name = grant.semaphore.as_str();
                let slot = Slot::from_parts(name, held.number, token, held.fence);
                let done = match act {
                    Act::Release => conn.release_slot(slot)$($wait)*.map(drop),
                    Act::RequestRelease => conn.request_release(&held)$($wait)*.map(drop),
                };
                match done {
                    Ok(()) => Ok(true),
                    Err(Error::SlotLost { .. }) => Ok(false),
                    Err(error) => Err(error),
                }
            }
        }
    };
}

on_connections!(blocking, [], [], InspectExt + SemaphoreExt);
on_connections!(nonblocking, [async], [.await], AsyncInspectExt + AsyncSemaphoreExt);

/// What is in the database under names that begin with a text. The database's clock measures how long something is held.
#[derive(Serialize)]
pub struct Lists {
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

fn semaphores(
    found: Result<Vec<SemaphoreInfo>, Error>,
    held: Result<Vec<SlotInfo>, Error>,
) -> Result<List<Semaphore>, Error> {
    let both = found.and_then(|mut found| {
        found.sort_by_key(|it| it.held == 0);
        Ok((found, held?))
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

impl From<SequenceInfo> for Sequence {
    fn from(sequence: SequenceInfo) -> Self {
        Self {
            name: sequence.name,
            key: sequence.key,
            last_number: sequence.last_number.to_string(),
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
