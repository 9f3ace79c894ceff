//! Slots of semaphores on PostgreSQL. One call of a function finds a free slot, skips those that are locked, and
//! acquires it, or says what is there.

use std::cell::Cell;
use std::time::Duration;

use diesel::connection::{Connection, SimpleConnection};
use diesel::pg::PgConnection;
use diesel::prelude::*;

use super::slot_sql;
use super::{isolation_of, sql};
use crate::engine::slot_resize::{AT_ONCE, to_remove};
use crate::error::classify::{ErrorClass, classify};
use crate::semaphore::backend::{
    Added, Attempt, Expiry, Granted, HeldRow, Place, Raised, Renewal, Renewed, SlotStore, Wanted,
    judge, open_among,
};
use crate::{Error, Semaphore, Slot, backoff, transaction::depth};

impl SlotStore for PgConnection {
    fn database(conn: &mut Self) -> Result<Option<String>, Error> {
        let (name, table, started) = alone(conn, |conn| {
            slot_sql::Database {}.get_result::<(String, i64, i64)>(conn)
        })?;
        Ok(Some(format!("postgres {name} {table} {started}")))
    }

    fn try_lease(conn: &mut Self, wanted: &Wanted<'_>, place: &Place) -> Result<Attempt, Error> {
        let answer = alone(conn, |conn| {
            let candidates = candidates(wanted.semaphore, place);
            if place.in_transaction {
                slot_sql::AcquireSlotInTransaction { wanted, candidates }.get_result(conn)
            } else {
                slot_sql::AcquireSlot { wanted, candidates }.get_result(conn)
            }
        });
        attempt(answer, wanted.semaphore, place)
    }

    fn begin_to_hold(conn: &mut Self) -> Result<bool, Error> {
        super::begin(conn, sql::BEGIN)?;
        Ok(true)
    }

    fn try_hold(conn: &mut Self, semaphore: &Semaphore, place: &Place) -> Result<Attempt, Error> {
        let candidates = candidates(semaphore, place);
        let answer = slot_sql::HoldSlot { candidates }.get_result(conn);
        attempt(answer.map_err(Error::from), semaphore, place)
    }

    fn open_slots(
        conn: &mut Self,
        semaphore: &Semaphore,
        in_transaction: bool,
    ) -> Result<Vec<i32>, Error> {
        // What was only looked at is not to stay locked until the transaction ends.
        if in_transaction {
            conn.batch_execute(slot_sql::SAVEPOINT)?;
        }
        let looked = alone(conn, |conn| {
            let slots: i64 = slot_sql::count(semaphore.name()).get_result(conn)?;
            let free: Vec<i32> = slot_sql::free_and_unlocked(semaphore.name()).load(conn)?;
            Ok(open_among(free, slots, semaphore.permits_i32()))
        });
        if in_transaction {
            conn.batch_execute(sql::ROLLBACK_TO_SAVEPOINT)?;
        }
        looked
    }

    fn slots_change(conn: &mut Self) -> Result<bool, Error> {
        alone(conn, slot_sql::floor_is_locked)
    }

    fn add_batch(conn: &mut Self, semaphore: &Semaphore, waits: bool) -> Result<Added, Error> {
        let (name, permits) = (semaphore.name(), semaphore.permits_i32());
        at_read_committed(conn, |conn| slot_sql::add_batch(conn, name, permits, waits))
    }

    fn make_fence_floor(conn: &mut Self) -> Result<(), Error> {
        let last = alone(conn, slot_sql::last_of_all)?;
        alone(conn, |conn| {
            conn.execute_returning_count(&slot_sql::insert_fence_floor(last))
        })?;
        Ok(())
    }

    fn raise_fence_floor(conn: &mut Self, by: Duration) -> Result<Raised, Error> {
        at_read_committed(conn, |conn| slot_sql::raise_fence_floor(conn, by))
    }

    fn register(conn: &mut Self, semaphore: &Semaphore) -> Result<(), Error> {
        alone(conn, |conn| {
            conn.execute_returning_count(&slot_sql::register(
                semaphore.name(),
                semaphore.permits_i32(),
            ))
        })?;
        Ok(())
    }

    fn extend(conn: &mut Self, slot: &Slot, lease_us: i64, state: Expiry) -> Result<usize, Error> {
        alone(conn, |conn| match state {
            Expiry::Unexpired => slot_sql::ExtendUnexpired {
                key: key(slot),
                lease_us,
            }
            .execute(conn),
            Expiry::Any => slot_sql::Extend {
                key: key(slot),
                lease_us,
            }
            .execute(conn),
        })
    }

    fn give_back(conn: &mut Self, slot: &Slot, state: Expiry) -> Result<usize, Error> {
        let own_transaction = depth::depth(conn)? == 0;
        alone(conn, |conn| match state {
            Expiry::Unexpired if own_transaction => {
                slot_sql::GiveBackAlone { key: key(slot) }.execute(conn)
            }
            Expiry::Unexpired => slot_sql::GiveBackUnexpired { key: key(slot) }.execute(conn),
            Expiry::Any => slot_sql::GiveBack { key: key(slot) }.execute(conn),
        })
    }

    fn pin(conn: &mut Self, slot: &Slot) -> Result<bool, Error> {
        let pin = slot_sql::Pin { key: key(slot) };
        let pinned: Option<i32> = pin.get_result(conn).optional()?;
        Ok(pinned.is_some())
    }

    fn is_of_token(conn: &mut Self, slot: &Slot) -> Result<bool, Error> {
        let mine: i64 = alone(conn, |conn| {
            slot_sql::IsOfToken { key: key(slot) }.get_result(conn)
        })?;
        Ok(mine == 1)
    }

    fn held(conn: &mut Self, name: &str) -> Result<Vec<HeldRow>, Error> {
        alone(conn, |conn| slot_sql::held(name).load(conn))
    }

    fn give_all_back(conn: &mut Self, name: &str) -> Result<usize, Error> {
        let taken: Vec<(i32, bool)> = alone(conn, |conn| slot_sql::taken_numbers(name).load(conn))?;
        let mut held = 0;
        for (number, unexpired) in taken {
            let freed = alone(conn, |conn| {
                conn.execute_returning_count(&slot_sql::take_away(name, number))
            })?;
            held += if unexpired { freed } else { 0 };
        }
        Ok(held)
    }

    fn purge_slots_older_than(conn: &mut Self, age_us: i64) -> Result<usize, Error> {
        let semaphores: Vec<(String, Option<i32>)> =
            alone(conn, |conn| slot_sql::semaphores().load(conn))?;
        let mut purged = 0;
        for (name, permits) in semaphores {
            loop {
                let removed = at_read_committed(conn, |conn| {
                    remove_last(conn, &name, age_us, permits.unwrap_or(0))
                })?;
                match removed {
                    None => Self::make_fence_floor(conn)?,
                    Some(0) => break,
                    Some(removed) => purged += removed,
                }
            }
        }
        Ok(purged)
    }

    fn give_back_many(conn: &mut Self, leases: &[Renewal]) -> Result<Vec<Vec<u8>>, Error> {
        alone(conn, |conn| slot_sql::GiveBackMany::of(leases).load(conn))
    }

    fn renew(conn: &mut Self, leases: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let rows: Vec<(Vec<u8>, i64)> = alone(conn, |conn| slot_sql::Renew::of(leases).load(conn))?;
        Ok(rows
            .into_iter()
            .map(|(token, left_us)| Renewed { token, left_us })
            .collect())
    }
}

/// The last slots, as far as they are free and old and nobody has them locked: their numbers stay
/// without gaps. `None` when the row of `diesel_locks_fences` is missing.
fn remove_last(
    conn: &mut PgConnection,
    name: &str,
    age_us: i64,
    permits: i32,
) -> QueryResult<Option<usize>> {
    let Some(floor): Option<i64> = slot_sql::lock_fence_floor().get_result(conn).optional()? else {
        return Ok(None);
    };
    let last: Option<i32> = slot_sql::last_number(name).get_result(conn).optional()?;
    let stays: Option<i32> = slot_sql::last_to_stay(name, age_us, permits)
        .get_result(conn)
        .optional()?;
    let rows: Vec<(i32, i64)> =
        slot_sql::lock_free_above(name, stays.unwrap_or(0), AT_ONCE.into()).load(conn)?;
    let Some(removal) = to_remove(last, &rows, floor) else {
        return Ok(Some(0));
    };
    if removal.fence > floor {
        conn.execute_returning_count(&slot_sql::set_fence_floor(removal.fence))?;
    }
    conn.execute_returning_count(&slot_sql::remove_above(name, removal.above))
        .map(Some)
}

/// A transaction that sees what was committed before each of its statements.
fn at_read_committed<T>(
    conn: &mut PgConnection,
    work: impl Fn(&mut PgConnection) -> QueryResult<T>,
) -> Result<T, Error> {
    Ok(conn
        .build_transaction()
        .read_committed()
        .run(|conn| work(conn))?)
}

/// Runs a statement that is its own transaction until it is not the victim of another: at a session's
/// default level above READ COMMITTED also single statements can be. Inside a transaction once.
fn alone<T>(
    conn: &mut PgConnection,
    statement: impl Fn(&mut PgConnection) -> QueryResult<T>,
) -> Result<T, Error> {
    let alone = depth::depth(conn)? == 0;
    loop {
        match statement(conn) {
            Err(error) if alone && is_victim(&error) => {}
            result => return Ok(result?),
        }
    }
}

fn is_victim(error: &diesel::result::Error) -> bool {
    matches!(
        classify(error),
        ErrorClass::SerializationFailure | ErrorClass::Deadlock
    )
}

/// Whether the limit of `diesel_locks_acquire_slot` has ended it.
fn is_lock_timeout(error: &Error) -> bool {
    matches!(error, Error::StatementTimeout { source } if classify(source) == ErrorClass::LockTimeout)
}

fn key(slot: &Slot) -> slot_sql::Key<'_> {
    slot_sql::Key {
        name: &slot.semaphore,
        number: slot.number_i32(),
        token: slot.token.as_bytes(),
    }
}

thread_local! {
    /// The slot that this thread acquired last. It is mostly free when the thread acquires one again, so that
    /// threads that share a semaphore are not in each other's way.
    static LAST_ACQUIRED: Cell<i32> = Cell::new(random_first());
}

fn random_first() -> i32 {
    i32::try_from(backoff::random_below(100)).map_or(1, |below| below + 1)
}

fn candidates<'a>(semaphore: &'a Semaphore, place: &'a Place) -> slot_sql::Candidates<'a> {
    let permits = semaphore.permits_i32();
    let first = place.likely.unwrap_or_else(|| LAST_ACQUIRED.get());
    slot_sql::Candidates {
        semaphore: semaphore.name(),
        permits,
        first: 1 + (first.max(1) - 1) % permits.max(1),
        among: place.open.as_deref(),
    }
}

fn attempt(
    answer: Result<slot_sql::Answer, Error>,
    semaphore: &Semaphore,
    place: &Place,
) -> Result<Attempt, Error> {
    let (number, fence, slots, any_free, level) = match answer {
        Err(error) if is_lock_timeout(&error) => return Ok(Attempt::TableLocked),
        answer => answer?,
    };
    if let (Some(number), Some(fence)) = (number, fence) {
        LAST_ACQUIRED.set(number);
        return Ok(Attempt::Granted(Granted { number, fence }));
    }
    let Some(any_free) = any_free else {
        return Ok(Attempt::TableLocked);
    };
    match level {
        Some(level) => Err(Error::UnsuitableIsolation {
            resource: semaphore.to_string(),
            reason: isolation_of(&level),
        }),
        None => Ok(judge(slots, semaphore.permits_i32(), any_free, place)),
    }
}
