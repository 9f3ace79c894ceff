//! Stores one document in one transaction.

use std::thread;
use std::time::{Duration, Instant};

use diesel_locks::Retention;
use diesel_locks::prelude::*;
use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::store::Store;

/// The number of retries of a transaction that the database aborted.
const RETRIES: u32 = 5;

/// What prevents two transactions from changing the same id at the same time.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Locking {
    /// Nothing.
    Unlocked,
    /// The id's object lock, whose row is deleted.
    Transient,
    /// The id's object lock, whose row is kept.
    Kept,
}

/// What happened to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Inserted,
    Updated,
    Dropped,
}

pub(crate) struct Upserted {
    pub(crate) fate: Fate,
    /// The time from the request to the acquired lock.
    pub(crate) waited: Duration,
    pub(crate) retries: u32,
}

/// Inserts the document, replaces the stored version, or drops the document.
pub(crate) fn upsert<C: Store>(
    conn: &mut C,
    document: &Document,
    generated: bool,
    locking: Locking,
) -> Result<Upserted, diesel_locks::Error> {
    let mut retries = 0;
    loop {
        let asked = Instant::now();
        let mut waited = Duration::ZERO;
        let work = |conn: &mut C| store_if_newer(conn, document, generated);
        let lock = |retention| LockRequest::new(&document.id).retention(retention);
        let mut locked = |retention| {
            conn.with_object_lock(lock(retention), |conn| {
                waited = asked.elapsed();
                work(conn)
            })
        };
        let result = match locking {
            Locking::Transient => locked(Retention::Transient),
            Locking::Kept => locked(Retention::Kept),
            Locking::Unlocked => conn.transaction(work),
        };
        match result {
            Ok(fate) => {
                return Ok(Upserted {
                    fate,
                    waited,
                    retries,
                });
            }
            Err(error) if error.is_retryable() && retries < RETRIES => {
                retries += 1;
                thread::sleep(Duration::from_millis(1) * retries);
            }
            Err(error) => return Err(error),
        }
    }
}

fn store_if_newer<C: Store>(
    conn: &mut C,
    document: &Document,
    generated: bool,
) -> Result<Fate, diesel_locks::Error> {
    match conn.registered(&document.id)? {
        None => {
            conn.insert(document, generated)?;
            Ok(Fate::Inserted)
        }
        Some(registered) if document.version > registered.version => {
            conn.update(registered.seq, document)?;
            Ok(Fate::Updated)
        }
        Some(_) => Ok(Fate::Dropped),
    }
}
