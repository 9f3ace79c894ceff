//! Other users of the same database, who take their time.

use std::ops::Range;

use diesel::{Connection, QueryResult};

use super::Hit;
use super::fate::Fate;
use crate::engine::with_connection;
use crate::sessions::Sessions;
use crate::stage::Stage;

/// A session that has read everything and keeps its snapshot: old rows can't be cleared away.
pub(super) fn keep_a_snapshot(stage: &Stage, fate: &mut Fate) -> Option<Hit> {
    sleep_in(stage, fate, 3000..9000, |conn| conn.begin_snapshot())
}

/// A session that takes what writers want, and sleeps. Less than `innodb_lock_wait_timeout`, most of the time.
pub(super) fn hog(stage: &Stage, fate: &mut Fate) -> Option<Hit> {
    sleep_in(stage, fate, 200..3000, |conn| conn.begin_hogging())
}

fn sleep_in(
    stage: &Stage,
    fate: &mut Fate,
    milliseconds: Range<u64>,
    begin: impl FnOnce(&mut dyn Sessions) -> QueryResult<()>,
) -> Option<Hit> {
    with_connection!(stage.engine, C => {
        let mut conn = C::establish(&stage.url).ok()?;
        begin(&mut conn).ok()?;
        stage.rest(fate.time(milliseconds));
        // It may have ended by itself: other faults go on.
        let _ = conn.end();
    });
    Some(Hit::ALL)
}
