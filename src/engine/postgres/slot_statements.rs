//! What is sent to PostgreSQL for slots.

use diesel::RunQueryDsl;
use diesel::connection::Connection;
use diesel::pg::{Pg, PgConnection};
use diesel::query_builder::Query;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Integer, Nullable, Text};

use crate::engine::clock::Clock;
use crate::engine::slot_rows::{locked_slot_rows, slot_rows};
use crate::engine::slot_store::{Renewal, Wanted};
use crate::engine::statement::{push, statement};
use crate::fence::{NUMBER_BITS, UNIT_US};
use crate::limits::FEW_SLOTS;

slot_rows!(
    postgres,
    Pg,
    PgConnection,
    str,
    Text,
    RunQueryDsl,
    diesel::result::Error
);
locked_slot_rows!(
    PgConnection,
    str,
    RunQueryDsl,
    counted,
    diesel::result::Error
);

fn counted(statement: impl Counted, conn: &mut PgConnection) -> QueryResult<usize> {
    conn.execute_returning_count(&statement)
}

impl Clock for Pg {
    const NOW: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const GREATEST: &'static str = "greatest";
    const OLD_ROWS_STAY: bool = true;
}

/// Ended by [`ROLLBACK_TO_SAVEPOINT`](super::statements::ROLLBACK_TO_SAVEPOINT).
pub(super) const SAVEPOINT: &str = "SAVEPOINT diesel_locks";

/// Number and fence of the slot that was got; else how many slots there are, whether one is free, and
/// the isolation level that is in the way.
pub(super) type Answer = (Option<i32>, Option<i64>, Option<i32>, bool, Option<String>);
type AnswerSql = (
    Nullable<Integer>,
    Nullable<BigInt>,
    Nullable<Integer>,
    Bool,
    Nullable<Text>,
);

/// Leases a free slot.
///
/// Raw, because the DSL has no locks in a part of a statement. One statement, so that a lease, and also a
/// refusal with its reason, is one round trip.
pub(super) struct Lease<'a, P, const NESTED: bool> {
    pub(super) wanted: &'a Wanted<'a>,
    pub(super) free: Free<'a, P>,
}

/// Locks a free slot for as long as the transaction lasts.
pub(super) struct Hold<'a, P> {
    pub(super) free: Free<'a, P>,
}

/// Which slots would do.
pub(super) struct Free<'a, P> {
    pub(super) name: &'a str,
    pub(super) permits: i32,
    pub(super) among: P,
}

/// Any slot, provided that there are no more slots than permits, of which there are few.
pub(super) struct Any;

/// The same where there are many.
pub(super) struct AnyOfMany;

/// One of these.
pub(super) struct These<'a>(pub(super) &'a [i32]);

/// What distinguishes them in SQL.
pub(super) trait Among: Sized {
    type QueryId: 'static;
    /// Whether slots are looked for above the first hundred.
    const MANY: bool;
    /// Whether all slots are among the first hundred.
    const FEW: bool;

    /// The numbers that are looked at one by one.
    fn numbers<'b>(free: &'b Free<'_, Self>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()>;

    fn condition<'b>(free: &'b Free<'_, Self>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()>;
}

// Not by the last number: its row changes as often as it is granted, and there is mostly no row above. Ordered and
// limited rather than EXISTS, which statistics of a table with one large semaphore turn into a scan of the table.
fn none_above<'b, P>(free: &'b Free<'_, P>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
    push!(out;
        " AND (SELECT number FROM diesel_slots WHERE name = ", Text = free.name;
        " AND number > ", Integer = &free.permits;
        " ORDER BY number DESC LIMIT 1) IS NULL";
    );
    Ok(())
}

impl Among for Any {
    type QueryId = Any;
    const MANY: bool = false;
    const FEW: bool = true;

    // A subquery: a plan that is made for each number of permits is not kept.
    fn numbers<'b>(free: &'b Free<'_, Self>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        push!(out; "generate_series(1, (SELECT ", Integer = &free.permits; "))");
        Ok(())
    }

    fn condition<'b>(free: &'b Free<'_, Self>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        none_above(free, out)
    }
}

impl Among for AnyOfMany {
    type QueryId = AnyOfMany;
    const MANY: bool = true;
    const FEW: bool = false;

    fn numbers<'b>(_: &'b Free<'_, Self>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("generate_series(1, 100)");
        Ok(())
    }

    fn condition<'b>(free: &'b Free<'_, Self>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        none_above(free, out)
    }
}

impl Among for These<'_> {
    type QueryId = These<'static>;
    const MANY: bool = false;
    const FEW: bool = false;

    fn numbers<'b>(free: &'b Free<'_, Self>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        push!(out; "unnest((SELECT ", Array<Integer> = free.among.0; "))");
        Ok(())
    }

    fn condition<'b>(_: &'b Free<'_, Self>, _: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        Ok(())
    }
}

impl<P: Among, const NESTED: bool> QueryId for Lease<'_, P, NESTED> {
    type QueryId = Lease<'static, P::QueryId, NESTED>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<P: Among> QueryId for Hold<'_, P> {
    type QueryId = Hold<'static, P::QueryId>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<P, const NESTED: bool> Query for Lease<'_, P, NESTED> {
    type SqlType = AnswerSql;
}

impl<P> Query for Hold<'_, P> {
    type SqlType = AnswerSql;
}

impl<P, const NESTED: bool> RunQueryDsl<PgConnection> for Lease<'_, P, NESTED> {}
impl<P> RunQueryDsl<PgConnection> for Hold<'_, P> {}

impl<P: Among, const NESTED: bool> QueryFragment<Pg> for Lease<'_, P, NESTED> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let (wanted, name) = (self.wanted, self.free.name);
        // The unit and the shift are constants of `fence`.
        const { assert!(UNIT_US == 64 && NUMBER_BITS == 17 && FEW_SLOTS == 100) };
        push!(out;
            "WITH got AS (UPDATE diesel_slots AS slot SET token = ", Binary = wanted.token.as_slice();
            ", holder = ", Nullable<Text> = &wanted.holder;
            ", fence = (greatest(us / 64, (greatest(fence, "; {FLOOR};
            ", (SELECT max(newest.fence) FROM ";
        );
        if P::FEW {
            P::numbers(&self.free, &mut out)?;
        } else {
            out.push_sql("generate_series(1, 100)");
        }
        newest(&mut out, name)?;
        push!(out; ")");
        if !P::FEW {
            push!(out;
                ", (SELECT fence FROM diesel_slots WHERE name = ", Text = name;
                " AND number > 100 ORDER BY fence DESC LIMIT 1)";
            );
        }
        push!(out;
            ") >> 17) + 1) << 17) | number, acquired_us = us, \
             expires_us = us + ", BigInt = &wanted.lease_us;
            ", keep_us = us + ", BigInt = &wanted.at_least_us;
            " FROM (SELECT "; {Pg::NOW};
            " AS us) AS clock WHERE slot.ctid = (SELECT at FROM (";
        );
        // Alone it is a transaction of its own, whose snapshot is that of the statement.
        free_slot(&mut out, &self.free, NESTED)?;
        push!(out; ") AS free) RETURNING number, fence)");
        answer(&mut out, &self.free, NESTED)
    }
}

impl<P: Among> QueryFragment<Pg> for Hold<'_, P> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        push!(out; "WITH got AS MATERIALIZED (SELECT at, number, 0::bigint AS fence FROM (");
        free_slot(&mut out, &self.free, true)?;
        // Whoever had a lease on it that has ended is not to come back: somebody else held the slot since.
        push!(out;
            ") AS free), cleared AS (UPDATE diesel_slots AS slot SET token = NULL \
             WHERE slot.ctid = (SELECT at FROM got) AND slot.token IS NOT NULL)";
        );
        answer(&mut out, &self.free, true)
    }
}

/// No fence of a slot that was removed was larger.
const FLOOR: &str = "(SELECT fence FROM diesel_fences WHERE id = 1)";

/// The row of each number `n`: the last of its entries in the index. Those before are of rows that are gone, and
/// many when another session has an old snapshot.
fn newest<'b>(out: &mut AstPass<'_, 'b, Pg>, name: &'b str) -> QueryResult<()> {
    push!(out;
        " AS n, LATERAL (SELECT ctid AS at, number, fence, expires_us FROM diesel_slots WHERE name = ", Text = name;
        " AND number = n ORDER BY fence DESC LIMIT 1) AS newest";
    );
    Ok(())
}

/// A free slot, locked; none at an isolation level that keeps to an old snapshot.
///
/// A subquery that is evaluated once stands for the clock, which an index could not be searched by
/// otherwise. A row that another has changed since the statement's snapshot is passed over.
fn free_slot<'b, P: Among>(
    out: &mut AstPass<'_, 'b, Pg>,
    free: &'b Free<'_, P>,
    nested: bool,
) -> QueryResult<()> {
    push!(out; "SELECT at, number FROM (SELECT free.at, newest.number FROM ");
    P::numbers(free, out)?;
    newest(out, free.name)?;
    push!(out;
        ", LATERAL (SELECT ctid AS at FROM diesel_slots WHERE ctid = newest.at AND expires_us <= (SELECT ";
        {Pg::NOW};
        ") FOR UPDATE SKIP LOCKED) AS free) AS few WHERE true";
    );
    level_and_condition(out, free, nested)?;
    if P::MANY {
        push!(out;
            " UNION ALL SELECT at, number FROM (SELECT ctid AS at, number FROM diesel_slots WHERE name = ",
                Text = free.name;
            " AND number > 100 AND expires_us <= (SELECT "; {Pg::NOW};
            ") ORDER BY expires_us FOR UPDATE SKIP LOCKED) AS many WHERE true";
        );
        level_and_condition(out, free, nested)?;
    }
    push!(out; " LIMIT 1");
    Ok(())
}

fn level_and_condition<'b, P: Among>(
    out: &mut AstPass<'_, 'b, Pg>,
    free: &'b Free<'_, P>,
    nested: bool,
) -> QueryResult<()> {
    if nested {
        push!(out; " AND "; {LEVEL}; " IS NULL");
    }
    P::condition(free, out)
}

/// The isolation level that is in the way.
const LEVEL: &str = "nullif(nullif(current_setting('transaction_isolation'), 'read committed'), \
     'read uncommitted')";

/// What is there is looked at only when no slot was got: CASE keeps that order.
fn answer<'b, P: Among>(
    out: &mut AstPass<'_, 'b, Pg>,
    free: &'b Free<'_, P>,
    nested: bool,
) -> QueryResult<()> {
    push!(out;
        " SELECT got.number, got.fence, CASE WHEN got.number IS NULL THEN \
         (SELECT max(number) FROM diesel_slots WHERE name = ", Text = free.name;
        ") END, CASE WHEN got.number IS NULL THEN ";
    );
    any_free(out, free)?;
    push!(out;
        " ELSE false END, "; {if nested { LEVEL } else { "NULL::text" }};
        " FROM (VALUES (0)) AS one LEFT JOIN got ON true";
    );
    Ok(())
}

/// Whether a slot is free, locked or not, looked for as [`free_slot`] does. It is asked when there are as many slots
/// as permits (`judge`): those that the search passes over, above the permits, are not there. Among slots that are
/// named it is not asked.
fn any_free<'b, P: Among>(out: &mut AstPass<'_, 'b, Pg>, free: &'b Free<'_, P>) -> QueryResult<()> {
    if !P::FEW && !P::MANY {
        out.push_sql("false");
        return Ok(());
    }
    out.push_sql("(EXISTS (SELECT FROM ");
    P::numbers(free, out)?;
    newest(out, free.name)?;
    push!(out; " WHERE newest.expires_us <= (SELECT "; {Pg::NOW}; "))");
    if P::MANY {
        // Ordered and limited for the same reason as in `none_above`.
        push!(out;
            " OR (SELECT expires_us FROM diesel_slots WHERE name = ", Text = free.name;
            " AND number > 100 AND expires_us <= (SELECT "; {Pg::NOW};
            ") ORDER BY expires_us LIMIT 1) IS NOT NULL";
        );
    }
    out.push_sql(")");
    Ok(())
}

statement! {
    Pg, PgConnection;
    /// What tells the table from all others: the database's name, the table's number in it (a database that is
    /// made from a template has the template's numbers), and when the server started, to the microsecond. Raw:
    /// the DSL knows none of these functions.
    Database {} -> (Text, BigInt, BigInt),
    |self, out| {
        out.push_sql(
            "SELECT current_database()::text, 'diesel_slots'::regclass::bigint, \
             (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint",
        );
    }
}

/// The slots that are free, and are not locked by who is to have one, or refreshes one whose lease has ended.
/// Who looks at the same time, or pins its slot, is not in the way.
#[diesel::dsl::auto_type]
pub(super) fn free_and_unlocked<'a>(name: &'a str) -> _ {
    let now: Now = Now {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::expires_us.le(now))
        .select(slots::number)
        .for_share()
        .skip_locked()
}

#[diesel::dsl::auto_type]
pub(super) fn count<'a>(name: &'a str) -> _ {
    slots::table.filter(slots::name.eq(name)).count()
}

statement! {
    Pg, PgConnection;
    /// Locks the slot against being granted, and not against being refreshed or released. Raw for the condition on
    /// the fence.
    Pin<'a> { key: Key<'a> } -> Integer,
    |self, out| {
        out.push_sql("SELECT number FROM diesel_slots");
        where_key(&mut out, &self.key)?;
        out.push_sql(" FOR KEY SHARE");
    }
}

/// Free slots above a number, from the last one on.
#[diesel::dsl::auto_type]
pub(super) fn lock_free_above<'a>(name: &'a str, above: i32, limit: i64) -> _ {
    let now: Now = Now {};
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

/// Unless it is there.
pub(super) fn insert_fence_floor(fence: i64) -> impl Counted {
    diesel::insert_into(diesel_fences::table)
        .values((diesel_fences::id.eq(FENCES), diesel_fences::fence.eq(fence)))
        .on_conflict_do_nothing()
}

pub(super) fn register(name: &str, permits: i32) -> impl Counted {
    diesel::insert_into(diesel_semaphores::table)
        .values((
            diesel_semaphores::name.eq(name),
            diesel_semaphores::permits.eq(permits),
        ))
        .on_conflict(diesel_semaphores::name)
        .do_update()
        .set(diesel_semaphores::permits.eq(permits))
}

/// The row of each number that is asked for, as in [`newest`], if it is still of the token.
const NEWEST_ASKED: &str = " JOIN LATERAL (SELECT name, number, fence, expires_us, token FROM diesel_slots \
     WHERE diesel_slots.name = asked.name COLLATE \"C\" AND diesel_slots.number = asked.number \
     ORDER BY diesel_slots.fence DESC LIMIT 1) AS slot ON slot.token = asked.token";

/// The same row, to be locked.
const JOIN_MINE: &str = " JOIN mine ON slot.name = mine.name AND slot.number = mine.number \
     AND slot.fence = mine.fence AND slot.token = mine.token";

statement! {
    Pg, PgConnection;
    /// Renews leases; a row that another session has locked keeps its end. Rows are locked in the order of
    /// their keys. Raw: the DSL knows neither arrays as tables nor locks in a part of a statement.
    Renew<'a> {
        names: Vec<&'a str>,
        numbers: Vec<i32>,
        tokens: Vec<&'a [u8]>,
        leases: Vec<i64>,
    } -> (Binary, BigInt),
    |self, out| {
        push!(out;
            "WITH mine AS MATERIALIZED (SELECT slot.name, slot.number, slot.fence, asked.lease_us, slot.expires_us, \
             slot.token FROM unnest(", Array<Text> = &self.names;
            ", ", Array<Integer> = &self.numbers;
            ", ", Array<Binary> = &self.tokens;
            ", ", Array<BigInt> = &self.leases;
            ") AS asked (name, number, token, lease_us)"; {NEWEST_ASKED}; "), \
             locked AS MATERIALIZED (SELECT slot.name, slot.number, slot.fence, mine.lease_us \
             FROM diesel_slots AS slot"; {JOIN_MINE}; " \
             ORDER BY slot.name, slot.number FOR NO KEY UPDATE OF slot SKIP LOCKED), \
             renewed AS (UPDATE diesel_slots AS slot SET expires_us = greatest(slot.keep_us, "; {Pg::NOW};
            " + locked.lease_us) FROM locked \
             WHERE slot.name = locked.name AND slot.number = locked.number AND slot.fence = locked.fence \
             RETURNING slot.token, slot.expires_us - "; {Pg::NOW};
            " AS left_us) SELECT token, left_us FROM renewed UNION ALL \
             SELECT token, expires_us - "; {Pg::NOW};
            " FROM mine WHERE token NOT IN (SELECT token FROM renewed)";
        );
    }
}

impl<'a> Renew<'a> {
    pub(super) fn of(leases: &'a [Renewal]) -> Self {
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

statement! {
    Pg, PgConnection;
    /// Gives slots back, but for those that another session has locked; the tokens of these. Raw as
    /// [`Renew`] is.
    GiveBackMany<'a> {
        names: Vec<&'a str>,
        numbers: Vec<i32>,
        tokens: Vec<&'a [u8]>,
    } -> Binary,
    |self, out| {
        push!(out;
            "WITH mine AS MATERIALIZED (SELECT slot.name, slot.number, slot.fence, slot.token FROM unnest(",
                Array<Text> = &self.names;
            ", ", Array<Integer> = &self.numbers;
            ", ", Array<Binary> = &self.tokens;
            ") AS asked (name, number, token)"; {NEWEST_ASKED}; "), \
             locked AS MATERIALIZED (SELECT slot.name, slot.number, slot.fence, slot.token \
             FROM diesel_slots AS slot"; {JOIN_MINE}; " \
             ORDER BY slot.name, slot.number FOR NO KEY UPDATE OF slot SKIP LOCKED), \
             freed AS (UPDATE diesel_slots AS slot SET token = NULL, expires_us = CASE WHEN slot.keep_us > "; {Pg::NOW};
            " THEN slot.keep_us ELSE 0 END FROM locked \
             WHERE slot.name = locked.name AND slot.number = locked.number AND slot.fence = locked.fence) \
             SELECT token FROM mine WHERE token NOT IN (SELECT token FROM locked)";
        );
    }
}

impl<'a> GiveBackMany<'a> {
    pub(super) fn of(leases: &'a [Renewal]) -> Self {
        let Renew {
            names,
            numbers,
            tokens,
            ..
        } = Renew::of(leases);
        Self {
            names,
            numbers,
            tokens,
        }
    }
}

statement! {
    Pg, PgConnection;
    /// [`GiveBackUnexpired`] as a transaction of its own, which need not wait for the disk: should the server
    /// crash before its record is there, the slot is free when its lease ends. Nothing can overtake it: a
    /// grant of the slot to another comes after it in the log.
    GiveBackAlone<'a> { key: Key<'a> } -> Integer,
    |self, out| {
        set_free(&mut out);
        where_key(&mut out, &self.key)?;
        and_unexpired(&mut out);
        // For this transaction alone, which is this statement: a function with an effect among conditions, right in
        // whatever order they are evaluated. A row that is updated has met all of them, this one too; without such
        // a row the transaction writes nothing for which the server could wait.
        out.push_sql(" AND set_config('synchronous_commit', 'off', true) = 'off'");
    }
}
