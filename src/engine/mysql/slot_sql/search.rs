//! Searches for free slots without locks.

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::AstPass;
use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text};

use super::COMMITTED_AT_ONCE;
use super::locked_tables::{AS_AN_UPDATE, AS_AN_UPDATE_ON_MYSQL, UNLESS_TABLE_LOCKED};
use crate::engine::clock::Clock;
use crate::engine::mysql::sql::limits::{EVERY_ROW, LIMIT_HINT, LONG_LIMIT_HINT};
use crate::engine::mysql::sql::session_state::WRITER_UNKNOWN;
use crate::engine::raw_sql::{push, statement};
use crate::limits::FEW_SLOTS;

/// The last slot's number, the time, and the number and fence of a free slot. In the row with the last slot's number,
/// the third column is NULL and the fourth is the largest fence.
pub(in crate::engine::mysql) type Candidate = (Option<i32>, i64, Option<i32>, Option<i64>);

/// The flag: the server is MariaDB.
pub(in crate::engine::mysql) const MARIADB_FLAG: i32 = 1;

/// The flag: the session does not know yet that there is one writer.
pub(in crate::engine::mysql) const WRITER_UNKNOWN_FLAG: i32 = 2;

/// The flag: outside a transaction statements are not committed at once.
pub(in crate::engine::mysql) const NO_AUTOCOMMIT_FLAG: i32 = 4;

type CandidateSql = (
    (
        Nullable<Integer>,
        BigInt,
        Nullable<Integer>,
        Nullable<BigInt>,
    ),
    Integer,
);

/// Pushes the sum of the flags.
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

/// The fence of a slot above the first hundred, as [`UPPER_EXPIRES`].
const UPPER_FENCE: &str =
    "/*!80013 (CASE WHEN number > 100 THEN fence END) *//*M!100100 upper_fence */";

/// Pushes the largest fence of a semaphore with many slots. Not by MAX, for which MySQL reads the whole index if that is on
/// an expression.
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

// A search reads rows that other sessions have just changed, and InnoDB rebuilds the version that the search may see.
// For an entry of a secondary index it needs all versions of the row, which takes ten times as long as for the row
// itself. So the search reads the rows in the order of the primary key as long as they are few.

/// The number, fence and expiry of a slot, the time, the floor of all fences, and the sum of the flags.
pub(in crate::engine::mysql) type FewRow = (i32, i64, i64, i64, i64, i32);

statement! {
    Mysql;
    /// Reads all slots up to the number of permits, and one more if it exists. The caller aggregates them: aggregates
    /// in SQL take longer.
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
}

/// Pushes [`ScanExpiryIndex`] with a hint that limits its time.
fn scan_expiry_index<'b>(
    out: &mut AstPass<'_, 'b, Mysql>,
    name: &'b [u8],
    hint: &str,
) -> QueryResult<()> {
    const { assert!(FEW_SLOTS == 100) };
    push!(out;
        {UNLESS_TABLE_LOCKED}; "(SELECT "; {hint}; "NULL AS slots, "; {Mysql::NOW};
        " AS now_us, number, fence, /*M!100100 1 + */ 0 FROM diesel_locks_slots FORCE INDEX (PRIMARY) \
         WHERE name = ", Binary = name;
        " AND number <= 100 AND expires_us <= "; {Mysql::NOW};
        " LIMIT 8) UNION ALL (SELECT NULL, "; {Mysql::NOW};
        ", number, fence, /*M!100100 1 + */ 0 FROM diesel_locks_slots FORCE INDEX (diesel_locks_slots_expiry) \
         WHERE name = ", Binary = name;
        " AND "; {UPPER_EXPIRES};
        " <= "; {Mysql::NOW};
        " ORDER BY "; {UPPER_EXPIRES};
        " LIMIT 8) UNION ALL (SELECT MAX(number), "; {Mysql::NOW}; ", NULL, ";
    );
    last_of_many(out, name)?;
    out.push_sql(", ");
    push_flags(out);
    push!(out;
        " FROM diesel_locks_slots WHERE name = ", Binary = name;
        ")"; {EVERY_ROW};
    );
    Ok(())
}

statement! {
    Mysql;
    /// Reads up to eight free slots of the first hundred, up to eight of the others by the index on expiry, and a row
    /// with the last number and the largest fence.
    ///
    /// Raw, because the DSL has no UNION of parts with limits. A join of derived tables would take longer than all the
    /// rest.
    ScanExpiryIndex<'a> { name: &'a [u8] } -> CandidateSql,
    |self, out| {
        scan_expiry_index(&mut out, self.name, LIMIT_HINT)?;
    }
}

statement! {
    Mysql;
    /// [`ScanExpiryIndex`] with a longer limit. The index may have many entries of rows that have changed since, which
    /// the server has not cleared away.
    ScanExpiryIndexSlowly<'a> { name: &'a [u8] } -> CandidateSql,
    |self, out| {
        scan_expiry_index(&mut out, self.name, LONG_LIMIT_HINT)?;
    }
}

statement! {
    Mysql;
    /// Ends in time unless another session has the table locked. Reads no row.
    ProbeTable {} -> BigInt,
    |self, out| {
        push!(out; {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; {AS_AN_UPDATE}; "0");
    }
}

statement! {
    Mysql;
    /// Reads the largest fence.
    LastFence<'a> { name: &'a [u8] } -> BigInt,
    |self, out| {
        push!(out; {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; {AS_AN_UPDATE_ON_MYSQL});
        last_of_many(&mut out, self.name)?;
    }
}

statement! {
    Mysql;
    /// Finds the first free slot among those whose numbers are in a JSON array: the time, its number and its fence.
    FreeAmong<'a> { name: &'a [u8], open: &'a str } -> (BigInt, Integer, BigInt),
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; {Mysql::NOW};
            ", slot.number, slot.fence FROM JSON_TABLE(", Text = self.open;
            ", '$[*]' COLUMNS (number INTEGER PATH '$')) AS open \
             STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) ON slot.name = ", Binary = self.name;
            " AND slot.number = open.number WHERE slot.expires_us <= "; {Mysql::NOW};
            " ORDER BY slot.number LIMIT 1";
        );
    }
}

statement! {
    Mysql;
    /// The number of slots. Raw, because the DSL has no prefixes and hints.
    CountSlots<'a> { name: &'a [u8] } -> BigInt,
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
            "COUNT(*) FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        );
    }
}

statement! {
    Mysql;
    /// The slots that are free and not locked. Raw, because MariaDB has no FOR SHARE.
    FreeAndUnlocked<'a> { name: &'a [u8] } -> Integer,
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
            "number FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
            " AND expires_us <= "; {Mysql::NOW};
            {EVERY_ROW}; " /*!80000 FOR SHARE *//*M!100100 LOCK IN SHARE MODE */ SKIP LOCKED";
        );
    }
}
