//! Sessions that hold a snapshot or locks and are idle.

use std::ops::Range;

use diesel::{Connection, QueryResult};

use super::hit::Hit;
use super::rng::NemesisRng;
use super::server::any_url;
use crate::engine::with_connection;
use crate::run_context::RunContext;
use crate::sessions::Sessions;

/// A session that has read everything and keeps its snapshot: old rows can't be cleared away.
pub(super) fn hold_snapshot(context: &RunContext, rng: &mut NemesisRng) -> Option<Hit> {
    sleep_in(context, rng, 3000..9000, |conn| conn.begin_snapshot())
}

/// A session that takes what writers want, and sleeps. Less than `innodb_lock_wait_timeout`, most of the time.
pub(super) fn hold_locks(context: &RunContext, rng: &mut NemesisRng) -> Option<Hit> {
    sleep_in(context, rng, 200..3000, |conn| conn.begin_holding_locks())
}

fn sleep_in(
    context: &RunContext,
    rng: &mut NemesisRng,
    milliseconds: Range<u64>,
    begin: impl FnOnce(&mut dyn Sessions) -> QueryResult<()>,
) -> Option<Hit> {
    with_connection!(context.engine, C => {
        let mut conn = C::establish(any_url(context, rng)).ok()?;
        begin(&mut conn).ok()?;
        context.sleep(rng.time(milliseconds));
        // It may have ended by itself, by a fault of another lane.
        let _ = conn.end();
    });
    Some(Hit::ALL)
}
