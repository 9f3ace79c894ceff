//! PostgreSQL's statements for slots. Raw SQL where the DSL lacks a function, arrays as tables or locks in a subquery.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel::dsl::auto_type;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Integer, Nullable, Text};

use crate::engine::clock::{Clock, DbNow, LeaseRemaining};
use crate::engine::postgres::{is_own_lock_timeout, sql};
use crate::engine::slot_queries::{Key, Release, ReleaseUnused, Unexpired};
use crate::engine::slots::LeaseRequest;
use crate::engine::tables::{Named, diesel_locks_slots as slots};
use crate::error::limits::FEW_SLOTS;
use crate::link::On;
use crate::link::raw_sql::{push, statement};
use crate::values::fence::{NUMBER_BITS, UNIT_US};
use crate::values::lease::RenewalRequest;

impl Clock for Pg {
    const NOW: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const GREATEST: &'static str = "greatest";
    const STALE_INDEX_ENTRIES: bool = true;
}

// The functions of the migration contain these numbers.
const _: () = assert!(UNIT_US == 64 && NUMBER_BITS == 17 && FEW_SLOTS == 100);

/// How long each statement waits for a locked table: the `lock_timeout` in the texts below, and of the functions.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) static BEGIN_NOWAIT: LazyLock<String> =
    LazyLock::new(|| format!("{}; SET LOCAL lock_timeout = '50ms'", *sql::BEGIN_UNMARKED));
pub(crate) const SAVEPOINT_NOWAIT: &str = "SAVEPOINT diesel_locks; SET LOCAL lock_timeout = '50ms'";

pub(crate) struct SlotFilter<'a> {
    pub(crate) semaphore: &'a str,
    pub(crate) permits: i32,
    pub(crate) first: i32,
    pub(crate) candidates: Option<&'a [i32]>,
}

#[diesel::declare_sql_function]
#[allow(
    clippy::too_many_arguments,
    reason = "a record for them would cost more at each call"
)]
extern "SQL" {
    /// The time by which fences on this server are ahead of its clock.
    fn diesel_locks_timeline_us() -> BigInt;
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

pub(crate) async fn acquire_slot(
    conn: &mut impl On<Pg>,
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

pub(crate) async fn acquire_slot_in_transaction(
    conn: &mut impl On<Pg>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// A slot was leased. The last bits of the fence are its number.
    Leased {
        number: i32,
        fence: i64,
    },
    Locked {
        number: i32,
    },
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
#[auto_type]
pub(crate) fn free_and_unlocked<'a>(name: Named<'a>) -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::expires_us.le(now))
        .select(slots::number)
        .for_share()
        .skip_locked()
}

#[auto_type]
pub(crate) fn any_free() -> _ {
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
    |self| { "SELECT number FROM diesel_locks_slots"; [&self.key]; " FOR KEY SHARE" }
}

/// [`Unexpired`] for a release as a transaction of its own that does not wait for the disk. The order stays right: the next
/// grant of the slot comes later in the log.
#[derive(QueryId)]
pub(crate) struct UnexpiredAsync<K>(pub(crate) Unexpired<K>);

impl<K: QueryFragment<Pg>> QueryFragment<Pg> for UnexpiredAsync<K> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.0.walk_ast(out.reborrow())?;
        // The setting is for this transaction, which is this statement. The order in which the server evaluates the
        // conditions does not matter: for an updated row it has evaluated all of them, and without one the transaction
        // writes nothing.
        out.push_sql(" AND set_config('synchronous_commit', 'off', true) = 'off'");
        Ok(())
    }
}

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
             slot.token FROM unnest(", Array<Text> = &self.names;
            ", ", Array<Integer> = &self.numbers;
            ", ", Array<Binary> = &self.tokens;
            ", ", Array<BigInt> = &self.leases;
            ") AS asked (name, number, token, lease_us) \
             JOIN LATERAL (SELECT name, number, fence, expires_us, token FROM diesel_locks_slots \
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
    RenewBatch<'a> { asked: Asked<'a> } -> (Binary, BigInt),
    |self| {
        [&self.asked]; "renewed AS (UPDATE diesel_locks_slots SET expires_us = greatest(hold_until_us, "; {Pg::NOW};
        " + locked.lease_us)"; {OF_LOCKED}; " AND expires_us > "; {Pg::NOW};
        " RETURNING diesel_locks_slots.token, expires_us - "; {Pg::NOW};
        " AS remaining_us) SELECT token, remaining_us FROM renewed UNION ALL \
         SELECT token, expires_us - "; {Pg::NOW};
        " FROM mine WHERE token NOT IN (SELECT token FROM renewed)";
    }
}

statement! {
    Pg;
    ReleaseBatch<'a> { asked: Asked<'a> } -> Binary,
    |self| {
        [&self.asked]; "freed AS (UPDATE diesel_locks_slots"; [&Release]; {OF_LOCKED}; {NOT_RELEASED}
    }
}

statement! {
    Pg;
    ReleaseUnusedBatch<'a> { asked: Asked<'a> } -> Binary,
    |self| {
        [&self.asked]; "freed AS (UPDATE diesel_locks_slots"; [&ReleaseUnused]; {OF_LOCKED}; {NOT_RELEASED}
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
        let serializable = Acquired::UnsuitableIsolation("serializable");
        assert_eq!(decode(-3), Some(serializable));
        let number = 100_000;
        assert_eq!(decode(100_000), Some(Acquired::Locked { number }));
        let fence = (27_589_000_000_000 << 17) + 100_000;
        assert_eq!(decode(fence), Some(Acquired::Leased { number, fence }));
        assert_eq!(decode(0), None);
        assert_eq!(decode(i64::MIN), None);
    }
}
