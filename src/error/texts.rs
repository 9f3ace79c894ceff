//! Texts of errors: durations and counts as people write them, and what is too long for the definition.

use std::fmt;
use std::time::Duration;

/// The largest unit in which the duration is a whole number: `500 ms`, `90 s`, `100 years`.
pub(crate) struct Exact(pub(crate) Duration);

/// Nanoseconds, unit, and the end of its plural.
const UNITS: [(u128, &str, &str); 8] = [
    (36_525 * 24 * 36_000_000_000, "year", "s"),
    (24 * 3_600_000_000_000, "day", "s"),
    (3_600_000_000_000, "h", ""),
    (60_000_000_000, "min", ""),
    (1_000_000_000, "s", ""),
    (1_000_000, "ms", ""),
    (1_000, "µs", ""),
    (1, "ns", ""),
];

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let unit = UNITS.iter().find(|(unit, ..)| nanos.is_multiple_of(*unit));
        match unit {
            _ if nanos == 0 => f.write_str("0 s"),
            // Many digits: with a decimal point.
            None | Some((..1_000_000, ..)) if self.0.as_secs() > 0 => {
                write!(f, "{} s", format!("{:?}", self.0).trim_end_matches('s'))
            }
            Some((nanos_of_one, unit, plural)) => {
                let count = nanos / nanos_of_one;
                write!(f, "{count} {unit}{}", if count == 1 { "" } else { plural })
            }
            None => write!(f, "{nanos} ns"),
        }
    }
}

/// Whole milliseconds below 10 s, whole seconds above.
pub(crate) struct Rounded(pub(crate) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = (self.0.as_micros() + 500) / 1_000;
        match millis {
            ..10_000 => write!(f, "{millis} ms"),
            _ => write!(f, "{} s", (millis + 500) / 1_000),
        }
    }
}

/// A number and its noun: `1 permit`, `2 permits`.
pub(crate) fn counted(n: impl Into<u64>, noun: &str) -> String {
    let n = n.into();
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

pub(crate) fn interrupted(migration: &str) -> String {
    format!(
        "the migration {migration} was interrupted, and a part of it may be committed: complete it by hand and insert its version \
         into __diesel_schema_migrations, or undo it and delete its version from __diesel_locks_begun_migrations"
    )
}

pub(crate) fn not_registered(semaphore: &str, permits: Option<u32>) -> String {
    match permits {
        Some(permits) => format!(
            "the semaphore {semaphore:?} has rows for fewer than {} in the database: call register_semaphores outside of a \
             transaction first",
            counted(permits, "permit")
        ),
        None => format!(
            "the database has no number of permits for the semaphore {semaphore:?}: call set_permits first"
        ),
    }
}

/// The limit of a wait, for the text of an error.
pub(crate) fn limit_shown(limit: Option<Duration>) -> String {
    limit.map_or_else(
        || " (a limit of the session or the server ended the wait)".to_owned(),
        |limit| format!(" (limit {})", Exact(limit)),
    )
}

pub(crate) const PREPARED_STATEMENT_MISMATCH: &str = "the session does not have the prepared statements of this connection \
    (transaction pooler, or DISCARD ALL): call conn.set_prepared_statement_cache_size(CacheSize::Disabled) on each \
    connection, or set max_prepared_statements in PgBouncer 1.21 or newer, which connections of diesel-async need; see \
    \"Through a transaction pooler\" in the documentation of diesel-locks";

pub(crate) const BROKEN_CLIENT_LIBRARY: &str = "the client library of MySQL or MariaDB returns empty strings: libmariadb \
    (MariaDB Connector/C) 3.3.19 and 3.4.9 do so with Diesel up to 2.3.14, because of their defect CONC-821; install \
    libmariadb 3.3.20, 3.4.10 or newer (Debian 12: with its security updates), or MySQL's libmysqlclient";

pub(crate) const STATEMENT_TIMEOUT: &str = "a time-out of the session (lock_timeout, statement_timeout, transaction_timeout, \
    innodb_lock_wait_timeout, max_execution_time, busy_timeout) cancelled the statement";

pub(crate) const MISSING_TABLES: &str = "the tables of diesel-locks are missing: call diesel_locks::migrate(&mut conn) first \
    (if they exist: add their schema to the search_path, and grant the user USAGE on it)";

pub(crate) const REFUSED_BY_GROUP: &str = "Group Replication refuses the statement: it requires InnoDB tables with a primary key \
    and binlog_format = ROW, and, while several members take writes or another one becomes the primary, neither SERIALIZABLE nor \
    a foreign key with CASCADE";

pub(crate) const UNTRACKED_TRANSACTION: &str = "a transaction is open that Diesel does not know of: begin transactions with \
    run_transaction or Diesel's transaction, and not by BEGIN or SET autocommit = 0 as text";

pub(crate) const LOCK_TABLE_FULL: &str = "the server's lock table is full: lock fewer kept objects at the same time, or raise \
    max_locks_per_transaction";

pub(crate) const TRANSACTION_POOLER: &str = "the lock of the migrations is one of a session, and the statements run in several: \
    a pooler in transaction mode is between; connect to PostgreSQL directly, or through a pooler in session mode";

/// What is needed in place of an old SQLite.
pub(crate) const NEWER_SQLITE: &str = "SQLite 3.38 or newer: add libsqlite3-sys = { version = \"..\", features = [\"bundled\"] } \
     to the application's dependencies, with the version that Diesel has in Cargo.lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_the_largest_whole_unit() {
        for (duration, shown) in [
            (Duration::ZERO, "0 s"),
            (Duration::from_nanos(999_999), "999999 ns"),
            (Duration::from_micros(500), "500 µs"),
            (Duration::from_millis(500), "500 ms"),
            (Duration::from_millis(2_147_483_647), "2147483647 ms"),
            (Duration::from_secs(90), "90 s"),
            (Duration::from_secs(7_200), "2 h"),
            (Duration::from_secs(86_400), "1 day"),
            (crate::limits::LONGEST_LEASE, "100 years"),
            (Duration::new(100, 1), "100.000000001 s"),
            (Duration::MAX, "18446744073709551615.999999999 s"),
        ] {
            assert_eq!(Exact(duration).to_string(), shown);
        }
    }

    #[test]
    fn waits_are_rounded() {
        for (micros, shown) in [
            (516_308, "516 ms"),
            (400, "0 ms"),
            (9_999_400, "9999 ms"),
            (9_999_600, "10 s"),
            (61_400_000, "61 s"),
        ] {
            assert_eq!(Rounded(Duration::from_micros(micros)).to_string(), shown);
        }
    }

    #[test]
    fn counts_are_singular_or_plural() {
        assert_eq!(counted(1_u32, "permit"), "1 permit");
        assert_eq!(counted(0_u32, "permit"), "0 permits");
    }
}
