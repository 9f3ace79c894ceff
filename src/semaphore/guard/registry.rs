//! Which keeper renews a guard: one for each pool.
//!
//! A pool of r2d2's has no identity that could be asked for. So a connection is marked with the keeper of
//! its pool; the slot that a connection without a mark has acquired is looked for through the pools that have
//! keepers and the same settings, once per connection. Two such pools on one database share a keeper by that,
//! which is as well.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, PooledConnection, R2D2Connection};

use super::pool_lookup::Stuck;
use super::pool_tag::Mark;
use super::renewer::{Keep, Keeper};
use super::state::State;
use super::{SlotGuard, expiry_watcher, pool_lookup};
use crate::semaphore::backend::SemaphoreBackend;
use crate::{Error, LeaseOptions, Slot};

/// A `Keeper<C>`, for those who know `C`.
type Typed = dyn Any + Send + Sync;

struct Registered {
    typed: Weak<Typed>,
    keep: fn(Arc<Typed>) -> Option<Arc<dyn Keep>>,
}

static KEEPERS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// Has the slot renewed.
pub(super) fn guard<C>(
    pool: &Pool<ConnectionManager<C>>,
    conn: PooledConnection<ConnectionManager<C>>,
    slot: Slot,
    lease: &LeaseOptions,
) -> Result<SlotGuard, Error>
where
    C: SemaphoreBackend + R2D2Connection + Send + 'static,
{
    let lease_us = lease.micros()?;
    let keeper = keeper_of(pool, conn, &slot, lease_us);
    let state = Arc::new(State::new(slot.deadline));
    expiry_watcher::over(&state);
    keeper.keep(slot.clone(), lease.duration(), lease_us, Arc::clone(&state));
    Ok(SlotGuard {
        slot,
        state,
        keeper: Arc::new(keeper),
    })
}

/// All keepers that have guards.
pub(super) fn all() -> Vec<Arc<dyn Keep>> {
    lock()
        .iter()
        .filter_map(|registered| (registered.keep)(registered.typed.upgrade()?))
        .collect()
}

/// The keeper of the connection's pool, which may be found by another pool's on the same database, or new.
fn keeper_of<C>(
    pool: &Pool<ConnectionManager<C>>,
    mut conn: PooledConnection<ConnectionManager<C>>,
    slot: &Slot,
    lease_us: i64,
) -> Arc<Keeper<C>>
where
    C: SemaphoreBackend + R2D2Connection + Send + 'static,
{
    let mark = Mark::of(&mut conn);
    if let Some(keeper) = mark.keeper() {
        return keeper;
    }
    // A pool with no connection left may be the one that ours is from.
    drop(conn);
    let patience = Duration::from_micros(lease_us.unsigned_abs() / 10).min(OTHERS_MOMENT);
    let until = Instant::now() + patience;
    let mut asked = Vec::new();
    loop {
        let late = Instant::now() > until;
        let keepers = match new_unless_others(pool, &asked) {
            Ok(keeper) => {
                mark.set(&keeper);
                return keeper;
            }
            Err(keepers) => keepers,
        };
        match pool_lookup::find(keepers.clone(), pool, &mark, slot, until) {
            Ok(Some(keeper)) => {
                mark.set(&keeper);
                return keeper;
            }
            Ok(None) => asked.extend(keepers),
            // Those that it has not come to are asked once more, without the one at which it is stuck.
            Err(Stuck) => {}
        }
        if late {
            let keeper = register_new(&mut lock(), pool);
            mark.set(&keeper);
            return keeper;
        }
    }
}

/// A new keeper for this pool, registered, unless there are others that may be its keeper and have not been
/// asked: these. So those who acquire a pool's first guards at the same moment share its keeper: they find
/// that of the one who was first.
fn new_unless_others<C>(
    pool: &Pool<ConnectionManager<C>>,
    asked: &[Arc<Keeper<C>>],
) -> Result<Arc<Keeper<C>>, Vec<Arc<Keeper<C>>>>
where
    C: SemaphoreBackend + R2D2Connection + Send + 'static,
{
    let mut registered = lock();
    registered.retain(|registered| registered.typed.strong_count() > 0);
    let others: Vec<Arc<Keeper<C>>> = registered
        .iter()
        .filter_map(|registered| registered.typed.upgrade()?.downcast().ok())
        .filter(|keeper: &Arc<Keeper<C>>| {
            may_be_the_same(keeper.pool(), pool)
                && !keeper.is_stuck()
                && !asked.iter().any(|asked| Arc::ptr_eq(asked, keeper))
        })
        .collect();
    if others.is_empty() {
        Ok(register_new(&mut registered, pool))
    } else {
        Err(others)
    }
}

/// Clones of one pool have its settings.
fn may_be_the_same<C: R2D2Connection + Send + 'static>(
    one: &Pool<ConnectionManager<C>>,
    other: &Pool<ConnectionManager<C>>,
) -> bool {
    one.max_size() == other.max_size()
        && one.min_idle() == other.min_idle()
        && one.connection_timeout() == other.connection_timeout()
}

/// How long pools that have no connection left are waited for: others that acquire guards at the same
/// moment have them. And not longer than a tenth of the lease.
const OTHERS_MOMENT: Duration = Duration::from_secs(1);

fn lock() -> MutexGuard<'static, Vec<Registered>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register_new<C>(
    keepers: &mut Vec<Registered>,
    pool: &Pool<ConnectionManager<C>>,
) -> Arc<Keeper<C>>
where
    C: SemaphoreBackend + R2D2Connection + Send + 'static,
{
    let keeper = Arc::new(Keeper::new(pool.clone()));
    let typed: Arc<Typed> = Arc::clone(&keeper) as _;
    keepers.push(Registered {
        typed: Arc::downgrade(&typed),
        keep: |typed| {
            let keeper: Arc<Keeper<C>> = typed.downcast().ok()?;
            Some(Arc::new(keeper) as Arc<dyn Keep>)
        },
    });
    keeper
}
