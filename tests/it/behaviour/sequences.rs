//! Sequences: what their bodies share.

use std::sync::atomic::{AtomicU32, Ordering};

use diesel_locks::prelude::*;
use diesel_locks::{Error, RetryPolicy};

use crate::support::Backend;
use crate::support::threads::LONGEST_RETRIES;

pub(crate) mod arguments;
pub(crate) mod isolation_levels;
pub(crate) mod numbering;

/// A name that no body has used: on MySQL a process remembers sequences by name, whatever their database.
pub(crate) fn unique_name(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name} {}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Notes numbers that were drawn.
pub(crate) fn note<B: Backend>(conn: &mut B::Conn, place: usize, number: i64) {
    B::sql(
        conn,
        &format!("INSERT INTO drawn VALUES ({place}, {number})"),
    );
}

/// The notes have each number from 1 on once, and as many as are expected.
pub(crate) fn assert_complete<B: Backend>(database: &B, place: usize, expected: i64) {
    let mut conn = database.connect();
    for (what, number) in [
        ("count(*)", expected),
        ("count(DISTINCT number)", expected),
        ("min(number)", 1),
        ("max(number)", expected),
    ] {
        let sql = format!("SELECT {what} FROM drawn WHERE place = {place}");
        assert_eq!(B::number(&mut conn, &sql), number, "{what}");
    }
}

/// A transaction of its own; where there is one writer, after those who write.
pub(crate) fn in_own_transaction<B: Backend, T>(
    conn: &mut B::Conn,
    mut work: impl FnMut(&mut B::Conn) -> Result<T, Error>,
) -> Result<T, Error> {
    let attempts = if B::ONE_WRITER { u32::MAX } else { 1 };
    let transaction = TransactionOptions::new()
        .retry(RetryPolicy::max_attempts(attempts).max_elapsed(LONGEST_RETRIES));
    conn.run_transaction(transaction, |conn| work(conn))
}

pub(crate) fn roll_back<T>() -> Result<T, Error> {
    Err(diesel::result::Error::RollbackTransaction.into())
}
