//! Numbers at the isolation levels that there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use diesel::connection::Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy};

use super::{assert_complete, in_own_transaction, note, unique_name};
use crate::behaviour::slots::run_concurrently;
use crate::support::Backend;
use crate::support::threads::{LONGEST_RETRIES, begin};

/// Draws by Diesel's own `transaction`: MySQL's default is REPEATABLE READ.
pub(crate) fn default_level_draws_without_gaps_or_repeats<B: Backend>() {
    let database = Arc::new(B::new());
    let drawn = AtomicI64::new(0);
    let sequence = Sequence::new(unique_name("default"));
    run_concurrently(&database, 8, |conn, _| {
        for _ in 0..20 {
            let result = conn.transaction(|conn| {
                let number = conn.next_number(&sequence)?;
                note::<B>(conn, 0, number);
                Ok::<_, Error>(())
            });
            match result {
                Ok(()) => _ = drawn.fetch_add(1, Ordering::Relaxed),
                // SQLite's busy, whose transaction drew nothing.
                Err(error) => assert!(B::ONE_WRITER && error.is_timeout(), "{error:?}"),
            }
        }
    });
    assert_complete(&*database, 0, drawn.into_inner());
}

pub(crate) fn levels_above_read_committed_draw_without_gaps_or_repeats<B: Backend>() {
    let levels: &[IsolationLevel] = if B::ONE_WRITER {
        &[IsolationLevel::Serializable]
    } else {
        &[IsolationLevel::RepeatableRead, IsolationLevel::Serializable]
    };
    for level in levels {
        let database = Arc::new(B::new());
        let transaction = TransactionOptions::new()
            .isolation(*level)
            .retry(RetryPolicy::max_attempts(u32::MAX).max_elapsed(LONGEST_RETRIES));
        let sequence = Sequence::new(unique_name("high"));
        run_concurrently(&database, 8, |conn, _| {
            for _ in 0..10 {
                conn.run_transaction(transaction, |conn| {
                    // A snapshot, before others draw.
                    B::counter(conn, 0);
                    let number = conn.next_number(&sequence)?;
                    note::<B>(conn, 0, number);
                    Ok::<_, Error>(())
                })
                .expect("in the end");
            }
        });
        assert_complete(&*database, 0, 80);
    }
}

pub(crate) fn draw_after_an_old_snapshot_is_new_or_fails<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let sequence = Sequence::new(unique_name("invoice"));
    for known in [false, true] {
        B::serializable(&mut conn);
        begin(&mut conn);
        B::counter(&mut conn, 0);
        let theirs = in_own_transaction::<B, _>(&mut other, |conn| conn.next_number(&sequence))
            .expect("free");
        assert_eq!(theirs, if known { 2 } else { 1 });
        match conn.next_number(&sequence) {
            Ok(number) => {
                assert_eq!(number, theirs + 1);
                assert_eq!(conn.last_number(&sequence).expect("ours"), Some(number));
            }
            Err(error) => assert!(
                error.is_serialization_failure() || (B::ONE_WRITER && error.is_timeout()),
                "{error:?}"
            ),
        }
        crate::support::threads::roll_back(&mut conn);
    }
}
