//! PostgreSQL's statements for slots. Raw SQL where the DSL lacks a function, arrays as tables or locks in a subquery. Adds and
//! removes slots, and raises the floor of all fences, which a session locks meanwhile.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel::dsl::{auto_type, select};
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{Array, BigInt, Binary, Integer, Nullable, Text};

use crate::engine::dialect::{DbNow, Dialect, LeaseRemaining};
use crate::engine::ending::autocommit_retry;
use crate::engine::postgres::{PostgresEngine, begin, is_own_lock_timeout, sql};
use crate::engine::slot_queries::{self, Key, lock_fence_floor};
use crate::engine::slots::SemaphoreBackend;
use crate::engine::slots::{
    BATCH_SIZE, BatchOutcome, Grant, RaiseOutcome, ReleaseKind, slots_to_add, slots_to_delete,
};
use crate::engine::tables::{FENCES, Named, SLOTS, assert_changed, diesel_locks_slots as slots};
use crate::error::limits::FEW_SLOTS;
use crate::link::raw_sql::{push, statement};
use crate::link::{self, Link};
use crate::values::fence::{self, NUMBER_BITS, UNIT_US};
use crate::values::lease::RenewalRequest;
use crate::{Error, Semaphore};

// The functions of the migration contain these numbers.
const _: () = assert!(UNIT_US == 64 && NUMBER_BITS == 17 && FEW_SLOTS == 100);

/// How long each statement waits for a locked table: the `lock_timeout` in the texts below, and of the functions.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) static BEGIN_NOWAIT: LazyLock<String> =
    LazyLock::new(|| format!("{}; SET LOCAL lock_timeout = '50ms'", *sql::BEGIN_UNMARKED));
pub(crate) const SAVEPOINT_NOWAIT: &str = "SAVEPOINT diesel_locks; SET LOCAL lock_timeout = '50ms'";

#[diesel::declare_sql_function]
extern "SQL" {
    /// The registered number of permits; [`TABLE_LOCKED`] if another session has the table locked.
    fn diesel_locks_permits(semaphore: Text) -> Nullable<Integer>;
    /// The free slots that no other session has locked to acquire them, or to renew an expired lease.
    fn diesel_locks_unlocked(semaphore: Text) -> Array<Integer>;
    /// The time by which fences on this server are ahead of its clock.
    fn diesel_locks_timeline_us() -> BigInt;
}

statement! {
    Pg;
    /// Leases a free slot, or locks one without a token until the open transaction ends. Returns a number that [`decode`] reads. A
    /// lease in an open transaction calls another function, after which the transaction is usable if the table is locked. Raw, because
    /// the DSL would have the functions declared with all arguments, and each called with them.
    AcquireSlot<'a> {
        in_transaction: bool, semaphore: &'a str, permits: i32, first: i32, candidates: Option<&'a [i32]>,
        token: Option<&'a [u8]>, holder: Option<&'a str>, lease_us: i64, min_hold_us: i64,
    } -> BigInt, by text,
    |self, out| {
        let (function, holds) = match (self.token, self.in_transaction) {
            (None, _) => ("diesel_locks_acquire_slot", "true, "),
            (Some(_), false) => ("diesel_locks_acquire_slot", "false, "),
            (Some(_), true) => ("diesel_locks_acquire_slot_in_transaction", ""),
        };
        push!(out;
            "SELECT "; {function}; "(", Text = self.semaphore;
            ", ", Integer = &self.permits;
            ", ", Integer = &self.first;
            ", ", Nullable<Array<Integer>> = &self.candidates;
            ", "; {holds}, Nullable<Binary> = &self.token;
            ", ", Nullable<Text> = &self.holder;
            ", ", BigInt = &self.lease_us;
            ", ", BigInt = &self.min_hold_us;
            ")";
        );
    }
}

pub(crate) async fn acquire_slot(
    conn: &mut impl Link<Db = Pg>,
    acquire: &AcquireSlot<'_>,
) -> QueryResult<i64> {
    let started = Instant::now();
    match conn.get_result(acquire).await {
        Err(error)
            if !acquire.in_transaction && is_own_lock_timeout(&error, started, LOCK_TIMEOUT) =>
        {
            Ok(TABLE_LOCKED)
        }
        answer => answer,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// A slot was leased, and the last bits of the fence are its number; or was locked, and the fence is 0.
    Granted(Grant),
    TableLocked,
    UnsuitableIsolation(&'static str),
    Refused {
        slots: i32,
        any_free: bool,
    },
}

/// The answer of the function that handles a `lock_timeout`.
const TABLE_LOCKED: i64 = -1;

/// Reads the number that the functions return, as the migration describes it.
pub(crate) fn decode(answer: i64) -> Option<Acquired> {
    const FIRST_FENCE: i64 = 1 << NUMBER_BITS;
    Some(match answer {
        1.. => Acquired::Granted(Grant {
            number: i32::try_from(answer & (FIRST_FENCE - 1)).ok()?,
            fence: if answer < FIRST_FENCE { 0 } else { answer },
        }),
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
    /// Identifies the table: the database's name, the table's OID (which a database shares with the template that it was made
    /// from), and the server's start time in microseconds.
    Database {} -> (Text, BigInt, BigInt),
    |self| {
        "SELECT current_database()::text, 'diesel_locks_slots'::regclass::bigint, \
         (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
    }
}

/// Reads the newest entry of the index: an equality would read all versions of the row that an old snapshot keeps.
#[auto_type]
pub(crate) fn first_slot<'a>(name: Named<'a>) -> _ {
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.between(1_i32, 1_i32))
        .order((slots::number.desc(), slots::fence.desc()))
        .limit(1_i64)
        .select((
            slots::fence,
            slots::acquired_us,
            slots::hold_until_us,
            LeaseRemaining,
        ))
}

#[auto_type]
pub(crate) fn any_free() -> _ {
    slots::table
        .filter(slots::expires_us.le(DbNow))
        .limit(1_i64)
        .select((slots::name, slots::number))
}

statement! {
    Pg;
    /// Locks the slot against another grant, but not against a renewal or release. Raw because of the condition on the fence.
    Pin<'a> { key: Key<'a> } -> Integer,
    |self| { "SELECT number FROM diesel_locks_slots"; [&self.key]; " FOR KEY SHARE" }
}

/// A condition of a release as a transaction of its own that does not wait for the disk. The order stays right: the next grant of the
/// slot comes later in the log.
///
/// The setting is for this transaction, which is this statement. The order in which the server evaluates the conditions does not
/// matter: for an updated row it has evaluated all of them, and without one the transaction writes nothing.
pub(crate) const WITHOUT_DISK: &str = " AND set_config('synchronous_commit', 'off', true) = 'off'";

pub(crate) struct Asked<'a> {
    names: Vec<&'a str>,
    numbers: Vec<i32>,
    tokens: Vec<&'a [u8]>,
    leases: Vec<i64>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(leases: &'a [RenewalRequest]) -> Self {
        Self {
            names: leases
                .iter()
                .map(|lease| lease.semaphore.as_str())
                .collect(),
            numbers: leases.iter().map(|lease| lease.number).collect(),
            tokens: leases.iter().map(|lease| lease.token.as_slice()).collect(),
            leases: leases.iter().map(|lease| lease.lease_us).collect(),
        }
    }
}

/// Finds the row of each requested slot, as the newest entry in the index, if its token still matches (`mine`), and
/// locks those that no other session has locked, in the order of their keys (`locked`).
impl QueryFragment<Pg> for Asked<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        push!(out;
            "WITH mine AS MATERIALIZED (SELECT slot.name, slot.number, slot.fence, asked.lease_us, slot.expires_us, \
             slot.token, slot.release_requested_us FROM unnest(", Array<Text> = &self.names;
            ", ", Array<Integer> = &self.numbers;
            ", ", Array<Binary> = &self.tokens;
            ", ", Array<BigInt> = &self.leases;
            ") AS asked (name, number, token, lease_us) \
             JOIN LATERAL (SELECT name, number, fence, expires_us, token, release_requested_us FROM diesel_locks_slots \
             WHERE diesel_locks_slots.name = asked.name COLLATE \"C\" \
             AND diesel_locks_slots.number BETWEEN asked.number AND asked.number \
             ORDER BY diesel_locks_slots.number DESC, diesel_locks_slots.fence DESC LIMIT 1) AS slot \
             ON slot.token = asked.token), \
             locked AS MATERIALIZED (SELECT slot.name, slot.number, slot.fence, slot.token, mine.lease_us \
             FROM diesel_locks_slots AS slot JOIN mine ON slot.name = mine.name AND slot.number = mine.number \
             AND slot.fence = mine.fence AND slot.token = mine.token \
             ORDER BY slot.name, slot.number FOR NO KEY UPDATE OF slot SKIP LOCKED), ";
        );
        Ok(())
    }
}

const OF_LOCKED: &str = " FROM locked WHERE diesel_locks_slots.name = locked.name \
     AND diesel_locks_slots.number = locked.number AND diesel_locks_slots.fence = locked.fence";

/// The end of a release: the tokens of the slots that another session has locked.
const NOT_RELEASED: &str = ") SELECT token FROM mine WHERE token NOT IN (SELECT token FROM locked)";

statement! {
    Pg;
    RenewBatch<'a> { asked: Asked<'a> } -> (Binary, BigInt, BigInt),
    |self| {
        [&self.asked]; "renewed AS (UPDATE diesel_locks_slots SET expires_us = greatest(hold_until_us, "; {Pg::NOW};
        " + locked.lease_us)"; {OF_LOCKED}; " AND expires_us > "; {Pg::NOW};
        " RETURNING diesel_locks_slots.token, expires_us - "; {Pg::NOW};
        " AS remaining_us, release_requested_us) SELECT token, remaining_us, release_requested_us FROM renewed UNION ALL \
         SELECT token, expires_us - "; {Pg::NOW};
        ", release_requested_us FROM mine WHERE token NOT IN (SELECT token FROM renewed)";
    }

    ReleaseBatch<'a> { asked: Asked<'a>, kind: ReleaseKind } -> Binary, by text,
    |self| {
        [&self.asked]; "freed AS (UPDATE diesel_locks_slots"; {self.kind.set()}; {OF_LOCKED}; {NOT_RELEASED}
    }
}

pub(crate) async fn add_slots(
    conn: &mut impl Link<Db = Pg>,
    semaphore: &Semaphore,
    block: bool,
) -> QueryResult<BatchOutcome> {
    let (name, permits) = (Named(semaphore.name()), semaphore.permits_i32());
    let floor: Option<i64> = if block {
        conn.get_optional(lock_fence_floor()).await?
    } else {
        conn.get_optional(lock_fence_floor().skip_locked()).await?
    };
    let Some(fence) = floor else {
        return Ok(if floor_exists(conn).await? {
            BatchOutcome::Contended
        } else {
            BatchOutcome::NoFenceFloor
        });
    };
    let last = conn.get_optional(slot_queries::last_number(name)).await?;
    let numbers = slots_to_add(last, permits);
    let is_last = *numbers.end() == permits;
    if !numbers.is_empty() {
        let insert = slot_queries::insert_slots(name, numbers, fence);
        assert_changed(conn.execute(insert).await?, SLOTS)?;
    }
    Ok(if is_last {
        BatchOutcome::Complete
    } else {
        BatchOutcome::Partial
    })
}

pub(crate) async fn floor_is_locked(conn: &mut impl Link<Db = Pg>) -> QueryResult<bool> {
    let free: Option<i64> = conn.get_optional(lock_fence_floor().skip_locked()).await?;
    Ok(free.is_none() && floor_exists(conn).await?)
}

async fn floor_exists(conn: &mut impl Link<Db = Pg>) -> QueryResult<bool> {
    let floor: Option<i64> = conn.get_optional(slot_queries::fence_floor()).await?;
    Ok(floor.is_some())
}

pub(crate) async fn largest_fence(conn: &mut impl Link<Db = Pg>) -> QueryResult<i64> {
    let last: Option<i64> = conn.get_result(slot_queries::last_fence()).await?;
    let clock = select((DbNow, diesel_locks_timeline_us()));
    let (now_us, timeline_us): (i64, i64) = conn.get_result(clock).await?;
    Ok(last.unwrap_or(0).max(fence::at(now_us + timeline_us)))
}

pub(crate) async fn raise(
    conn: &mut impl Link<Db = Pg>,
    by: Duration,
) -> QueryResult<RaiseOutcome> {
    let Some(floor) = conn.get_optional(lock_fence_floor()).await? else {
        return Ok(RaiseOutcome::NoFenceFloor);
    };
    let last = largest_fence(conn).await?.max(floor);
    let Some(raised) = fence::raised(last, by) else {
        return Ok(RaiseOutcome::TooLarge);
    };
    if raised > floor {
        let set = slot_queries::set_fence_floor(raised);
        assert_changed(conn.execute(set).await?, FENCES)?;
    }
    Ok(RaiseOutcome::RaisedTo(raised))
}

pub(crate) async fn purge(conn: &mut impl Link<Db = Pg>, age_us: i64) -> Result<usize, Error> {
    let semaphores: Vec<String> =
        autocommit_retry!(conn, conn.load(slot_queries::with_slots()).await)?;
    let mut purged = 0;
    for name in semaphores {
        loop {
            begin(conn, &sql::BEGIN).await?;
            let removed = delete_last(conn, Named(&name), age_us).await;
            match link::end(conn, removed).await? {
                None => PostgresEngine(conn).create_fence_floor().await?,
                Some(0) => break,
                Some(removed) => purged += removed,
            }
        }
    }
    Ok(purged)
}

/// Returns how many slots were deleted, or `None` when the row of `diesel_locks_fences` is missing.
async fn delete_last(
    conn: &mut impl Link<Db = Pg>,
    name: Named<'_>,
    age_us: i64,
) -> QueryResult<Option<usize>> {
    let Some(floor) = conn.get_optional(lock_fence_floor()).await? else {
        return Ok(None);
    };
    let last = conn.get_optional(slot_queries::last_number(name)).await?;
    let retained = slot_queries::last_retained(name, age_us);
    let retained: Option<i32> = conn.get_optional(retained).await?;
    let free = slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.gt(retained.unwrap_or(0)))
        .filter(slots::expires_us.le(DbNow))
        .order(slots::number.desc())
        .limit(BATCH_SIZE.into())
        .select((slots::number, slots::fence))
        .for_update()
        .skip_locked();
    let Some(deletion) = slots_to_delete(last, &conn.load(free).await?, floor) else {
        return Ok(Some(0));
    };
    if deletion.fence > floor {
        let raise = slot_queries::set_fence_floor(deletion.fence);
        assert_changed(conn.execute(raise).await?, FENCES)?;
    }
    let delete = slot_queries::delete_above(name, deletion.above);
    let deleted = conn.execute(delete).await?;
    assert_changed(deleted, SLOTS)?;
    Ok(Some(deleted))
}

#[cfg(test)]
mod tests {
    use super::{Acquired, Grant, decode};

    #[test]
    fn answers_are_decoded_as_the_migration_encodes_them() {
        let refused = |slots, any_free| Some(Acquired::Refused { slots, any_free });
        assert_eq!(decode(-4), refused(0, false));
        assert_eq!(decode(-5), refused(0, true));
        assert_eq!(decode(-4 - 2 * 100_001), refused(100_001, false));
        assert_eq!(decode(-5 - 2 * 100_001), refused(100_001, true));
        assert_eq!(decode(-1), Some(Acquired::TableLocked));
        let serializable = Acquired::UnsuitableIsolation("serializable");
        assert_eq!(decode(-3), Some(serializable));
        let number = 100_000;
        let granted = |fence| Some(Acquired::Granted(Grant { number, fence }));
        assert_eq!(decode(100_000), granted(0));
        let fence = (27_589_000_000_000 << 17) + 100_000;
        assert_eq!(decode(fence), granted(fence));
        assert_eq!(decode(0), None);
        assert_eq!(decode(i64::MIN), None);
    }
}
