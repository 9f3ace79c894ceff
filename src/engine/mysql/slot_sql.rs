//! What is sent to MySQL and MariaDB for slots.

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
    // Not by UNIX_TIMESTAMP, which goes through the session's time zone and its change of the clocks.
    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const GREATEST: &'static str = "GREATEST";
}

/// The clock, and number and fence of a free slot; or, without a number, the last slot's number and the largest
/// fence.
pub(super) type Candidate = (Option<i32>, i64, Option<i32>, Option<i64>);

/// The flag of MariaDB.
pub(super) const MARIADB: i32 = 1;

/// The session does not know yet that there is one writer.
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

/// No fence of a slot that was removed was larger.
const FLOOR: &str = "IFNULL((SELECT fence FROM diesel_locks_fences WHERE id = 1), 0)";

/// The largest fence of a semaphore with many slots.
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

/// Before a statement: on MariaDB a table that another session has locked (`LOCK TABLES`, an ALTER) is an error at once.
const UNLESS_TABLE_LOCKED: &str = "/*M!100100 SET STATEMENT lock_wait_timeout = 0 FOR */ ";

/// A SELECT with it waits for the table of slots as an update would, or an INSERT. Locks no row.
const AS_AN_UPDATE: &str =
    "IFNULL((SELECT 0 FROM diesel_locks_slots WHERE FALSE FOR UPDATE), 0) + ";

/// [`AS_AN_UPDATE`] on MySQL, where an update's wait has no limit but the session's.
const AS_AN_UPDATE_ON_MYSQL: &str =
    "/*!80000 IFNULL((SELECT 0 FROM diesel_locks_slots WHERE FALSE FOR UPDATE), 0) + */ ";

// What a look reads has just been changed by others, and InnoDB works out the version that this look is to
// see: for an entry of the other index from all versions of the row, which is ten times the work of a row.
// So a look goes through the rows while they are few.

/// Number and fence of a slot, when it is free, the clock, the floor of all fences, and flags: [`MARIADB`],
/// [`WRITER_UNKNOWN`].
pub(super) type FewRow = (i32, i64, i64, i64, i64, i32);

statement! {
    Mysql, MysqlConnection;
    /// All slots, and one above the permits if there are more. In one go: a part that adds them up costs more.
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
    /// Up to eight free slots of the first hundred, up to eight of the others by way of the ends of leases, and a
    /// row for the last number and the largest fence. And whether this is MariaDB.
    ///
    /// Raw: the DSL has no UNION of parts with limits. Not a join of derived tables, which costs more than
    /// the rest.
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
    /// Takes a slot that is as it was seen, unless another session has it locked. Raw: the DSL has no
    /// locks in a part of a statement. The derived table comes first (`STRAIGHT_JOIN`), and the key is
    /// named in it alone: a row that the update found by itself it would wait for.
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
    /// [`Claim`] on MariaDB, where a derived table costs ten times the update. It fails when another session
    /// has the row locked, and for that some servers roll back the whole transaction: not for one that is
    /// open.
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
    /// The largest fence.
    LastFence<'a> { name: &'a [u8] } -> BigInt,
    |self, out| {
        push!(out; {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT}; {AS_AN_UPDATE_ON_MYSQL});
        last_of_many(&mut out, self.name)?;
    }
}

/// What tells the server and the database from all others.
const DATABASE: &str = "SHA2(CONCAT_WS('/', /*!80000 @@server_uuid, */ @@hostname, @@port, @@socket, @@datadir, \
     @@pid_file, DATABASE()), 256)";

statement! {
    Mysql, MysqlConnection;
    /// The beginning of a digest of it, as two numbers of 60 bits. Raw: the DSL knows none of these functions.
    Database {} -> (BigInt, BigInt),
    |self, out| {
        push!(out;
            "SELECT CAST(CONV(SUBSTR("; {DATABASE}; ", 1, 15), 16, 10) AS SIGNED), CAST(CONV(SUBSTR("; {DATABASE};
            ", 16, 15), 16, 10) AS SIGNED)";
        );
    }
}

/// A look among certain slots.
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

/// Number and fence of a slot, and 1 when it has the token of a lease that has ended.
pub(super) type LockedRow = (i32, i64, i64);

// Rows are locked by way of the primary key alone. Who locks entries of the other index, which change with
// every grant and release, waits for others who do, in spite of SKIP LOCKED, and deadlocks with them.

statement! {
    Mysql, MysqlConnection;
    /// Locks the slot if it is free and nobody has it locked. Raw, as are the others: the DSL can't name an
    /// index, and Diesel would prepare it anew each time.
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
    /// Locks the first slot that is free and that nobody has locked.
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
    /// Free slots above a number, from the last one on, locked.
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
    /// Removes the slots above a number, which are locked by us. By the whole key of each: a DELETE that looks
    /// for them by itself also locks the row that comes next, another semaphore's, and waits for it.
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
    /// The slots that are free and that nobody has locked. Raw: MariaDB has no FOR SHARE.
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
    /// Locks the row of `diesel_locks_fences`, unless another session has it locked, or the table, or that of slots.
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
    /// Whether a transaction is open, and [`UNKNOWN`]. Locks the slot against all changes, if it is still this
    /// token's. Raw: MariaDB has no FOR SHARE.
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

/// The row is locked by us.
pub(super) fn clear_token(name: &[u8], number: i32) -> impl ExecutableQuery {
    diesel::update(slots::table.find((name, number))).set(slots::token.eq(None::<&[u8]>))
}

/// Unless it is there.
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

/// The leases asked for as a table.
const ASKED: &str = ", '$[*]' COLUMNS (place FOR ORDINALITY, name VARCHAR(2040) PATH '$.name', number INTEGER PATH '$.number', \
     token VARCHAR(32) PATH '$.token', lease_us BIGINT PATH '$.lease_us')) AS asked \
     STRAIGHT_JOIN diesel_locks_slots AS slot FORCE INDEX (PRIMARY) ON slot.name = UNHEX(asked.name) \
     AND slot.number = asked.number AND slot.token = UNHEX(asked.token)";

statement! {
    Mysql, MysqlConnection;
    /// Renews leases; a row that another session has locked keeps its end. Raw: the DSL knows neither JSON
    /// as a table nor locks in a part of a statement.
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
    /// Gives slots back, but for those that another session has locked. Raw as [`RenewBatch`] is.
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
    /// What is left of the leases that are still their tokens', by their places among those asked for,
    /// from 1 on: numbers, which no client library loses.
    OwnedLeases<'a> { asked: &'a str } -> (BigInt, BigInt),
    |self, out| {
        push!(out;
            "SELECT asked.place, slot.expires_us - "; {Mysql::NOW};
            " FROM JSON_TABLE(", Text = self.asked; {ASKED};
        );
    }
}
