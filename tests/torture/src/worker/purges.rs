//! What nobody holds is removed, while others ask for it.

use std::time::Duration;

use torture_history::Outcome;

use super::Shift;
use super::trouble::{Failure, judged};
use crate::store::Store;

/// Removes kept rows of locks, and slots that are free at this moment.
pub(crate) fn purge<C: Store>(shift: &Shift<C>) -> Result<Outcome, Failure> {
    let mut conn = shift.pool.get().map_err(diesel_locks::Error::from)?;
    let conn = &mut *conn;
    let purged = conn
        .purge_object_locks()
        .and_then(|_| conn.purge_slots(Duration::ZERO))
        .map_err(Failure::from);
    judged(conn, purged)?;
    Ok(Outcome::Done)
}
