//! The statements for slots on MySQL and MariaDB. Raw SQL where the DSL lacks a function, a statement prefix or a hint.

use diesel::dsl::{auto_type, update};
use diesel::mysql::Mysql;
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel::sql_types::{BigInt, Binary, Integer, Nullable};

use crate::engine::clock::Clock;
use crate::engine::mysql::sql::{
    EVERY_ROW, IN_TRANSACTION, LIMIT_HINT, UNLESS_TABLE_LOCKED, WRITER_UNKNOWN, limit_hint,
};
use crate::engine::slot_queries::Key;
use crate::engine::tables::{Named, diesel_locks_slots as slots};
use crate::link::raw_sql::statement;

impl Clock for Mysql {
    // Not UNIX_TIMESTAMP, which depends on the session's time zone and jumps with daylight saving time.
    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const GREATEST: &'static str = "GREATEST";
    const COMMITTED_AT_ONCE: Option<&'static str> = Some(COMMITTED_AT_ONCE);
    const COUNTS_CHANGED_ROWS: bool = true;
    const BY_PRIMARY_KEY: &'static str = " FORCE INDEX (PRIMARY)";
}

/// MySQL does not report a transaction that the application has begun by its own SQL.
pub(crate) const COMMITTED_AT_ONCE: &str =
    "(/*!80000 @@autocommit *//*M!100100 @@autocommit AND NOT @@in_transaction */)";

/// A digest that identifies the server and the database.
const DATABASE: &str = "SHA2(CONCAT_WS('/', /*!80000 @@server_uuid, */ @@hostname, @@port, @@socket, @@datadir, \
     @@pid_file, DATABASE()), 256)";

statement! {
    Mysql;
    /// Reads the first 120 bits of [`DATABASE`] as two numbers.
    Database {} -> (BigInt, BigInt),
    |self| {
        "SELECT CAST(CONV(SUBSTR("; {DATABASE}; ", 1, 15), 16, 10) AS SIGNED), CAST(CONV(SUBSTR("; {DATABASE};
        ", 16, 15), 16, 10) AS SIGNED)";
    }
}

statement! {
    Mysql;
    /// The held slots. Fails unless it ends in time: another session may have the table locked.
    HeldNowait<'a> { name: &'a [u8] } -> (Integer, BigInt, BigInt),
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {LIMIT_HINT};
        "number, fence, expires_us - "; {Mysql::NOW};
        " FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND expires_us > "; {Mysql::NOW};
        " ORDER BY number"; {EVERY_ROW};
    }
}

statement! {
    Mysql;
    /// Reads the semaphore's first slot. Fails as [`HeldNowait`] does, or after a longer time.
    FirstSlot<'a, const SLOWLY: bool> { name: &'a [u8] } -> (BigInt, BigInt, BigInt, BigInt),
    |self| {
        {UNLESS_TABLE_LOCKED}; "SELECT "; {limit_hint(SLOWLY)};
        "fence, acquired_us, hold_until_us, expires_us - "; {Mysql::NOW};
        " FROM diesel_locks_slots FORCE INDEX (PRIMARY) WHERE name = ", Binary = self.name;
        " AND number = 1";
    }
}

statement! {
    Mysql;
    /// Locks the slot against all changes if its token matches; returns whether a transaction is open, and
    /// [`WRITER_UNKNOWN`]. Raw, because MariaDB has no FOR SHARE.
    Pin<'a> { key: Key<'a> } -> (Nullable<BigInt>, BigInt),
    |self| {
        "SELECT "; {IN_TRANSACTION}; ", "; {WRITER_UNKNOWN};
        " FROM diesel_locks_slots FORCE INDEX (PRIMARY)"; [&self.key]; " LOCK IN SHARE MODE"
    }
}

/// Without further conditions: this session has locked the row.
#[auto_type]
pub(crate) fn clear_token<'a>(name: Named<'a>, number: i32) -> _ {
    let no_token: Option<&'static [u8]> = None;
    update(slots::table.find((name, number))).set(slots::token.eq(no_token))
}
