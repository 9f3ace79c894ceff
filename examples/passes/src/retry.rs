//! Transactions that the database broke are tried again.

use std::thread;
use std::time::Duration;

use diesel_locks::Error;
use rand::RngExt;

use crate::store::Store;

/// How often a transaction is tried again.
const RETRIES: u32 = 20;

/// Runs the closure in a transaction; after a deadlock, a serialization failure or a wait that was too
/// long, again from its beginning. `retries` is how often.
pub(crate) fn run_transaction<C: Store, T>(
    conn: &mut C,
    retries: &mut u32,
    mut work: impl FnMut(&mut C) -> Result<T, Error>,
) -> Result<T, Error> {
    let last = *retries + RETRIES;
    loop {
        match conn.transaction(&mut work) {
            Err(error) if (error.is_retryable() || error.is_timeout()) && *retries < last => {
                *retries += 1;
                // By chance, or two that were in each other's way would be so again.
                thread::sleep(Duration::from_millis(rand::rng().random_range(0..10)));
            }
            result => return result,
        }
    }
}
