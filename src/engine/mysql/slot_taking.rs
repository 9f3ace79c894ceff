//! A free slot on MySQL and MariaDB: a look that locks nothing, and then an update of one row by its key,
//! which skips the row when another has it locked.

use std::cell::Cell;

use diesel::mysql::MysqlConnection;

use super::again::{counted, unless_locked};
use super::run::Run;
use super::slot_statements as sql;
use crate::engine::slot_store::{Attempt, Granted, Place, Wanted, judge};
use crate::limits::FEW_SLOTS;
use crate::{Error, Semaphore, fence, nesting, pause};

thread_local! {
    /// The number of the slot that this thread took last. Who takes slots again and again in turn with others
    /// does best to ask for the same: then no two go for one.
    static LAST_TAKEN: Cell<i32> = const { Cell::new(0) };
}

/// What a look saw.
pub(super) struct Seen {
    slots: Option<i32>,
    now_us: i64,
    /// No grant that was finished before had a larger one.
    fence: i64,
    pub(super) free: Vec<(i32, i64)>,
    mariadb: bool,
    pub(super) writer_unknown: bool,
}

impl Seen {
    pub(super) fn judged(&self, semaphore: &Semaphore, place: &Place) -> Attempt {
        judge(self.slots, semaphore.permits_i32(), false, place)
    }

    /// The judgement when there were free slots, all locked.
    pub(super) fn nothing_to_be_had(&self, semaphore: &Semaphore, place: &Place) -> Attempt {
        judge(self.slots, semaphore.permits_i32(), true, place)
    }
}

/// Free slots, as far as one can tell without locking: one of the first few, so that those who look at the
/// same time do not all go for the same.
pub(super) fn look(
    conn: &mut MysqlConnection,
    semaphore: &Semaphore,
    place: &Place,
) -> Result<Seen, Error> {
    let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
    // Before the rest, so that whoever finishes meanwhile may be later.
    let fence: i64 = if place.open.is_some() {
        sql::LastFence { name }.get_result(conn)?
    } else {
        0
    };
    let rows: Vec<(sql::LookRow, i32)> = match &place.open {
        None if permits <= FEW_SLOTS => sql::LookAtFew { name, permits }.load(conn)?,
        None => sql::LookAtMany { name }.load(conn)?,
        Some(open) => {
            let rows: Vec<sql::LookRow> = sql::look_among(name, open).load(conn)?;
            rows.into_iter().map(|row| (row, 0)).collect()
        }
    };
    let mut seen = Seen {
        slots: None,
        now_us: 0,
        fence,
        free: Vec::new(),
        mariadb: false,
        writer_unknown: false,
    };
    for ((slots, now_us, number, last), flags) in rows {
        seen.mariadb = flags & sql::MARIADB != 0;
        seen.writer_unknown |= flags & sql::WRITER_UNKNOWN != 0;
        seen.slots = seen.slots.or(slots);
        seen.now_us = now_us;
        seen.fence = seen.fence.max(last.unwrap_or(0));
        seen.free.extend(number.zip(last));
    }
    if place.open.is_none() && seen.slots > Some(permits) {
        seen.free.clear();
    }
    let again = place.likely.unwrap_or_else(|| LAST_TAKEN.get());
    let chosen = seen
        .free
        .iter()
        .position(|(number, _)| *number == again)
        .unwrap_or_else(|| pause::random_below(seen.free.len()));
    seen.free.rotate_left(chosen);
    Ok(seen)
}

/// Locks a free slot that nobody has locked: for the statement, or until the end of the transaction that is
/// open. First the one that the look chose; then any.
pub(super) fn lock_one(
    conn: &mut MysqlConnection,
    semaphore: &Semaphore,
    place: &Place,
    seen: &Seen,
) -> Result<Option<sql::LockedRow>, Error> {
    let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
    let seen: Vec<i32> = seen.free.iter().map(|(number, _)| *number).collect();
    let named = match &place.open {
        None => &seen[..seen.len().min(1)],
        Some(open) => open,
    };
    for &number in named {
        if let Some(locked) = (sql::LockFree { name, number }).get_if_any(conn)? {
            return Ok(Some(locked));
        }
    }
    if place.open.is_some() {
        return Ok(None);
    }
    Ok(sql::FirstUnlocked { name, permits }.get_if_any(conn)?)
}

/// Takes the slot if it is as it was seen; `None` when it is not, or is locked.
pub(super) fn take(
    conn: &mut MysqlConnection,
    wanted: &Wanted<'_>,
    seen: &Seen,
    number: i32,
    last: i64,
) -> Result<Option<Granted>, Error> {
    let granted = Granted {
        number,
        fence: fence::next(last.max(seen.fence), seen.now_us, number),
    };
    let holder = wanted.holder.map(str::as_bytes);
    let taken = if seen.mariadb && nesting::depth(conn)? == 0 {
        let take = sql::TakeOrFail {
            wanted,
            holder,
            granted,
            last,
        };
        unless_locked(conn, |conn| (&take).execute_without_rows(conn))?
    } else {
        let take = sql::Take {
            wanted,
            holder,
            granted,
            last,
        };
        counted(conn, |conn| (&take).execute_without_rows(conn))?
    };
    if taken != 1 {
        return Ok(None);
    }
    LAST_TAKEN.set(number);
    Ok(Some(granted))
}
