//! Removes free rows while other workers request them.

use std::time::Duration;

use torture_history::Outcome;

use super::context::WorkerContext;
use super::errors::{Failure, classify_result};
use crate::store::Store;

/// Removes kept rows of locks, and slots that are free at this moment.
pub(crate) fn purge<C: Store>(context: &WorkerContext<C>) -> Result<Outcome, Failure> {
    let mut conn = context.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let purged = conn
        .purge_object_locks()
        .and_then(|_| conn.purge_slots(Duration::ZERO))
        .map_err(Failure::from);
    classify_result(conn, purged)?;
    Ok(Outcome::Done)
}
