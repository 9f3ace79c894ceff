//! Searches for free slots on MySQL and MariaDB, without locks. Raw SQL here, because the DSL has no hints, no statement
//! prefixes and no UNION of parts with limits.

use std::cell::Cell;

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::AstPass;
use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text};

use crate::engine::dialect::Dialect;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::{MysqlError, unless_ended};
use crate::engine::mysql::sql::{
    AS_AN_UPDATE, AS_AN_UPDATE_ON_MYSQL, COMMITTED_AT_ONCE, EVERY_ROW, LIMIT_HINT, LONG_LIMIT_HINT,
    UNLESS_TABLE_LOCKED, WITH_ID, WRITER_UNKNOWN,
};
use crate::engine::slots::{AttemptContext, AttemptOutcome, classify_refusal, lowest_grantable};
use crate::error::classify::ErrorClass;
use crate::error::limits::FEW_SLOTS;
use crate::link::raw_sql::{push, statement};
use crate::link::{Link, depth};
use crate::rt::backoff;
use crate::{Error, Semaphore};

/// How many searches may be ended by their time limit although no session has the table locked.
pub(crate) const MAX_SLOW_SEARCHES: u32 = 5;

/// Pushes the sum of three flags: see [`Candidates::note`].
fn push_flags(out: &mut AstPass<'_, '_, Mysql>) {
    push!(out;
        {AS_AN_UPDATE_ON_MYSQL}; "/*M!100100 1 + */ 2 * ("; {WRITER_UNKNOWN}; ") + 4 * (NOT "; {COMMITTED_AT_ONCE}; ")";
    );
}

/// The floor of all fences: no deleted slot had a larger fence.
const FLOOR: &str = "IFNULL((SELECT fence FROM diesel_locks_fences WHERE id = 1), 0)";

/// When the lease of a slot above the first hundred ends, NULL for the others: the expression of an index (MySQL), the
/// column of that index (MariaDB).
const UPPER_EXPIRES: &str =
    "/*!80013 (CASE WHEN number > 100 THEN expires_us END) *//*M!100100 upper_expires_us */";

const UPPER_FENCE: &str =
    "/*!80013 (CASE WHEN number > 100 THEN fence END) *//*M!100100 upper_fence */";

/// Pushes the largest fence of many slots. Not by MAX, for which MySQL reads the whole index if that is on an expression.
fn last_of_many<'b>(out: &mut AstPass<'_, 'b, Mysql>, name: &'b [u8]) -> QueryResult<()> {
    const { assert!(FEW_SLOTS == 100) };
    push!(out;
        "GREATEST("; {FLOOR};
        ", IFNULL((SELECT MAX(fence) FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = name;
        " AND number <= 100), 0), IFNULL((SELECT "; {UPPER_FENCE};
        " FROM diesel_locks_slots FORCE INDEX (diesel_locks_slots_fences) WHERE name = ", Binary = name;
        " ORDER BY "; {UPPER_FENCE};
        " DESC LIMIT 1), 0))";
    );
    Ok(())
}

/// The number, fence and expiry of a slot, the time, the floor of all fences, and the sum of the flags.
type FewRow = (i32, i64, i64, i64, i64, i32);

/// The last slot's number, the time, the number and fence of a free slot, and the sum of the flags. In the row with the last
/// slot's number, the third column is NULL and the fourth is the largest fence.
type ManyRow = (Option<i32>, i64, Option<i32>, Option<i64>, i32);

statement! {
    Mysql;
    /// Reads all slots up to the number of permits, and one more if it exists. The caller aggregates, because SQL takes longer.
    ScanPrimary<'a> { name: &'a [u8], permits: i32 } -> (Integer, BigInt, BigInt, BigInt, BigInt, Integer),
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; "number, fence, expires_us, "; {Mysql::NOW}; ", "; {FLOOR};
            ", ";
        );
        push_flags(&mut out);
        push!(out;
            " FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
            " AND number <= ", Integer = &self.permits;
            " + 1"; {EVERY_ROW};
        );
    }

    /// Reads up to eight free slots of the first hundred, up to eight of the others by the index on expiry, and a row
    /// with the last number and the largest fence. A repeated search has a longer limit: the index may have many entries of rows
    /// that have changed since, which the server has not cleared away.
    ///
    /// Not a join of derived tables, which would take longer than all the rest.
    ScanExpiryIndex<'a> { name: &'a [u8], hint: &'static str }
        -> (Nullable<Integer>, BigInt, Nullable<Integer>, Nullable<BigInt>, Integer), by text,
    |self, out| {
        const { assert!(FEW_SLOTS == 100) };
        push!(out;
            {UNLESS_TABLE_LOCKED}; "(SELECT "; {self.hint}; "NULL AS slots, "; {Mysql::NOW};
            " AS now_us, number, fence, /*M!100100 1 + */ 0 FROM diesel_locks_slots FORCE INDEX (PRIMARY) \
             WHERE name = ", Binary = self.name;
            " AND number <= 100 AND expires_us <= "; {Mysql::NOW};
            " LIMIT 8) UNION ALL (SELECT NULL, "; {Mysql::NOW};
            ", number, fence, /*M!100100 1 + */ 0 FROM diesel_locks_slots FORCE INDEX (diesel_locks_slots_expiry) \
             WHERE name = ", Binary = self.name;
            " AND "; {UPPER_EXPIRES};
            " <= "; {Mysql::NOW};
            " ORDER BY "; {UPPER_EXPIRES};
            " LIMIT 8) UNION ALL (SELECT MAX(number), "; {Mysql::NOW}; ", NULL, ";
        );
        last_of_many(&mut out, self.name)?;
        out.push_sql(", ");
        push_flags(&mut out);
        push!(out;
            " FROM diesel_locks_slots WHERE name = ", Binary = self.name;
            ")"; {EVERY_ROW};
        );
    }

    /// Ends in time unless another session has the table locked. Reads no row.
    ProbeTable {} -> BigInt,
    |self| { {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; {AS_AN_UPDATE}; "0" }

    LastFence<'a> { name: &'a [u8] } -> BigInt,
    |self, out| {
        push!(out; {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; {AS_AN_UPDATE_ON_MYSQL});
        last_of_many(&mut out, self.name)?;
    }

    /// Finds the first free slot among those whose numbers are in a JSON array: the time, its number and its fence.
    FreeAmong<'a> { name: &'a [u8], open: &'a str } -> (BigInt, Integer, BigInt),
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; {Mysql::NOW};
        ", slot.number, slot.fence FROM JSON_TABLE(", Text = self.open;
        ", '$[*]' COLUMNS (number INTEGER PATH '$')) AS open \
         STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) ON slot.name = ", Binary = self.name;
        " AND slot.number = open.number WHERE slot.expires_us <= "; {Mysql::NOW};
        " ORDER BY slot.number LIMIT 1";
    }

    CountSlots<'a> { name: &'a [u8] } -> BigInt,
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LONG_LIMIT_HINT};
        "COUNT(*) FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
    }

    /// Raw, because MariaDB has no FOR SHARE.
    FreeSlots<'a> { name: &'a [u8], locking: &'static str } -> Integer, by text,
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LONG_LIMIT_HINT}; {WITH_ID};
        "number FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND expires_us <= "; {Mysql::NOW};
        {EVERY_ROW}; {self.locking};
    }
}

/// Without the slots that a session has locked to acquire them or to renew an expired lease.
const UNLOCKED: &str = " /*!80000 FOR SHARE *//*M!100100 LOCK IN SHARE MODE */ SKIP LOCKED";

thread_local! {
    /// The slot that this thread claimed last, and tries first the next time. So threads that repeatedly acquire slots
    /// of the same semaphore rarely compete for one.
    pub(crate) static LAST_CLAIMED: Cell<i32> = const { Cell::new(0) };
}

#[derive(Default)]
pub(crate) struct Candidates {
    slots: Option<i32>,
    pub(crate) now_us: i64,
    /// Not below the fence of any grant that was committed before the search.
    pub(crate) fence: i64,
    pub(crate) free: Vec<(i32, i64)>,
    pub(crate) mariadb: bool,
    pub(crate) writer_unknown: bool,
    pub(crate) no_autocommit: bool,
}

impl Candidates {
    /// Notes the flags of a row. Of a large semaphore only the row with the last slot's number has the second and the third.
    fn note(&mut self, flags: i32) {
        self.mariadb = flags & 1 != 0;
        self.writer_unknown |= flags & 2 != 0;
        self.no_autocommit |= flags & 4 != 0;
    }

    pub(crate) fn refusal(
        &self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> AttemptOutcome {
        let any_free = !self.free.is_empty();
        classify_refusal(self.slots, semaphore.permits_i32(), any_free, context)
    }
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    /// Finds free slots without locking. Puts the thread's preferred slot first, or a random one, so that sessions that
    /// search at the same time try different slots.
    async fn find_free(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
        hint: &'static str,
    ) -> Result<Candidates, MysqlError> {
        let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
        let mut found = Candidates::default();
        match &context.candidates {
            None if permits <= FEW_SLOTS => {
                let rows: Vec<FewRow> = self.load(ScanPrimary { name, permits }).await?;
                for (number, fence, expires_us, now_us, floor, flags) in rows {
                    found.note(flags);
                    found.slots = found.slots.max(Some(number));
                    found.now_us = now_us;
                    found.fence = found.fence.max(fence).max(floor);
                    if expires_us <= now_us {
                        found.free.push((number, fence));
                    }
                }
            }
            None => {
                let rows: Vec<ManyRow> = self.load(ScanExpiryIndex { name, hint }).await?;
                for (slots, now_us, number, fence, flags) in rows {
                    found.note(flags);
                    found.slots = found.slots.or(slots);
                    found.now_us = now_us;
                    found.fence = found.fence.max(fence.unwrap_or(0));
                    found.free.extend(number.zip(fence));
                }
            }
            Some(open) if open.is_empty() => {}
            Some(open) => {
                // Read before the slots. A grant committed between the two reads is concurrent with this one, so their
                // fences need no order.
                found.fence = self.get_result(LastFence { name }).await?;
                let open: Vec<_> = open.iter().map(i32::to_string).collect();
                let open = &format!("[{}]", open.join(","));
                let free: Vec<(i64, i32, i64)> = self.load(FreeAmong { name, open }).await?;
                for (now_us, number, fence) in free {
                    found.now_us = now_us;
                    found.fence = found.fence.max(fence);
                    found.free.push((number, fence));
                }
            }
        }
        if context.candidates.is_none() && found.slots > Some(permits) {
            found.free.clear();
        }
        let preferred = context.preferred.unwrap_or_else(|| LAST_CLAIMED.get());
        let mut numbers = found.free.iter().map(|(number, _)| *number);
        let chosen = numbers.position(|number| number == preferred);
        let chosen = chosen.unwrap_or_else(|| backoff::random_below(found.free.len()));
        found.free.rotate_left(chosen);
        Ok(found)
    }

    /// [`find_free`](Self::find_free), or the outcome of the attempt when another session has the table locked.
    pub(crate) async fn find_free_nowait(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<Result<Candidates, AttemptOutcome>, Error> {
        let (mut slow_searches, mut hint) = (0, LIMIT_HINT);
        loop {
            match self.find_free(semaphore, context, hint).await {
                // MariaDB, where the search does not wait for a locked table.
                Err(failure) if failure.class == ErrorClass::LockTimeout => {
                    return Ok(Err(AttemptOutcome::Locked));
                }
                // MySQL, where a time limit ends the wait for a locked table, and also the search of a busy server.
                Err(failure) if failure.class == ErrorClass::StatementTimeout => {
                    slow_searches += 1;
                    if slow_searches >= MAX_SLOW_SEARCHES || self.is_table_locked().await? {
                        return Ok(Err(AttemptOutcome::TableLocked));
                    }
                    hint = LONG_LIMIT_HINT;
                }
                // Galera may answer with the end of the transaction before.
                Err(failure) if failure.is_retryable() && depth::depth(self.0.status())? == 0 => {}
                found => return Ok(Ok(found?)),
            }
        }
    }

    pub(crate) async fn candidates(
        &mut self,
        semaphore: &Semaphore,
    ) -> Result<AttemptOutcome, MysqlError> {
        let name = semaphore.name().as_bytes();
        let slots: i64 = self.get_result(CountSlots { name }).await?;
        let grantable = |free| lowest_grantable(free, slots, semaphore.permits_i32());
        let [all, unlocked] = ["", UNLOCKED].map(|locking| FreeSlots { name, locking });
        if grantable(self.load(all).await?).is_empty() {
            return Ok(AttemptOutcome::AllLeased);
        }
        Ok(AttemptOutcome::candidates(grantable(
            self.load(unlocked).await?,
        )))
    }

    pub(crate) async fn is_table_locked(&mut self) -> Result<bool, Error> {
        let probed: Option<i64> = unless_ended(self.get_result(ProbeTable {}).await)?;
        Ok(probed.is_none())
    }
}
