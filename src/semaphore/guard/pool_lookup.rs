//! The search for the keeper of the pool that a connection is from.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};

use super::pool_tag::Mark;
use super::renewer::Keeper;
use crate::Slot;
use crate::semaphore::backend::SemaphoreBackend;

/// How long one pool that has no connection left is waited for at a time.
const AT_A_POOL: Duration = Duration::from_millis(10);

/// The keeper, among these, whose pool has the connection of this mark, or whose database has the slot.
/// Pools that have no connection left are waited for until then.
///
/// On a thread of its own: the database of another pool may not answer, and the lease goes on. So the
/// thread, and the connection it has taken from such a pool, may outlast the search; the pool is then
/// [passed over](Keeper::is_stuck) by other searches.
pub(super) fn find<C>(
    mut keepers: Vec<Arc<Keeper<C>>>,
    pool: &Pool<ConnectionManager<C>>,
    mark: &Mark<C>,
    slot: &Slot,
    until: Instant,
) -> Result<Option<Arc<Keeper<C>>>, Stuck>
where
    C: SemaphoreBackend + R2D2Connection + Send + 'static,
{
    // Once per pool: others take and return connections meanwhile.
    keepers.sort_by_cached_key(|keeper| !looks_the_same(keeper.pool(), pool));
    let until = until.max(Instant::now() + AT_A_POOL);
    let progress = Arc::new(Progress(Mutex::default()));
    let search = Search {
        keepers,
        mark: mark.clone(),
        slot: slot.clone(),
        until,
        progress: Arc::clone(&progress),
    };
    let (found, answer) = channel();
    let searching = thread::Builder::new()
        .name("diesel-locks search".to_owned())
        .spawn(move || {
            // Whoever asked may have given up.
            let _ = found.send(search.run());
        });
    let patience = until.saturating_duration_since(Instant::now()) + AT_A_POOL * 2;
    if let Err(error) = searching {
        tracing::warn!(%error, "no thread to look for a slot's keeper: its pool may get another");
        return Ok(None);
    }
    answer.recv_timeout(patience).map_err(|_| {
        progress.give_up();
        Stuck
    })
}

/// A database does not answer. Some keepers may not have been asked.
pub(super) struct Stuck;

/// Clones of one pool have its connections; not for certain, as others take and return them meanwhile.
fn looks_the_same<C: R2D2Connection + Send + 'static>(
    one: &Pool<ConnectionManager<C>>,
    other: &Pool<ConnectionManager<C>>,
) -> bool {
    let (one, other) = (one.state(), other.state());
    one.connections == other.connections && one.idle_connections == other.idle_connections
}

struct Search<C: R2D2Connection + Send + 'static> {
    keepers: Vec<Arc<Keeper<C>>>,
    /// Of the connection, which is in its pool again.
    mark: Mark<C>,
    /// That it has acquired.
    slot: Slot,
    until: Instant,
    progress: Arc<Progress<C>>,
}

enum Look {
    Found,
    NotThere,
    NoConnection,
    /// Nobody waits for the answer any more.
    GivenUp,
}

impl<C: SemaphoreBackend + R2D2Connection + Send + 'static> Search<C> {
    fn run(mut self) -> Option<Arc<Keeper<C>>> {
        let mut idle_only = true;
        while !self.keepers.is_empty() {
            let mut busy = Vec::new();
            for keeper in std::mem::take(&mut self.keepers) {
                if !idle_only && Instant::now() > self.until {
                    return None;
                }
                match self.look(&keeper, idle_only) {
                    Look::Found => return Some(keeper),
                    Look::NotThere => {}
                    Look::NoConnection => busy.push(keeper),
                    Look::GivenUp => return None,
                }
                // Another search has come across the connection.
                if let Some(keeper) = self.mark.keeper() {
                    return Some(keeper);
                }
            }
            self.keepers = busy;
            idle_only = false;
        }
        None
    }

    fn look(&self, keeper: &Arc<Keeper<C>>, idle_only: bool) -> Look {
        let Some(_visit) = self.progress.visit(keeper) else {
            return Look::GivenUp;
        };
        let conn = if idle_only {
            keeper.pool().try_get()
        } else {
            // In turn with those who wait for a connection, a little with each pool.
            keeper.pool().get_timeout(AT_A_POOL).ok()
        };
        let Some(mut conn) = conn else {
            return Look::NoConnection;
        };
        // This connection need not be searched for any more, by us or by another.
        let its_mark = Mark::of(&mut conn);
        its_mark.set(keeper);
        if self.mark.is(&its_mark) {
            return Look::Found;
        }
        if self.progress.lock().given_up {
            return Look::GivenUp;
        }
        // Read, not renewed: nobody may hold the slot any more when the answer comes.
        if C::owns(&mut conn, &self.slot).unwrap_or(false) {
            Look::Found
        } else {
            Look::NotThere
        }
    }
}

/// What a search and its asker know of each other.
struct Progress<C: R2D2Connection + Send + 'static>(Mutex<At<C>>);

struct At<C: R2D2Connection + Send + 'static> {
    given_up: bool,
    /// Whose pool is asked.
    keeper: Option<Arc<Keeper<C>>>,
}

impl<C: R2D2Connection + Send + 'static> Default for At<C> {
    fn default() -> Self {
        Self {
            given_up: false,
            keeper: None,
        }
    }
}

impl<C: SemaphoreBackend + R2D2Connection + Send + 'static> Progress<C> {
    fn lock(&self) -> MutexGuard<'_, At<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the asker has given up.
    fn visit(&self, keeper: &Arc<Keeper<C>>) -> Option<Visit<'_, C>> {
        let mut at = self.lock();
        if at.given_up {
            return None;
        }
        at.keeper = Some(Arc::clone(keeper));
        Some(Visit(self))
    }

    fn give_up(&self) {
        let mut at = self.lock();
        at.given_up = true;
        if let Some(keeper) = &at.keeper {
            keeper.search_is_stuck();
        }
    }
}

/// Of a keeper's pool, until it is dropped.
struct Visit<'a, C: SemaphoreBackend + R2D2Connection + Send + 'static>(&'a Progress<C>);

impl<C: SemaphoreBackend + R2D2Connection + Send + 'static> Drop for Visit<'_, C> {
    fn drop(&mut self) {
        let mut at = self.0.lock();
        let keeper = at.keeper.take();
        if at.given_up
            && let Some(keeper) = keeper
        {
            keeper.search_goes_on();
        }
    }
}
