//! PostgreSQL's statements for slots.

use std::time::{Duration, Instant};

use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Integer, Nullable, Text};

use super::is_own_lock_timeout;
use super::untracked::{assert_begun, begin_tracked};
use crate::engine::clock::Clock;
use crate::engine::raw_sql::{push, statement};
use crate::engine::slot_queries::{locking_slot_queries, slot_queries};
use crate::limits::FEW_SLOTS;
use crate::link::Link;
use crate::semaphore::backend::LeaseRequest;
use crate::semaphore::fence::{NUMBER_BITS, UNIT_US};

pub(super) mod batch;

slot_queries!(postgres, Pg, str, Text);
locking_slot_queries!(str);

/// Like `lock_fence_floor`, but returns no row when another session has locked it.
#[diesel::dsl::auto_type]
pub(super) fn lock_fence_floor_if_free() -> _ {
    let fences: i32 = FENCE_ROW_ID;
    diesel_locks_fences::table
        .filter(diesel_locks_fences::id.eq(fences))
        .select(diesel_locks_fences::fence)
        .for_update()
        .skip_locked()
}

/// Like `lock_fence_floor`, but fails when another session has locked it.
#[diesel::dsl::auto_type]
pub(super) fn lock_fence_floor_nowait() -> _ {
    let fences: i32 = FENCE_ROW_ID;
    diesel_locks_fences::table
        .filter(diesel_locks_fences::id.eq(fences))
        .select(diesel_locks_fences::fence)
        .for_update()
        .no_wait()
}

impl Clock for Pg {
    const NOW: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const GREATEST: &'static str = "greatest";
    const STALE_INDEX_ENTRIES: bool = true;
}

// The functions of the migration contain these numbers.
const _: () = assert!(UNIT_US == 64 && NUMBER_BITS == 17 && FEW_SLOTS == 100);

/// How long each statement waits for a locked table: the `lock_timeout` in the texts below, and of the functions.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// Begins a transaction, or a savepoint, whose statements wait for a locked table for a short time only.
pub(super) const BEGIN_NOWAIT: &str = concat!(
    begin_tracked!(),
    ", ISOLATION LEVEL READ COMMITTED; ",
    assert_begun!(),
    "; SET LOCAL lock_timeout = '50ms'"
);
pub(super) const SAVEPOINT_NOWAIT: &str = "SAVEPOINT diesel_locks; SET LOCAL lock_timeout = '50ms'";

/// The slots to search.
pub(super) struct SlotFilter<'a> {
    pub(super) semaphore: &'a str,
    pub(super) permits: i32,
    pub(super) first: i32,
    pub(super) candidates: Option<&'a [i32]>,
}

#[diesel::declare_sql_function]
#[allow(
    clippy::too_many_arguments,
    reason = "a record for them would cost more at each call"
)]
extern "SQL" {
    /// Leases a free slot, or locks one if `token` is `NULL`. Returns a number that [`decode`] reads.
    fn diesel_locks_acquire_slot(
        semaphore: Text,
        permits: Integer,
        first: Integer,
        among: Nullable<Array<Integer>>,
        in_transaction: Bool,
        token: Nullable<Binary>,
        holder: Nullable<Text>,
        lease_us: BigInt,
        at_least_us: BigInt,
    ) -> BigInt;
    /// Leases a free slot in the open transaction, which stays usable if the table is locked.
    fn diesel_locks_acquire_slot_in_transaction(
        semaphore: Text,
        permits: Integer,
        first: Integer,
        among: Nullable<Array<Integer>>,
        token: Nullable<Binary>,
        holder: Nullable<Text>,
        lease_us: BigInt,
        at_least_us: BigInt,
    ) -> BigInt;
}

/// Leases a free slot, or without a request locks one until the open transaction, or savepoint, ends.
pub(super) async fn acquire_slot(
    conn: &mut impl Link<Backend = Pg>,
    request: Option<&LeaseRequest<'_>>,
    filter: &SlotFilter<'_>,
) -> QueryResult<i64> {
    let acquire = diesel::select(diesel_locks_acquire_slot(
        filter.semaphore,
        filter.permits,
        filter.first,
        filter.candidates,
        request.is_none(),
        request.map(|request| request.token.as_slice()),
        request.and_then(|request| request.holder),
        request.map_or(0, |request| request.lease_us),
        request.map_or(0, |request| request.min_hold_us),
    ));
    let started = Instant::now();
    match conn.get_result(acquire).await {
        Err(error) if is_own_lock_timeout(&error, started, LOCK_TIMEOUT) => Ok(TABLE_LOCKED),
        answer => answer,
    }
}

/// Leases a free slot in the open transaction.
pub(super) async fn acquire_slot_in_transaction(
    conn: &mut impl Link<Backend = Pg>,
    request: &LeaseRequest<'_>,
    filter: &SlotFilter<'_>,
) -> QueryResult<i64> {
    let acquire = diesel::select(diesel_locks_acquire_slot_in_transaction(
        filter.semaphore,
        filter.permits,
        filter.first,
        filter.candidates,
        Some(request.token.as_slice()),
        request.holder,
        request.lease_us,
        request.min_hold_us,
    ));
    conn.get_result(acquire).await
}

/// What the functions return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acquired {
    /// A slot was leased. The last bits of the fence are its number.
    Leased { number: i32, fence: i64 },
    /// A slot was locked.
    Locked { number: i32 },
    /// The table is locked.
    TableLocked,
    /// The transaction has an unsuitable isolation level.
    UnsuitableIsolation(&'static str),
    /// No slot was acquired.
    Refused { slots: i32, any_free: bool },
}

/// The answer of the function that handles a `lock_timeout`.
const TABLE_LOCKED: i64 = -1;

/// Reads the number that the functions return, as the migration describes it.
pub(super) fn decode(answer: i64) -> Option<Acquired> {
    const FIRST_FENCE: i64 = 1 << NUMBER_BITS;
    Some(match answer {
        1..FIRST_FENCE => Acquired::Locked {
            number: i32::try_from(answer).ok()?,
        },
        FIRST_FENCE.. => Acquired::Leased {
            number: i32::try_from(answer & (FIRST_FENCE - 1)).ok()?,
            fence: answer,
        },
        TABLE_LOCKED => Acquired::TableLocked,
        -2 => Acquired::UnsuitableIsolation("repeatable read"),
        -3 => Acquired::UnsuitableIsolation("serializable"),
        ..=-4 => {
            let refusal = answer.checked_add(4)?.checked_neg()?;
            Acquired::Refused {
                slots: i32::try_from(refusal / 2).ok()?,
                any_free: refusal % 2 == 1,
            }
        }
        0 => return None,
    })
}

statement! {
    Pg;
    /// Identifies the table: the database's name, the table's OID (which a database shares with the template that it
    /// was made from), and the server's start time in microseconds. Raw, because the DSL has none of these functions.
    Database {} -> (Text, BigInt, BigInt),
    |self, out| {
        out.push_sql(
            "SELECT current_database()::text, 'diesel_locks_slots'::regclass::bigint, \
             (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint",
        );
    }
}

/// The times of a semaphore's first slot, whether it is held or not. By the newest entry of the index: an equality would read
/// all versions of the row that an old snapshot keeps.
#[diesel::dsl::auto_type]
pub(super) fn first_slot<'a>(name: &'a str) -> _ {
    let left: LeaseRemaining = LeaseRemaining {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.between(1_i32, 1_i32))
        .order((slots::number.desc(), slots::fence.desc()))
        .limit(1_i64)
        .select((slots::fence, slots::acquired_us, slots::hold_until_us, left))
}

/// The free slots, without those that a session has locked to acquire them or to renew an expired lease. Shared locks,
/// of other sessions that search or that pin their slots, do not conflict.
#[diesel::dsl::auto_type]
pub(super) fn free_and_unlocked<'a>(name: &'a str) -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::expires_us.le(now))
        .select(slots::number)
        .for_share()
        .skip_locked()
}

/// A slot that is free, of any semaphore.
#[diesel::dsl::auto_type]
pub(super) fn any_free() -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::expires_us.le(now))
        .limit(1_i64)
        .select((slots::name, slots::number))
}

statement! {
    Pg;
    /// Locks the slot so that it can't be granted to another holder, but can be renewed and released. Raw because of
    /// the condition on the fence.
    Pin<'a> { key: Key<'a> } -> Integer,
    |self, out| {
        out.push_sql("SELECT number FROM diesel_locks_slots");
        push_key_filter(&mut out, &self.key)?;
        out.push_sql(" FOR KEY SHARE");
    }
}

/// Locks free slots above a number, from the last one down.
#[diesel::dsl::auto_type]
pub(super) fn lock_free_above<'a>(name: &'a str, above: i32, limit: i64) -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.gt(above))
        .filter(slots::expires_us.le(now))
        .order(slots::number.desc())
        .limit(limit)
        .select((slots::number, slots::fence))
        .for_update()
        .skip_locked()
}

/// Inserts the floor unless it exists.
pub(super) fn insert_fence_floor(fence: i64) -> impl ExecutableQuery {
    diesel::insert_into(diesel_locks_fences::table)
        .values((
            diesel_locks_fences::id.eq(FENCE_ROW_ID),
            diesel_locks_fences::fence.eq(fence),
        ))
        .on_conflict_do_nothing()
}

pub(super) fn register(name: &str, permits: i32) -> impl ExecutableQuery {
    diesel::insert_into(diesel_locks_semaphores::table)
        .values((
            diesel_locks_semaphores::name.eq(name),
            diesel_locks_semaphores::permits.eq(permits),
        ))
        .on_conflict(diesel_locks_semaphores::name)
        .do_update()
        .set(diesel_locks_semaphores::permits.eq(permits))
}

statement! {
    Pg;
    /// [`ReleaseUnexpired`] as a transaction of its own that does not wait for the disk. If the server crashes before
    /// it has written the release to disk, the slot becomes free when its lease expires. The order stays right: the
    /// next grant of the slot comes later in the log.
    ReleaseAsync<'a> { key: Key<'a> } -> Integer,
    |self, out| {
        out.push_sql("UPDATE diesel_locks_slots");
        push_released(&mut out);
        push_key_filter(&mut out, &self.key)?;
        push_unexpired_filter(&mut out);
        // The setting is for this transaction, which is this statement. The order in which the server evaluates the
        // conditions does not matter: for an updated row it has evaluated all of them, and without one the transaction
        // writes nothing.
        out.push_sql(" AND set_config('synchronous_commit', 'off', true) = 'off'");
    }
}

#[cfg(test)]
mod tests {
    use super::{Acquired, decode};

    #[test]
    fn answers_are_decoded_as_the_migration_encodes_them() {
        let refused = |slots, any_free| Some(Acquired::Refused { slots, any_free });
        assert_eq!(decode(-4), refused(0, false));
        assert_eq!(decode(-5), refused(0, true));
        assert_eq!(decode(-4 - 2 * 100_001), refused(100_001, false));
        assert_eq!(decode(-5 - 2 * 100_001), refused(100_001, true));
        assert_eq!(decode(-1), Some(Acquired::TableLocked));
        assert_eq!(
            decode(-3),
            Some(Acquired::UnsuitableIsolation("serializable"))
        );
        assert_eq!(decode(100_000), Some(Acquired::Locked { number: 100_000 }));
        let fence = (27_589_000_000_000 << 17) + 100_000;
        assert_eq!(
            decode(fence),
            Some(Acquired::Leased {
                number: 100_000,
                fence
            })
        );
        assert_eq!(decode(0), None);
        assert_eq!(decode(i64::MIN), None);
    }
}
