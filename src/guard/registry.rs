//! Which keeper renews a guard: one for each pool.
//!
//! A pool of r2d2's has no identity that could be asked for. So a connection is marked with the keeper of
//! its pool; the slot that a connection without a mark has acquired is looked for through the pools that have
//! keepers, once per connection. Two pools on one database share a keeper by that, which is as well.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, PooledConnection, R2D2Connection};

use super::keeper::{Keep, Keeper};
use super::state::State;
use super::{SlotGuard, watch};
use crate::engine::slot_store::{Renewal, SlotStore};
use crate::{Error, Lease, Slot};

/// A `Keeper<C>`, for those who know `C`.
type Typed = dyn Any + Send + Sync;

struct Registered {
    typed: Weak<Typed>,
    keep: fn(Arc<Typed>) -> Option<Arc<dyn Keep>>,
}

static KEEPERS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// The mark of a connection.
struct Mark<C: R2D2Connection + Send + 'static>(Weak<Keeper<C>>);

/// Has the slot renewed.
pub(super) fn guard<C>(
    pool: &Pool<ConnectionManager<C>>,
    conn: PooledConnection<ConnectionManager<C>>,
    slot: Slot,
    lease: &Lease,
) -> Result<SlotGuard, Error>
where
    C: SlotStore + R2D2Connection + Send + 'static,
{
    let lease_us = lease.micros()?;
    let keeper = keeper_of(pool, conn, &slot, lease_us);
    let state = Arc::new(State::new(slot.deadline));
    watch::over(&state);
    keeper.keep(slot.clone(), lease.duration(), lease_us, Arc::clone(&state));
    Ok(SlotGuard {
        slot,
        state,
        keeper: Arc::new(keeper),
    })
}

/// All keepers that have guards.
pub(super) fn all() -> Vec<Arc<dyn Keep>> {
    let keepers = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner);
    keepers
        .iter()
        .filter_map(|registered| (registered.keep)(registered.typed.upgrade()?))
        .collect()
}

/// A keeper for this pool if there is none for connections of the type, so that those who acquire their
/// first guards at the same moment share it; else those that there are.
fn first_of_type<C>(
    pool: &Pool<ConnectionManager<C>>,
) -> Result<Arc<Keeper<C>>, Vec<Arc<Keeper<C>>>>
where
    C: SlotStore + R2D2Connection + Send + 'static,
{
    let mut registered = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner);
    registered.retain(|registered| registered.typed.strong_count() > 0);
    let keepers: Vec<Arc<Keeper<C>>> = registered
        .iter()
        .filter_map(|registered| registered.typed.upgrade()?.downcast().ok())
        .collect();
    if !keepers.is_empty() {
        return Err(keepers);
    }
    let keeper = Arc::new(Keeper::new(pool.clone()));
    register(&mut registered, &keeper);
    Ok(keeper)
}

fn keeper_of<C>(
    pool: &Pool<ConnectionManager<C>>,
    mut conn: PooledConnection<ConnectionManager<C>>,
    slot: &Slot,
    lease_us: i64,
) -> Arc<Keeper<C>>
where
    C: SlotStore + R2D2Connection + Send + 'static,
{
    if let Some(keeper) = marked(&conn) {
        return keeper;
    }
    let lease = [Renewal {
        semaphore: slot.semaphore.clone(),
        number: slot.number_i32(),
        token: slot.token.into_bytes(),
        lease_us,
    }];
    let mut keepers = match first_of_type(pool) {
        Ok(keeper) => {
            mark(&mut conn, &keeper);
            return keeper;
        }
        Err(keepers) => keepers,
    };
    for keeper in &keepers {
        // Beside the connection that we hold, if the pool has another.
        if let Some(mut other) = keeper.pool().try_get()
            && knows(&mut other, &lease)
        {
            mark(&mut conn, keeper);
            mark(&mut other, keeper);
            return Arc::clone(keeper);
        }
    }
    // A pool with no connection left may be the one that ours is from.
    let nonce = Arc::new(());
    PooledConnection::extensions_mut(&mut conn).insert(Nonce(Arc::clone(&nonce)));
    drop(conn);
    keepers.retain(|keeper| may_be_the_same(keeper.pool(), pool));
    let patience = Duration::from_micros(lease_us.unsigned_abs() / 10).min(OTHERS_MOMENT);
    let begun = Instant::now();
    while !keepers.is_empty() {
        let mut found = None;
        keepers.retain(|keeper| {
            // In turn with those who wait for a connection, a little with each pool.
            let Ok(mut other) = keeper.pool().get_timeout(AT_A_POOL) else {
                return true;
            };
            let same = PooledConnection::extensions(&other)
                .get::<Nonce>()
                .is_some_and(|found| Arc::ptr_eq(&found.0, &nonce));
            if same || knows(&mut other, &lease) {
                mark(&mut other, keeper);
                found = Some(Arc::clone(keeper));
            }
            false
        });
        if let Some(keeper) = found {
            return keeper;
        }
        if begun.elapsed() > patience {
            break;
        }
    }
    let keeper = Arc::new(Keeper::new(pool.clone()));
    register(
        &mut KEEPERS.lock().unwrap_or_else(PoisonError::into_inner),
        &keeper,
    );
    if let Some(mut conn) = pool.try_get() {
        mark(&mut conn, &keeper);
    }
    keeper
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

/// At one of them at a time.
const AT_A_POOL: Duration = Duration::from_millis(10);

/// Found again on the same connection.
struct Nonce(Arc<()>);

fn marked<C: R2D2Connection + Send + 'static>(
    conn: &PooledConnection<ConnectionManager<C>>,
) -> Option<Arc<Keeper<C>>> {
    PooledConnection::extensions(conn)
        .get::<Mark<C>>()?
        .0
        .upgrade()
}

fn mark<C: R2D2Connection + Send + 'static>(
    conn: &mut PooledConnection<ConnectionManager<C>>,
    keeper: &Arc<Keeper<C>>,
) {
    PooledConnection::extensions_mut(conn).insert(Mark(Arc::downgrade(keeper)));
}

/// Whether the connection's database has the slot.
fn knows<C>(conn: &mut PooledConnection<ConnectionManager<C>>, lease: &[Renewal; 1]) -> bool
where
    C: SlotStore + R2D2Connection + Send + 'static,
{
    conn.renew(lease)
        .is_ok_and(|found| found.iter().any(|one| one.token == lease[0].token))
}

fn register<C: SlotStore + R2D2Connection + Send + 'static>(
    keepers: &mut Vec<Registered>,
    keeper: &Arc<Keeper<C>>,
) {
    let typed: Arc<Typed> = Arc::clone(keeper) as _;
    keepers.push(Registered {
        typed: Arc::downgrade(&typed),
        keep: |typed| {
            let keeper: Arc<Keeper<C>> = typed.downcast().ok()?;
            Some(Arc::new(keeper) as Arc<dyn Keep>)
        },
    });
}
