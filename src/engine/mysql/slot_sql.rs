//! The statements for slots on MySQL and MariaDB.

use diesel::mysql::{Mysql, MysqlConnection};
use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text};

use super::execute::{MysqlError, Run};
use super::sql::{IN_TRANSACTION, LIMIT_HINT};
use super::writers::UNKNOWN;
use crate::engine::clock::Clock;
use crate::engine::raw_sql::{push, statement};
use crate::engine::slot_queries::{locking_slot_queries, slot_queries};
use crate::limits::FEW_SLOTS;
use crate::semaphore::backend::{Grant, LeaseRequest};

slot_queries!(mysql, Mysql, MysqlConnection, [u8], Binary, Run, MysqlError);
locking_slot_queries!(
    MysqlConnection,
    [u8],
    Run,
    Run::execute,
    MysqlError,
    FloorIfFree {}
);

impl Clock for Mysql {
    // Not UNIX_TIMESTAMP, which depends on the session's time zone and jumps with daylight saving time.
    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const GREATEST: &'static str = "GREATEST";
}

/// The last slot's number, the time, and the number and fence of a free slot. In the row with the last slot's number,
/// the third column is NULL and the fourth is the largest fence.
pub(super) type Candidate = (Option<i32>, i64, Option<i32>, Option<i64>);

/// The flag: the server is MariaDB.
pub(super) const MARIADB: i32 = 1;

/// The flag: the session does not know yet that there is one writer.
pub(super) const WRITER_UNKNOWN: i32 = 2;

type CandidateSql = (
    (
        Nullable<Integer>,
        BigInt,
        Nullable<Integer>,
        Nullable<BigInt>,
    ),
    Integer,
);

/// The floor of all fences: no deleted slot had a larger fence.
const FLOOR: &str = "IFNULL((SELECT fence FROM diesel_locks_fences WHERE id = 1), 0)";

/// Pushes the largest fence of a semaphore with many slots.
fn last_of_many<'b>(out: &mut AstPass<'_, 'b, Mysql>, name: &'b [u8]) -> QueryResult<()> {
    const { assert!(FEW_SLOTS == 100) };
    push!(out;
        "GREATEST("; {FLOOR};
        ", IFNULL((SELECT MAX(fence) FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = name;
        " AND number <= 100), 0), IFNULL((SELECT MAX(upper_fence) FROM diesel_locks_slots \
         FORCE INDEX (diesel_locks_slots_fences) WHERE name = ", Binary = name;
        "), 0))";
    );
    Ok(())
}

/// A statement prefix: on MariaDB the statement fails at once if another session has locked the table (`LOCK TABLES`,
/// `ALTER TABLE`).
const UNLESS_TABLE_LOCKED: &str = "/*M!100100 SET STATEMENT lock_wait_timeout = 0 FOR */ ";

/// An expression that is 0. A SELECT with it waits for a lock on the table of slots as an UPDATE or INSERT does, but
/// locks no row.
const AS_AN_UPDATE: &str =
    "IFNULL((SELECT 0 FROM diesel_locks_slots WHERE FALSE FOR UPDATE), 0) + ";

/// [`AS_AN_UPDATE`] on MySQL, where only the session's time-out limits the wait of an UPDATE.
const AS_AN_UPDATE_ON_MYSQL: &str =
    "/*!80000 IFNULL((SELECT 0 FROM diesel_locks_slots WHERE FALSE FOR UPDATE), 0) + */ ";

// A search reads rows that other sessions have just changed, and InnoDB rebuilds the version that the search may see.
// For an entry of a secondary index it needs all versions of the row, which takes ten times as long as for the row
// itself. So the search reads the rows in the order of the primary key as long as they are few.

/// The number, fence and expiry of a slot, the time, the floor of all fences, and the flags [`MARIADB`] and
/// [`WRITER_UNKNOWN`].
pub(super) type FewRow = (i32, i64, i64, i64, i64, i32);

statement! {
    Mysql, MysqlConnection;
    /// Reads all slots up to the number of permits, and one more if it exists. The caller aggregates them: aggregates
    /// in SQL take longer.
    ScanPrimary<'a> { name: &'a [u8], permits: i32 } -> (Integer, BigInt, BigInt, BigInt, BigInt, Integer),
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; "number, fence, expires_us, "; {Mysql::NOW}; ", "; {FLOOR};
            ", "; {AS_AN_UPDATE_ON_MYSQL}; "/*M!100100 1 + */ 2 * ("; {UNKNOWN};
            ") FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
            " AND number <= ", Integer = &self.permits;
            " + 1";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Reads up to eight free slots of the first hundred, up to eight of the others by the index on expiry, and a row
    /// with the last number and the largest fence.
    ///
    /// Raw, because the DSL has no UNION of parts with limits. A join of derived tables would take longer than all the
    /// rest.
    ScanExpiryIndex<'a> { name: &'a [u8] } -> CandidateSql,
    |self, out| {
        const { assert!(FEW_SLOTS == 100) };
        push!(out;
            {UNLESS_TABLE_LOCKED}; "(SELECT "; {LIMIT_HINT}; "NULL AS slots, "; {Mysql::NOW};
            " AS now_us, number, fence, /*M!100100 1 + */ 0 FROM diesel_locks_slots FORCE INDEX (PRIMARY) \
             WHERE name = ", Binary = self.name;
            " AND number <= 100 AND expires_us <= "; {Mysql::NOW};
            " LIMIT 8) UNION ALL (SELECT NULL, "; {Mysql::NOW};
            ", number, fence, /*M!100100 1 + */ 0 FROM diesel_locks_slots FORCE INDEX (diesel_locks_slots_expiry) \
             WHERE name = ", Binary = self.name;
            " AND upper_expires_us <= "; {Mysql::NOW};
            " ORDER BY upper_expires_us LIMIT 8) UNION ALL (SELECT MAX(number), "; {Mysql::NOW}; ", NULL, ";
        );
        last_of_many(&mut out, self.name)?;
        push!(out;
            ", "; {AS_AN_UPDATE_ON_MYSQL}; "/*M!100100 1 + */ 2 * ("; {UNKNOWN}; ") FROM diesel_locks_slots WHERE name = ", Binary = self.name;
            ")";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Leases a slot that has not changed since the search, unless another session has it locked. Raw, because the DSL
    /// has no locks in a subquery. The derived table comes first (`STRAIGHT_JOIN`), and only it contains the key: the
    /// update would wait for a row that it found by itself.
    Claim<'a> {
        request: &'a LeaseRequest<'a>,
        holder: Option<&'a [u8]>,
        granted: Grant,
        last: i64,
    } -> Integer,
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "UPDATE (SELECT name, number FROM diesel_locks_slots WHERE name = ",
                Binary = self.request.semaphore.name().as_bytes();
            " AND number = ", Integer = &self.granted.number;
            " AND fence = ", BigInt = &self.last;
            " AND expires_us <= "; {Mysql::NOW};
            " LIMIT 1 FOR UPDATE SKIP LOCKED) AS free STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) \
             ON slot.name = free.name AND slot.number = free.number \
             SET slot.token = ", Binary = self.request.token.as_slice();
            ", slot.holder = ", Nullable<Binary> = &self.holder;
            ", slot.fence = ", BigInt = &self.granted.fence;
            ", slot.acquired_us = "; {Mysql::NOW};
            ", slot.expires_us = "; {Mysql::NOW}; " + ", BigInt = &self.request.lease_us;
            ", slot.hold_until_us = "; {Mysql::NOW}; " + ", BigInt = &self.request.min_hold_us;
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// [`Claim`] on MariaDB, where a derived table takes ten times as long as the update. It fails when another session
    /// has the row locked. Not for an open transaction, which some servers then roll back
    /// (`innodb_rollback_on_timeout`).
    ClaimNowait<'a> {
        request: &'a LeaseRequest<'a>,
        holder: Option<&'a [u8]>,
        granted: Grant,
        last: i64,
    } -> Integer,
    |self, out| {
        push!(out;
            "SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0 FOR UPDATE diesel_locks_slots \
             SET token = ", Binary = self.request.token.as_slice();
            ", holder = ", Nullable<Binary> = &self.holder;
            ", fence = ", BigInt = &self.granted.fence;
            ", acquired_us = "; {Mysql::NOW};
            ", expires_us = "; {Mysql::NOW}; " + ", BigInt = &self.request.lease_us;
            ", hold_until_us = "; {Mysql::NOW}; " + ", BigInt = &self.request.min_hold_us;
            " WHERE name = ", Binary = self.request.semaphore.name().as_bytes();
            " AND number = ", Integer = &self.granted.number;
            " AND fence = ", BigInt = &self.last;
            " AND expires_us <= "; {Mysql::NOW};
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Reads the largest fence.
    LastFence<'a> { name: &'a [u8] } -> BigInt,
    |self, out| {
        push!(out; {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; {AS_AN_UPDATE_ON_MYSQL});
        last_of_many(&mut out, self.name)?;
    }
}

/// A digest that identifies the server and the database.
const DATABASE: &str = "SHA2(CONCAT_WS('/', /*!80000 @@server_uuid, */ @@hostname, @@port, @@socket, @@datadir, \
     @@pid_file, DATABASE()), 256)";

statement! {
    Mysql, MysqlConnection;
    /// Reads the first 120 bits of [`DATABASE`] as two numbers. Raw, because the DSL has none of these functions.
    Database {} -> (BigInt, BigInt),
    |self, out| {
        push!(out;
            "SELECT CAST(CONV(SUBSTR("; {DATABASE}; ", 1, 15), 16, 10) AS SIGNED), CAST(CONV(SUBSTR("; {DATABASE};
            ", 16, 15), 16, 10) AS SIGNED)";
        );
    }
}

/// Searches for a free slot among certain slots.
#[diesel::dsl::auto_type]
pub(super) fn look_among<'a>(name: &'a [u8], open: &'a [i32]) -> _ {
    let now: DbNow = DbNow {};
    slots::table
        .filter(slots::name.eq(name))
        .filter(slots::number.eq_any(open))
        .filter(slots::expires_us.le(now))
        .order(slots::number)
        .limit(1_i64)
        .select((
            slots::number.nullable(),
            now,
            slots::number.nullable(),
            slots::fence.nullable(),
        ))
}

/// The number and fence of a slot, and 1 if it has the token of an expired lease.
pub(super) type LockedRow = (i32, i64, i64);

// Rows are locked by the primary key only. Locking entries of a secondary index, which change with every grant and
// release, waits in spite of SKIP LOCKED, and deadlocks.

statement! {
    Mysql, MysqlConnection;
    /// Locks the slot if it is free and not locked. Raw, as are the next ones, because the DSL has no index hints and
    /// Diesel would not cache the statement.
    LockFree<'a> { name: &'a [u8], number: i32 } -> (Integer, BigInt, BigInt),
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; "number, fence, token IS NOT NULL FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ",
                Binary = self.name;
            " AND number = ", Integer = &self.number;
            " AND expires_us <= "; {Mysql::NOW};
            " FOR UPDATE SKIP LOCKED";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Locks the first slot that is free and not locked.
    FirstUnlocked<'a> { name: &'a [u8], permits: i32 } -> (Integer, BigInt, BigInt),
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; "number, fence, token IS NOT NULL FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ",
                Binary = self.name;
            " AND number <= ", Integer = &self.permits;
            " AND expires_us <= "; {Mysql::NOW};
            " ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Locks free slots above a number, from the last one down.
    LockFreeAbove<'a> { name: &'a [u8], above: i32, limit: i64 } -> (Integer, BigInt),
    |self, out| {
        push!(out;
            "SELECT number, fence FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
            " AND number > ", Integer = &self.above;
            " AND expires_us <= "; {Mysql::NOW};
            " ORDER BY number DESC LIMIT ", BigInt = &self.limit; " FOR UPDATE SKIP LOCKED";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Deletes the slots above a number, which this session has locked. By the whole key of each: a DELETE with a range
    /// also locks the next row, which is another semaphore's, and waits for it.
    DeleteAbove<'a> { name: &'a [u8], above: i32 } -> Integer,
    |self, out| {
        push!(out;
            "DELETE slot FROM (SELECT name, number FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ",
                Binary = self.name;
            " AND number > ", Integer = &self.above;
            " LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS gone STRAIGHT_JOIN diesel_locks_slots AS slot \
             FORCE INDEX (PRIMARY) ON slot.name = gone.name AND slot.number = gone.number";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// The slots that are free and not locked. Raw, because MariaDB has no FOR SHARE.
    FreeAndUnlocked<'a> { name: &'a [u8] } -> Integer,
    |self, out| {
        push!(out;
            "SELECT number FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
            " AND expires_us <= "; {Mysql::NOW};
            " /*!80000 FOR SHARE *//*M!100100 LOCK IN SHARE MODE */ SKIP LOCKED";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Locks the row of `diesel_locks_fences`, unless another session has locked the row, its table or the table of
    /// slots.
    FloorIfFree {} -> BigInt,
    |self, out| {
        push!(out;
            {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
            {AS_AN_UPDATE}; "fence FROM diesel_locks_fences WHERE id = 1 FOR UPDATE SKIP LOCKED";
        );
    }
}

#[diesel::dsl::auto_type]
pub(super) fn count<'a>(name: &'a [u8]) -> _ {
    slots::table.filter(slots::name.eq(name)).count()
}

statement! {
    Mysql, MysqlConnection;
    /// Locks the slot against all changes if its token matches; returns whether a transaction is open, and [`UNKNOWN`].
    /// Raw, because MariaDB has no FOR SHARE.
    Pin<'a> { name: &'a [u8], number: i32, token: &'a [u8] } -> (Nullable<BigInt>, BigInt),
    |self, out| {
        push!(out;
            "SELECT "; {IN_TRANSACTION}; ", "; {UNKNOWN};
            " FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
            " AND number = ", Integer = &self.number;
            " AND token = ", Binary = self.token;
            " LOCK IN SHARE MODE";
        );
    }
}

/// Without further conditions: this session has locked the row.
pub(super) fn clear_token(name: &[u8], number: i32) -> impl ExecutableQuery {
    diesel::update(slots::table.find((name, number))).set(slots::token.eq(None::<&[u8]>))
}

/// Inserts the floor unless it exists.
pub(super) fn insert_fence_floor(fence: i64) -> impl ExecutableQuery {
    diesel::insert_or_ignore_into(diesel_locks_fences::table).values((
        diesel_locks_fences::id.eq(FENCE_ROW_ID),
        diesel_locks_fences::fence.eq(fence),
    ))
}

pub(super) fn register(name: &[u8], permits: i32) -> impl ExecutableQuery {
    diesel::replace_into(diesel_locks_semaphores::table).values((
        diesel_locks_semaphores::name.eq(name),
        diesel_locks_semaphores::permits.eq(permits),
    ))
}

/// The requested leases as a table, joined with the slots whose tokens match.
const ASKED: &str = ", '$[*]' COLUMNS (place FOR ORDINALITY, name VARCHAR(2040) PATH '$.name', number INTEGER PATH '$.number', \
     token VARCHAR(32) PATH '$.token', lease_us BIGINT PATH '$.lease_us')) AS asked \
     STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) ON slot.name = UNHEX(asked.name) \
     AND slot.number = asked.number AND slot.token = UNHEX(asked.token)";

statement! {
    Mysql, MysqlConnection;
    /// Renews leases, except those whose row another session has locked. Raw, because the DSL has neither JSON tables
    /// nor locks in a subquery.
    RenewBatch<'a> { asked: &'a str } -> Integer,
    |self, out| {
        push!(out;
            "UPDATE (SELECT slot.name, slot.number, asked.lease_us FROM JSON_TABLE(", Text = self.asked; {ASKED};
            " LIMIT 1000000 FOR UPDATE /*!80000 OF slot */ SKIP LOCKED) AS mine \
             STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) \
             ON slot.name = mine.name AND slot.number = mine.number \
             SET slot.expires_us = GREATEST(slot.hold_until_us, "; {Mysql::NOW};
            " + mine.lease_us)";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Releases slots, except those whose row another session has locked. Raw for the reasons of [`RenewBatch`].
    ReleaseBatch<'a> { asked: &'a str } -> Integer,
    |self, out| {
        push!(out;
            "UPDATE (SELECT slot.name, slot.number FROM JSON_TABLE(", Text = self.asked; {ASKED};
            " LIMIT 1000000 FOR UPDATE /*!80000 OF slot */ SKIP LOCKED) AS mine \
             STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) \
             ON slot.name = mine.name AND slot.number = mine.number \
             SET slot.token = NULL, slot.expires_us = CASE WHEN slot.hold_until_us > "; {Mysql::NOW};
            " THEN slot.hold_until_us ELSE 0 END";
        );
    }
}

statement! {
    Mysql, MysqlConnection;
    /// Reads the remaining time of each lease whose token still matches. Identifies it by its position in the request,
    /// from 1, because a broken client library loses texts but not numbers.
    OwnedLeases<'a> { asked: &'a str } -> (BigInt, BigInt),
    |self, out| {
        push!(out;
            "SELECT asked.place, slot.expires_us - "; {Mysql::NOW};
            " FROM JSON_TABLE(", Text = self.asked; {ASKED};
        );
    }
}
