//! Slots of semaphores on MySQL and MariaDB: a look that locks nothing, and then an update of one row by
//! its key, which skips the row when another has it locked.
//!
//! Every statement that changes a slot names its row by the whole key, so that InnoDB locks that row and
//! no gap beside it, at any isolation level, and nobody waits for two rows.

use diesel::connection::{AnsiTransactionManager, Connection, TransactionManager};
use diesel::mysql::MysqlConnection;
use diesel::prelude::*;

use super::run::{Failure, run};
use super::slot_statements as sql;
use super::{isolation_of, reads_what_is_committed, scope, statements};
use crate::engine::Class;
use crate::engine::slot_store::{
    Attempt, Expiry, Granted, HeldRow, Place, Renewal, Renewed, SlotStore, Wanted, judge,
    open_among,
};
use crate::{Error, Semaphore, Slot, fence, transaction};

/// Slots that one transaction adds or removes.
const AT_ONCE: i32 = 1000;

/// Slots that are gone for without looking at locks.
const TRIES: u32 = 4;

impl SlotStore for MysqlConnection {
    fn try_lease(&mut self, wanted: &Wanted<'_>, place: &Place) -> Result<Attempt, Error> {
        if place.in_transaction {
            assert_fresh(self, wanted.semaphore)?;
        }
        let mut tried = Vec::new();
        for _ in 0..TRIES {
            let seen = look(self, wanted.semaphore, place)?;
            let untried = seen.free.iter().find(|(number, _)| !tried.contains(number));
            let Some(&(number, last)) = untried else {
                if seen.free.is_empty() {
                    return Ok(seen.judged(wanted.semaphore, place));
                }
                break;
            };
            if let Some(granted) = take(self, wanted, &seen, number, last)? {
                return Ok(Attempt::Granted(granted));
            }
            // Taken or locked meanwhile.
            tried.push(number);
        }
        // Many are locked, or many want one. Which free slot is not locked?
        let seen = look(self, wanted.semaphore, place)?;
        if let Some(locked) = lock_one(self, wanted.semaphore, place, &seen)?
            && let Some(granted) = take(self, wanted, &seen, locked.0, locked.1)?
        {
            return Ok(Attempt::Granted(granted));
        }
        Ok(seen.nothing_to_be_had(wanted.semaphore, place))
    }

    fn begin_to_hold(&mut self) -> Result<bool, Error> {
        AnsiTransactionManager::begin_transaction_sql(self, statements::BEGIN)?;
        Ok(true)
    }

    fn try_hold(&mut self, semaphore: &Semaphore, place: &Place) -> Result<Attempt, Error> {
        if place.in_transaction {
            assert_fresh(self, semaphore)?;
        }
        let seen = look(self, semaphore, place)?;
        if seen.free.is_empty() {
            return Ok(seen.judged(semaphore, place));
        }
        let Some((number, fence, leased)) = lock_one(self, semaphore, place, &seen)? else {
            return Ok(seen.nothing_to_be_had(semaphore, place));
        };
        if leased > 0 {
            // Whoever had a lease on it that has ended is not to come back: somebody else held the slot.
            self.execute_returning_count(&sql::clear_token(semaphore.name().as_bytes(), number))?;
        }
        Ok(Attempt::Granted(Granted { number, fence }))
    }

    fn open_slots(&mut self, semaphore: &Semaphore, _: bool) -> Result<Vec<i32>, Error> {
        let name = semaphore.name().as_bytes();
        let slots: i64 = sql::count(name).get_result(self)?;
        let free: Vec<i32> = sql::FreeAndUnlocked { name }.load(self)?;
        Ok(open_among(free, slots, semaphore.permits_i32()))
    }

    fn add_slots(&mut self, semaphore: &Semaphore) -> Result<(), Error> {
        let (name, permits) = (semaphore.name().as_bytes(), semaphore.permits_i32());
        loop {
            let complete = at_read_committed(self, |conn| {
                let fence: i64 = sql::lock_fence_floor().get_result(conn)?;
                let last: Option<i32> = sql::last_number(name).get_result(conn).optional()?;
                let first = last.unwrap_or(0) + 1;
                let upto = permits.min(first + AT_ONCE - 1);
                if first <= upto {
                    conn.execute_returning_count(&sql::insert(name, first..=upto, fence))?;
                }
                Ok(upto >= permits || first > upto)
            })?;
            if complete {
                return Ok(());
            }
        }
    }

    fn register(&mut self, semaphore: &Semaphore) -> Result<(), Error> {
        let name = semaphore.name().as_bytes();
        at_read_committed(self, |conn| {
            // Those who register at the same time, one after the other.
            let _: i64 = sql::lock_fence_floor().get_result(conn)?;
            conn.execute_returning_count(&sql::register(name, semaphore.permits_i32()))
        })?;
        Ok(())
    }

    fn extend(&mut self, slot: &Slot, lease_us: i64, state: Expiry) -> Result<usize, Error> {
        counted(self, |conn| match state {
            Expiry::Unexpired => sql::ExtendUnexpired {
                key: key(slot),
                lease_us,
            }
            .execute(conn),
            Expiry::Any => sql::Extend {
                key: key(slot),
                lease_us,
            }
            .execute(conn),
        })
    }

    fn give_back(&mut self, slot: &Slot, state: Expiry) -> Result<usize, Error> {
        counted(self, |conn| match state {
            Expiry::Unexpired => sql::GiveBackUnexpired { key: key(slot) }.execute(conn),
            Expiry::Any => sql::GiveBack { key: key(slot) }.execute(conn),
        })
    }

    fn pin(&mut self, slot: &Slot) -> Result<bool, Error> {
        let sql::Key {
            name,
            number,
            token,
        } = key(slot);
        let pinned = run(self, None, |conn| {
            let pin = sql::Pin {
                name,
                number,
                token,
            };
            pin.get_result::<i32>(conn).optional()
        });
        Ok(pinned.map_err(Failure::into_error)?.is_some())
    }

    fn held(&mut self, name: &str) -> Result<Vec<HeldRow>, Error> {
        type Row = (i32, Option<Vec<u8>>, Option<Vec<u8>>, i64, i64, i64, i64);
        let rows: Vec<Row> = sql::held(name.as_bytes()).load(self)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(rows
            .into_iter()
            .map(|row| (row.0, row.1, row.2.map(text), row.3, row.4, row.5, row.6))
            .collect())
    }

    fn give_all_back(&mut self, name: &str) -> Result<usize, Error> {
        let name = name.as_bytes();
        let taken: Vec<(i32, bool)> = sql::taken_numbers(name).load(self)?;
        let mut held = 0;
        for (number, unexpired) in taken {
            let freed = counted(self, |conn| {
                conn.execute_returning_count(&sql::take_away(name, number))
            })?;
            held += if unexpired { freed } else { 0 };
        }
        Ok(held)
    }

    fn purge_slots_older_than(&mut self, age_us: i64) -> Result<usize, Error> {
        let semaphores: Vec<(Vec<u8>, Option<i32>)> = sql::semaphores().load(self)?;
        let mut purged = 0;
        for (name, permits) in semaphores {
            loop {
                let removed = at_read_committed(self, |conn| {
                    remove_last(conn, &name, age_us, permits.unwrap_or(0))
                })?;
                purged += removed;
                if removed == 0 {
                    break;
                }
            }
        }
        Ok(purged)
    }

    fn give_back_many(&mut self, leases: &[Renewal]) -> Result<Vec<Vec<u8>>, Error> {
        let asked = Renewal::as_json(leases);
        let freed = counted(self, |conn| {
            sql::GiveBackMany { asked: &asked }.execute(conn)
        })?;
        if freed == leases.len() {
            return Ok(Vec::new());
        }
        let rows: Vec<(Option<Vec<u8>>, i64)> = sql::Mine { asked: &asked }.load(self)?;
        Ok(rows.into_iter().filter_map(|(token, _)| token).collect())
    }

    fn renew(&mut self, leases: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let asked = Renewal::as_json(leases);
        let renewed = counted(self, |conn| sql::Renew { asked: &asked }.execute(conn))?;
        if renewed == leases.len() {
            return Ok(leases
                .iter()
                .map(|lease| Renewed {
                    token: lease.token.to_vec(),
                    left_us: lease.lease_us,
                })
                .collect());
        }
        // Some are lost, or were locked by another session: which?
        let rows: Vec<(Option<Vec<u8>>, i64)> = sql::Mine { asked: &asked }.load(self)?;
        Ok(rows
            .into_iter()
            .filter_map(|(token, left_us)| {
                Some(Renewed {
                    token: token?,
                    left_us,
                })
            })
            .collect())
    }
}

/// What a look saw.
struct Seen {
    slots: Option<i32>,
    now_us: i64,
    free: Vec<(i32, i64)>,
    mariadb: bool,
}

impl Seen {
    fn judged(&self, semaphore: &Semaphore, place: &Place) -> Attempt {
        judge(self.slots, semaphore.permits_i32(), false, place)
    }

    /// The judgement when there were free slots, all locked.
    fn nothing_to_be_had(&self, semaphore: &Semaphore, place: &Place) -> Attempt {
        judge(self.slots, semaphore.permits_i32(), true, place)
    }
}

/// Free slots, as far as one can tell without locking: one of the first few, so that those who look at the
/// same time do not all go for the same.
fn look(conn: &mut MysqlConnection, semaphore: &Semaphore, place: &Place) -> Result<Seen, Error> {
    let name = semaphore.name().as_bytes();
    let rows: Vec<(sql::LookRow, i32)> = match &place.open {
        None => sql::Look { name }.load(conn)?,
        Some(open) => {
            let rows: Vec<sql::LookRow> = sql::look_among(name, open).load(conn)?;
            rows.into_iter().map(|row| (row, 0)).collect()
        }
    };
    let mut seen = Seen {
        slots: None,
        now_us: 0,
        free: Vec::new(),
        mariadb: false,
    };
    for ((slots, now_us, number, fence), mariadb) in rows {
        seen.mariadb = mariadb == 1;
        seen.slots = seen.slots.or(slots);
        seen.now_us = now_us;
        seen.free.extend(number.zip(fence));
    }
    if place.open.is_none() && seen.slots > Some(semaphore.permits_i32()) {
        seen.free.clear();
    }
    let chosen = crate::pause::random_below(seen.free.len());
    if chosen > 0 {
        seen.free.swap(0, chosen);
    }
    Ok(seen)
}

/// Locks a free slot that nobody has locked: for the statement, or until the end of the transaction that is
/// open. First the one that the look chose; then any.
fn lock_one(
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
        let locked = sql::LockFree { name, number };
        let locked = run(conn, None, |conn| locked.get_result(conn).optional());
        if let Some(locked) = locked.map_err(Failure::into_error)? {
            return Ok(Some(locked));
        }
    }
    if place.open.is_some() {
        return Ok(None);
    }
    let first = sql::FirstUnlocked { name, permits };
    run(conn, None, |conn| first.get_result(conn).optional()).map_err(Failure::into_error)
}

/// Takes the slot if it is as it was seen; `None` when it is not, or is locked.
fn take(
    conn: &mut MysqlConnection,
    wanted: &Wanted<'_>,
    seen: &Seen,
    number: i32,
    last: i64,
) -> Result<Option<Granted>, Error> {
    let granted = Granted {
        number,
        fence: fence::next(last, seen.now_us, number),
    };
    let holder = wanted.holder.map(str::as_bytes);
    let taken = if seen.mariadb && transaction::depth(conn)? == 0 {
        let take = sql::TakeOrFail {
            wanted,
            holder,
            granted,
            last,
        };
        unless_locked(conn, |conn| conn.execute_returning_count(&take))?
    } else {
        let take = sql::Take {
            wanted,
            holder,
            granted,
            last,
        };
        counted(conn, |conn| conn.execute_returning_count(&take))?
    };
    Ok((taken == 1).then_some(granted))
}

/// Like [`counted`], for a statement that is its own transaction and fails instead of waiting: then it
/// has changed nothing.
fn unless_locked(
    conn: &mut MysqlConnection,
    statement: impl Fn(&mut MysqlConnection) -> QueryResult<usize>,
) -> Result<usize, Error> {
    loop {
        match run(conn, None, &statement) {
            Ok(rows) => return Ok(rows),
            Err(failure) if failure.class == Class::LockTimeout => return Ok(0),
            Err(failure) => match failure.into_error() {
                Error::Deadlock { .. } => {}
                error => return Err(error),
            },
        }
    }
}

/// In a transaction that reads from an old snapshot, a look would show old slots.
fn assert_fresh(conn: &mut MysqlConnection, semaphore: &Semaphore) -> Result<(), Error> {
    if scope::entered(conn) {
        return Ok(());
    }
    let level: String = statements::Isolation {}.get_result(conn)?;
    if reads_what_is_committed(&level) {
        return Ok(());
    }
    Err(Error::Isolation {
        what: semaphore.to_string(),
        why: isolation_of(&level),
    })
}

/// The last slots, as far as they are free and old and nobody has them locked: their numbers stay
/// without gaps.
fn remove_last(
    conn: &mut MysqlConnection,
    name: &[u8],
    age_us: i64,
    permits: i32,
) -> QueryResult<usize> {
    let floor: i64 = sql::lock_fence_floor().get_result(conn)?;
    let last: Option<i32> = sql::last_number(name).get_result(conn).optional()?;
    let stays: Option<i32> = sql::last_to_stay(name, age_us, permits)
        .get_result(conn)
        .optional()?;
    let rows: Vec<(i32, i64)> = sql::LockFreeAbove {
        name,
        above: stays.unwrap_or(0),
        limit: AT_ONCE.into(),
    }
    .load(conn)?;
    let mut above = last.unwrap_or(0);
    let mut fence = floor;
    for (number, last_fence) in rows {
        if number != above {
            break;
        }
        above -= 1;
        fence = fence.max(last_fence);
    }
    if above == last.unwrap_or(0) {
        return Ok(0);
    }
    if fence > floor {
        conn.execute_returning_count(&sql::set_fence_floor(fence))?;
    }
    conn.execute_returning_count(&sql::remove_above(name, above))
}

/// A transaction at READ COMMITTED, begun again when InnoDB broke a deadlock with it: it locks no gaps, and
/// sees what was committed before each of its statements.
fn at_read_committed<T>(
    conn: &mut MysqlConnection,
    work: impl Fn(&mut MysqlConnection) -> QueryResult<T>,
) -> Result<T, Error> {
    loop {
        AnsiTransactionManager::begin_transaction_sql(conn, statements::BEGIN)?;
        match run(conn, None, &work) {
            Ok(value) => {
                AnsiTransactionManager::commit_transaction(conn)?;
                return Ok(value);
            }
            Err(failure) => {
                AnsiTransactionManager::rollback_transaction(conn)?;
                match failure.into_error() {
                    Error::Deadlock { .. } => {}
                    error => return Err(error),
                }
            }
        }
    }
}

/// A statement that is begun again when InnoDB broke a deadlock with it and it was its own transaction.
fn counted(
    conn: &mut MysqlConnection,
    statement: impl Fn(&mut MysqlConnection) -> QueryResult<usize>,
) -> Result<usize, Error> {
    let alone = transaction::depth(conn)? == 0;
    loop {
        match run(conn, None, &statement) {
            Ok(rows) => return Ok(rows),
            Err(failure) => match failure.into_error() {
                Error::Deadlock { .. } if alone => {}
                error => return Err(error),
            },
        }
    }
}

fn key(slot: &Slot) -> sql::Key<'_> {
    sql::Key {
        name: slot.semaphore.as_bytes(),
        number: slot.number_i32(),
        token: slot.token.as_bytes(),
    }
}
