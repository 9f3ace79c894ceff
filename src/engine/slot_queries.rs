//! Statements for slots and fences that several engines send.

use std::ops::RangeInclusive;

use diesel::dsl::{
    auto_type, case_when, count, delete as delete_from, insert_into, insert_or_ignore_into, max,
    replace_into, select, update,
};
use diesel::helper_types::max;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Binary, Integer, Text};

use uuid::Uuid;

use crate::Slot;
use crate::engine::dialect::{DbNow, Dialect, LeaseRemaining};
use crate::engine::slots::{Change, Expiry, Grant, LeaseRequest, ReleaseKind};
use crate::engine::tables::{
    Name, Named, diesel_locks_fences as fences, diesel_locks_semaphores as semaphores,
    diesel_locks_slots as slots,
};
use crate::link::Link;
use crate::link::raw_sql::push;

pub(crate) const FENCE_ROW_ID: i32 = 1;

#[auto_type]
pub(crate) fn new_slot<'a>(name: Named<'a>, number: i32, fence: i64) -> _ {
    (
        slots::name.eq(name),
        slots::number.eq(number),
        slots::fence.eq(fence),
        slots::acquired_us.eq(DbNow),
        slots::expires_us.eq(0_i64),
        slots::hold_until_us.eq(0_i64),
    )
}

#[auto_type]
pub(crate) fn insert_slots<'a>(name: Named<'a>, numbers: RangeInclusive<i32>, fence: i64) -> _ {
    let rows: Vec<new_slot<'a>> = numbers
        .map(|number| new_slot(name, number, fence))
        .collect();
    insert_into(slots::table).values(rows)
}

#[auto_type]
pub(crate) fn held_slots<'a>(name: Named<'a>) -> _ {
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::expires_us.gt(DbNow))
        .order(slots::number)
        .select((slots::number, slots::fence, LeaseRemaining))
}

#[auto_type]
pub(crate) fn free<'a>(name: Named<'a>) -> _ {
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::expires_us.le(DbNow))
        .select(slots::number)
}

/// The slots that are held, or unavailable until their minimum hold time has passed. With a limit that they do not
/// exceed: on MySQL a SELECT without one has that of the session (`sql_select_limit`).
#[auto_type]
pub(crate) fn held_numbers<'a>(name: Named<'a>) -> _ {
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::expires_us.gt(DbNow).or(slots::token.is_not_null()))
        .order(slots::number)
        .limit(1_000_000_i64)
        .select((slots::number, slots::expires_us.gt(DbNow)))
}

/// Releases a slot whatever its token.
#[auto_type]
pub(crate) fn force_release<'a>(name: Named<'a>, number: i32) -> _ {
    let no_token: Option<&'static [u8]> = None;
    update(slots::table.find((name, number))).set((
        slots::token.eq(no_token),
        slots::expires_us.eq(0_i64),
        slots::hold_until_us.eq(0_i64),
    ))
}

/// Clears the token of an expired lease, if there is one. This session has locked the row, or has the write lock.
#[auto_type]
pub(crate) fn clear_token<'a>(name: Named<'a>, number: i32) -> _ {
    let no_token: Option<&'static [u8]> = None;
    update(slots::table.find((name, number)))
        .filter(slots::token.is_not_null())
        .set(slots::token.eq(no_token))
}

/// Moves the times of the held slots earlier.
#[auto_type]
#[cfg(feature = "testing")]
pub(crate) fn expire<'a>(name: Named<'a>, by_us: i64) -> _ {
    update(
        slots::table
            .filter(slots::name.eq(name))
            .filter(slots::expires_us.gt(DbNow)),
    )
    .set((
        slots::acquired_us.eq(slots::acquired_us - by_us),
        slots::expires_us.eq(slots::expires_us - by_us),
        slots::hold_until_us.eq(slots::hold_until_us - by_us),
    ))
}

#[auto_type]
pub(crate) fn last_number<'a>(name: Named<'a>) -> _ {
    slots::table
        .filter(slots::name.eq(name))
        .order(slots::number.desc())
        .limit(1_i64)
        .select(slots::number)
}

#[auto_type]
pub(crate) fn count_slots<'a>(name: Named<'a>) -> _ {
    slots::table.filter(slots::name.eq(name)).count()
}

#[auto_type]
pub(crate) fn now() -> _ {
    select(DbNow)
}

#[auto_type]
pub(crate) fn last_fence() -> _ {
    slots::table.select(max(slots::fence))
}

#[auto_type]
pub(crate) fn fence_floor() -> _ {
    let id: i32 = FENCE_ROW_ID;
    fences::table
        .filter(fences::id.eq(id))
        .select(fences::fence)
}

#[auto_type]
pub(crate) fn lock_fence_floor() -> _ {
    fence_floor().for_update()
}

#[auto_type]
pub(crate) fn set_fence_floor(fence: i64) -> _ {
    let id: i32 = FENCE_ROW_ID;
    update(fences::table.find(id)).set(fences::fence.eq(fence))
}

/// Inserts the floor unless it exists, on MySQL and SQLite.
#[auto_type]
pub(crate) fn insert_fence_floor(fence: i64) -> _ {
    let id: i32 = FENCE_ROW_ID;
    insert_or_ignore_into(fences::table).values((fences::id.eq(id), fences::fence.eq(fence)))
}

/// On MySQL and SQLite.
#[auto_type]
pub(crate) fn register<'a>(name: Named<'a>, permits: i32) -> _ {
    replace_into(semaphores::table)
        .values((semaphores::name.eq(name), semaphores::permits.eq(permits)))
}

/// The registered number of permits. Not on PostgreSQL, where a function ends the wait for a locked table.
#[auto_type]
#[cfg(feature = "_sqlite")]
pub(crate) fn permits<'a>(name: Named<'a>) -> _ {
    semaphores::table.find(name).select(semaphores::permits)
}

/// The semaphores that have slots. With the limit of [`held_numbers`].
#[auto_type]
pub(crate) fn with_slots() -> _ {
    slots::table
        .filter(slots::number.eq(1_i32))
        .limit(1_000_000_i64)
        .select(slots::name)
}

/// The number of registered permits is read here, because others register semaphores during a purge. The first slot of a registered
/// semaphore is retained with any number of permits: one that is paused has a row.
#[auto_type]
pub(crate) fn last_retained<'a>(name: Named<'a>, age_us: i64) -> _ {
    let oldest_us: i64 = -age_us;
    let permits = semaphores::permits.nullable();
    slots::table
        .left_join(semaphores::table.on(semaphores::name.eq(slots::name)))
        .filter(slots::name.eq(name))
        .filter(
            slots::expires_us
                .gt(DbNow)
                .or((slots::acquired_us - DbNow).gt(oldest_us))
                .or(slots::number.nullable().le(permits))
                .or(slots::number.eq(1_i32).and(permits.is_not_null())),
        )
        .order(slots::number.desc())
        .limit(1_i64)
        .select(slots::number)
}

/// Not on MySQL: InnoDB would lock the next row too.
#[auto_type]
pub(crate) fn delete_above<'a>(name: Named<'a>, number: i32) -> _ {
    delete_from(
        slots::table
            .filter(slots::name.eq(name))
            .filter(slots::number.gt(number)),
    )
}

#[auto_type]
pub(crate) fn list_semaphores(limit: i64) -> _ {
    slots::table
        .left_join(semaphores::table.on(semaphores::name.eq(slots::name)))
        .group_by(slots::name)
        .select((
            slots::name,
            max(semaphores::permits.nullable()),
            max(slots::number),
            count(case_when(slots::expires_us.gt(DbNow), slots::number)),
        ))
        .order(slots::name)
        .limit(limit)
}

#[auto_type]
pub(crate) fn list_held(limit: i64) -> _ {
    slots::table
        .filter(slots::expires_us.gt(DbNow))
        .order((slots::name, slots::number))
        .select((
            slots::name,
            (
                slots::number,
                slots::token,
                slots::holder,
                slots::fence,
                slots::acquired_us,
                slots::expires_us,
                LeaseRemaining,
                slots::release_requested_us,
                slots::data,
            ),
        ))
        .limit(limit)
}

/// An UPDATE of one slot. Raw, because Diesel does not cache one that is written in its DSL: this one is cached by its text.
pub(crate) struct UpdateSlot<'a> {
    pub(crate) change: Change<'a>,
    pub(crate) key: Key<'a>,
    pub(crate) expiry: Expiry,
    /// Conditions of one engine.
    pub(crate) and: &'static str,
}

impl QueryId for UpdateSlot<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<DB: Dialect> QueryFragment<DB> for UpdateSlot<'_>
where
    str: ToSql<Text, DB>,
    i32: ToSql<Integer, DB>,
    i64: ToSql<BigInt, DB>,
    [u8]: ToSql<Binary, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push!(out; "UPDATE diesel_locks_slots"; {DB::BY_PRIMARY_KEY});
        // If only changed rows are counted, each column is set to another value than before: an expiry that is there already becomes
        // 1 µs later. MySQL sets the columns in this order.
        let counts_changed = DB::COUNTS_CHANGED_ROWS;
        match &self.change {
            Change::Renew { lease_us } => {
                push!(out;
                    " SET expires_us = "; {DB::GREATEST}; "(hold_until_us, "; {DB::NOW}; " + ", BigInt = lease_us; ")";
                );
                if counts_changed {
                    push!(out;
                        " + (expires_us = "; {DB::GREATEST}; "(hold_until_us, "; {DB::NOW}; " + ", BigInt = lease_us; "))";
                    );
                }
            }
            Change::RequestRelease => {
                push!(out; " SET release_requested_us = "; {DB::NOW});
                if counts_changed {
                    push!(out; " + (release_requested_us = "; {DB::NOW}; ")");
                }
            }
            Change::Data(data) => {
                out.push_sql(" SET ");
                if counts_changed {
                    push!(out; "expires_us = expires_us + (data <=> ", Name = data; "), ");
                }
                push!(out; "data = ", Name = data);
            }
            Change::Release(kind) => out.push_sql(kind.set()),
        }
        push!(out; [&self.key]);
        if self.expiry == Expiry::Unexpired {
            push!(out; " AND expires_us > "; {DB::NOW});
        }
        out.push_sql(self.and);
        Ok(())
    }
}

impl ReleaseKind {
    pub(crate) const fn set(self) -> &'static str {
        match self {
            // The next grant is not earlier than the end of the minimum hold time, also if the clock is set back after the release:
            // otherwise two nodes could run the same tick.
            Self::Used => " SET token = NULL, expires_us = hold_until_us",
            // With a minimum hold time, the next grant is not earlier than this one, also if the clock is set back: this grant has
            // overwritten the time of the last tick. The order in which MySQL sets the columns makes no difference.
            Self::Unused => {
                " SET token = NULL, \
                 expires_us = CASE WHEN hold_until_us > 0 THEN acquired_us ELSE 0 END, \
                 hold_until_us = CASE WHEN hold_until_us > 0 THEN acquired_us ELSE 0 END"
            }
        }
    }
}

/// The release of unused slots with these tokens, as text. The name is a literal. A token in hexadecimal digits is one between two
/// texts.
pub(crate) fn release_unused<DB: Dialect>(
    name: &str,
    tokens: &[Uuid],
    [before, after]: [&str; 2],
) -> String {
    let token = |token: &Uuid| format!("{before}{}{after}", token.simple());
    let tokens = tokens.iter().map(token).collect::<Vec<_>>().join(", ");
    let (by_key, set) = (DB::BY_PRIMARY_KEY, ReleaseKind::Unused.set());
    format!("UPDATE diesel_locks_slots{by_key}{set} WHERE name = {name} AND token IN ({tokens})")
}

/// A new lease, on MySQL and SQLite.
#[derive(Clone, Copy)]
pub(crate) struct Lease<'a> {
    pub(crate) request: &'a LeaseRequest<'a>,
    pub(crate) holder: Named<'a>,
    pub(crate) grant: Grant,
}

impl<DB: Dialect> QueryFragment<DB> for Lease<'_>
where
    str: ToSql<Text, DB>,
    i64: ToSql<BigInt, DB>,
    [u8]: ToSql<Binary, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        // Without a minimum hold time its end is 0: the time of the grant would lie in the future if the clock were moved
        // back later. Not two texts: the statement has one key in the cache.
        push!(out;
            " SET token = ", Binary = self.request.token.as_slice();
            ", holder = ", Name = &self.holder;
            ", fence = ", BigInt = &self.grant.fence;
            ", acquired_us = "; {DB::NOW};
            ", expires_us = "; {DB::NOW}; " + ", BigInt = &self.request.lease_us;
            ", hold_until_us = CASE WHEN ", BigInt = &self.request.min_hold_us; " > 0 THEN "; {DB::NOW};
            " ELSE 0 END + ", BigInt = &self.request.min_hold_us;
            ", release_requested_us = 0, data = NULL";
        );
        Ok(())
    }
}

pub(crate) struct Key<'a> {
    name: Named<'a>,
    number: i32,
    token: &'a [u8],
    /// 1 in a transaction, otherwise 0.
    in_transaction: i32,
}

impl QueryId for Key<'_> {
    type QueryId = Key<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<'a> Key<'a> {
    pub(crate) fn of(slot: &'a Slot, in_transaction: bool) -> Self {
        Self {
            name: Named(slot.semaphore.as_ref()),
            number: slot.number_i32(),
            token: slot.token.as_bytes(),
            in_transaction: in_transaction.into(),
        }
    }
}

impl<DB: Dialect> QueryFragment<DB> for Key<'_>
where
    str: ToSql<Text, DB>,
    i32: ToSql<Integer, DB>,
    [u8]: ToSql<Binary, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push!(out;
            " WHERE name = ", Name = &self.name;
            " AND number = ", Integer = &self.number;
            " AND token = ", Binary = self.token;
        );
        if let Some(committed) = DB::COMMITTED_AT_ONCE {
            push!(out; " AND ("; {committed}; " OR ", Integer = &self.in_transaction; ")");
        }
        if DB::STALE_INDEX_ENTRIES {
            push!(out;
                " AND fence = (SELECT fence FROM diesel_locks_slots WHERE name = ", Name = &self.name;
                " AND number BETWEEN ", Integer = &self.number;
                " AND ", Integer = &self.number;
                " ORDER BY number DESC, fence DESC LIMIT 1)";
            );
        }
        Ok(())
    }
}

/// On PostgreSQL and SQLite.
pub(crate) async fn update_slot<C>(
    conn: &mut C,
    slot: &Slot,
    change: Change<'_>,
    expiry: Expiry,
    and: &'static str,
) -> QueryResult<usize>
where
    C: Link<Db: Dialect>,
    for<'k> UpdateSlot<'k>: QueryFragment<C::Db>,
{
    let key = Key::of(slot, true);
    conn.execute(UpdateSlot {
        change,
        key,
        expiry,
        and,
    })
    .await
}
