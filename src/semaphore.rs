//! The methods for semaphores on connections.

pub(crate) mod acquire;
pub(crate) mod backend;
pub(crate) mod definition;
pub(crate) mod fence;
#[cfg(feature = "r2d2")]
pub(crate) mod guard;
pub(crate) mod lease;
mod queue;
pub(crate) mod slot;

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::name::{self, NameKind};
use crate::semaphore::backend::{Expiry, HeldRow, Raised, SlotStore};
use crate::{Error, HeldSlot, LeaseOptions, LeaseState, Semaphore, Slot, Wait, transaction::depth};

/// Counting semaphores, as methods of a connection: at most so many holders in the whole cluster.
///
/// Implemented for Diesel's `PgConnection`, `MysqlConnection` and `SqliteConnection` (features
/// `postgres`, `mysql`, `sqlite`); an r2d2 `PooledConnection` has the methods through its connection.
///
/// # Two kinds of holding
///
/// - **A leased slot** ([`try_acquire_slot`](Self::try_acquire_slot)) is held for a time, outlives
///   transactions, connections and processes, can be refreshed, and carries a
///   [fence](Slot::fence). For work that takes longer than a transaction should. Whoever holds one beyond
///   its lease does not hold it any more, without noticing: see [`Slot::fence`].
/// - **A slot of a transaction** ([`try_with_slot`](Self::try_with_slot)) is held until the transaction
///   ends, also by the death of its holder. No lease, no clock, nothing to refresh. For work that is one
///   short transaction.
///
/// Both kinds of one semaphore count together.
///
/// # The clock
///
/// Leases begin and end by the database's clock, read when the statement runs; those of the nodes do not
/// matter. When it is set back, leases last longer by as much; when it is set forward, they end earlier,
/// and fences keep the holders apart. With several database servers (a fail-over) it is the clock of the
/// one that writes.
///
/// # What stands behind it
///
/// A row per slot in the table `diesel_locks_slots`. To acquire is to update a free row, and to skip rows that
/// others have locked, so that nobody waits for anybody. The idea of a lease with a token comes from Sage
/// Bionetworks' database-semaphore (2015), that of the row per slot from its later versions, that of
/// "accept you are not the special node" from Søren Kyndi-Wiuff (2014).
///
/// Rows are made when a semaphore is used for the first time, or by
/// [`register_semaphores`](Self::register_semaphores). In an open transaction a new semaphore is an error
/// ([`Error::NotRegistered`]): others would have to wait for its end.
///
/// # In an open transaction
///
/// What is acquired, refreshed or released in an open transaction takes effect at its commit, and not at
/// all when it is rolled back; meanwhile the slot is nobody else's, and nobody waits for it. On PostgreSQL
/// the transaction must be at READ COMMITTED to acquire; on MySQL and MariaDB the session must be, or the
/// transaction one of this crate's ([`Error::UnsuitableIsolation`] otherwise). On SQLite, which has one writer per
/// database, others who want to change anything wait until it ends.
///
/// A transaction does not stand in its own way: one that holds a slot can take the same slot again.
///
/// When there are more slots than permits, because the number was lowered, an acquirer locks the free slots
/// to count the others. On MySQL and MariaDB they stay locked until its transaction ends, so that others
/// may get `None` meanwhile: acquire outside of a transaction, or call [`purge_slots`](Self::purge_slots).
///
/// # SQLite
///
/// SQLite must be 3.42 or newer. As for [object locks](crate::ObjectLockExt), set `PRAGMA journal_mode = WAL`
/// and a `busy_timeout`: in the other journal modes readers and COMMIT get in each other's way, and the
/// methods fail with "database is locked".
///
/// While another session has locked a table of the semaphores as a whole (`LOCK TABLES`, an ALTER), the methods that
/// acquire a slot end in time, as if no slot were free. All other methods wait for that session: set `lock_timeout`
/// on PostgreSQL, or `lock_wait_timeout` on MySQL and MariaDB, in the session.
pub trait SemaphoreExt: SlotStore {
    /// Leases a slot; `None` when all are held. Does not wait for a slot.
    ///
    /// `None` means that no slot was free. A slot that another acquirer, a release or a purge has locked
    /// for a moment is asked for again, up to 10 times within about 30 ms; one that is locked for longer is
    /// held by a transaction. While another session adds or removes slots, and this semaphore's are not
    /// all there, it is waited for, for up to 2 s. A refusal writes nothing. Of the threads of one process, as many
    /// ask at once as there are permits; the others wait for their turn, for up to 10 ms.
    ///
    /// Outside of a transaction one round trip on PostgreSQL, granted or refused; on MySQL and MariaDB two
    /// when granted, one when refused. On SQLite a grant waits for other writers for up to 5 s, or
    /// `busy_timeout` if that is longer ([`Error::LockTimeout`]).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidPermits`], [`Error::InvalidLease`] before anything is sent;
    /// [`Error::NotRegistered`], [`Error::UnsuitableIsolation`] in an open transaction; [`Error::LockTimeout`] on SQLite;
    /// [`Error::ReadOnly`], [`Error::MissingTables`], [`Error::InsufficientPrivilege`], [`Error::PreparedStatementMismatch`]; other
    /// errors of the database.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// use std::time::Duration;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    ///
    /// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
    ///
    /// let ten_seconds = Duration::from_secs(10);
    /// let lease = LeaseOptions::new(ten_seconds).holder("worker-7");
    /// if let Some(mut slot) = conn.try_acquire_slot(&COLLATE, lease)? {
    ///     // a part of the work, shorter than the lease
    ///     conn.renew_slot(&mut slot, ten_seconds)?;
    ///     // another part
    ///     conn.release_slot(slot)?;
    /// }
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn try_acquire_slot(
        &mut self,
        semaphore: &Semaphore,
        lease: LeaseOptions,
    ) -> Result<Option<Slot>, Error> {
        let slot = acquire::lease_at_once(self, semaphore, &lease)?;
        tracing::debug!(
            semaphore = semaphore.name(),
            number = slot.as_ref().map(Slot::number),
            "slot asked for"
        );
        Ok(slot)
    }

    /// [`try_acquire_slot`](Self::try_acquire_slot), and waits while all slots are held.
    ///
    /// Those of one process who wait for one semaphore queue, first come, first served. The first asks again every
    /// 10 to 20 ms at first and every 50 to 100 ms in the end, the others sleep; a release in the process wakes the
    /// next, which asks at once. A third of the releases, and a twentieth of the time, at most, is left to other
    /// processes, so that their waiters come to their turn; between processes, who is first is chance.
    ///
    /// In an open transaction that one goes on waiting too: better wait outside. There it does not queue, but asks
    /// for itself: it may hold what the others wait for.
    ///
    /// # Errors
    ///
    /// [`Error::LockTimeout`] when none came free in time, [`Error::Unavailable`] with
    /// [`Wait::No`](crate::Wait::No), [`Error::InvalidWait`]; those of
    /// [`try_acquire_slot`](Self::try_acquire_slot).
    fn acquire_slot(
        &mut self,
        semaphore: &Semaphore,
        lease: LeaseOptions,
        wait: Wait,
    ) -> Result<Slot, Error> {
        acquire::lease_within(self, semaphore, &lease, wait)
    }

    /// Gives the slot a new lease of `duration` from now on, by the database's clock, and says whether the
    /// old one had ended.
    ///
    /// It works as long as nobody else got the slot, also after the lease has ended, and counts nobody: when
    /// the number of permits was lowered meanwhile, holders may then be more than it, up to the number before.
    /// A shorter lease than the one before ends earlier, but not before the time asked for with
    /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least).
    ///
    /// One round trip; two when the lease had ended. A slot whose lease has ended may be locked by a
    /// transaction that acquires it or holds it: then the answer waits for its end. In a transaction that is
    /// rolled back the old lease goes on, of which [`Slot::remaining`] does not know.
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`] when the slot was granted to another, released, or taken away; the other holder
    /// is not touched. [`Error::InvalidLease`]; [`Error::InvalidName`] for a slot
    /// [from parts](Slot::from_parts). After another error the old lease goes on.
    fn renew_slot(&mut self, slot: &mut Slot, duration: Duration) -> Result<LeaseState, Error> {
        let lease_us = lease::micros(duration)?;
        name::check(NameKind::Semaphore, &slot.semaphore)?;
        assert_open_if_in_transaction(self)?;
        for (expiry, state) in STATES {
            let begun = Instant::now();
            if Self::extend(self, slot, lease_us, expiry)? > 0 {
                slot.deadline = begun + duration.saturating_sub(Self::CLOCK_STEP);
                return Ok(state);
            }
        }
        Err(lost(slot))
    }

    /// Gives the slot back, and says whether its lease had ended.
    ///
    /// It works as long as nobody else got the slot. With [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least) the
    /// slot stays taken until then, though it is not ours any more.
    ///
    /// One round trip; two when the lease had ended, in which case it may wait as
    /// [`renew_slot`](Self::renew_slot) does. On PostgreSQL a release outside of a transaction does not
    /// wait for the disk (`synchronous_commit`, for this statement alone): if the server crashes in the next
    /// moment, the slot may be held until its lease ends.
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`] when the slot was granted to another, released before, or taken away; the other
    /// holder is not touched. [`Error::InvalidName`] for a slot [from parts](Slot::from_parts). After
    /// another error the slot is held until its lease ends; give `&slot` to be able to try again.
    fn release_slot(&mut self, slot: impl Borrow<Slot>) -> Result<LeaseState, Error> {
        let slot = slot.borrow();
        name::check(NameKind::Semaphore, &slot.semaphore)?;
        assert_open_if_in_transaction(self)?;
        for (expiry, state) in STATES {
            if Self::give_back(self, slot, expiry)? > 0 {
                tracing::debug!(
                    semaphore = slot.semaphore,
                    number = slot.number,
                    "slot released"
                );
                if depth::depth(self)? == 0 {
                    acquire::released(&slot.semaphore, 1, Some(slot.number));
                }
                return Ok(state);
            }
        }
        Err(lost(slot))
    }

    /// Takes all leased slots of the semaphore from their holders, and says how many were held: the
    /// operator's hammer.
    ///
    /// Holders notice when they refresh, release or [`pin_slot`](Self::pin_slot). Until then they go
    /// on, beside new holders: it is for holders that are known to be gone. Slots of transactions stay with
    /// them. It waits for open transactions that have refreshed or released a slot, and on MySQL and MariaDB
    /// for those that have ensured one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; errors of the database.
    fn force_release_all(&mut self, semaphore: impl AsRef<str>) -> Result<usize, Error> {
        let name = semaphore.as_ref();
        name::check(NameKind::Semaphore, name)?;
        assert_open_if_in_transaction(self)?;
        let released = Self::give_all_back(self, name)?;
        acquire::released(name, released, None);
        tracing::warn!(semaphore = name, released, "all slots released by force");
        Ok(released)
    }

    /// The leased slots that are held, in the order of their numbers, by the database's clock. Those that
    /// were released but are kept ([`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least)) have no token. Slots of
    /// transactions can't be seen.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; errors of the database.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// # use diesel_locks::prelude::*;
    /// # use std::time::Duration;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// # const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
    /// # let slot = conn.acquire_slot(&COLLATE, LeaseOptions::new(Duration::from_secs(9)), Wait::No)?;
    /// for slot in conn.held_slots(&COLLATE)? {
    ///     println!("{} {:?} until {}", slot.number, slot.holder, slot.expires_at);
    /// }
    /// # assert_eq!(conn.held_slots("collate-logs")?[0].token, Some(slot.token()));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn held_slots(&mut self, semaphore: impl AsRef<str>) -> Result<Vec<HeldSlot>, Error> {
        let name = semaphore.as_ref();
        name::check(NameKind::Semaphore, name)?;
        let rows = Self::held(self, name)?;
        Ok(rows.into_iter().map(|row| held_slot(name, row)).collect())
    }

    /// In a transaction: fails unless the slot is still ours, and keeps it from being granted to another
    /// until the transaction ends. What the transaction writes is then written by a holder, whatever
    /// happens to the lease meanwhile.
    ///
    /// A lease that has ended does not matter as long as nobody else got the slot. On PostgreSQL the slot
    /// can be refreshed and released by others of the same token meanwhile; on MySQL and MariaDB a refresh
    /// has to wait for the end of the transaction (a `SlotGuard`'s is left out, so keep
    /// the transaction shorter than the lease); on SQLite all writers have to wait. When the number of
    /// permits was lowered, a slot whose lease has ended does not count as held for being ensured.
    ///
    /// Roll back after [`Error::SlotLost`]: on MySQL and MariaDB the slot stays locked for others, its holder
    /// included, until the transaction ends.
    ///
    /// One round trip.
    ///
    /// # Errors
    ///
    /// [`Error::SlotLost`]; [`Error::NotInTransaction`] outside of a transaction;
    /// [`Error::InvalidName`] for a slot [from parts](Slot::from_parts); on SQLite
    /// [`Error::UnsuitableIsolation`] in a deferred transaction that has read before another wrote.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// # use diesel_locks::prelude::*;
    /// # use std::time::Duration;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// # const QUEUE: Semaphore = Semaphore::from_static("queue", 1);
    /// let slot = conn.acquire_slot(&QUEUE, LeaseOptions::new(Duration::from_secs(30)), Wait::No)?;
    /// // .. a while later, perhaps too late:
    /// conn.immediate_transaction(|conn| -> Result<(), diesel_locks::Error> {
    ///     conn.pin_slot(&slot)?;
    ///     Ok(()) // write
    /// })?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn pin_slot(&mut self, slot: &Slot) -> Result<(), Error> {
        if depth::depth(self)? == 0 {
            return Err(Error::NotInTransaction { method: "pin_slot" });
        }
        Self::assert_open(self)?;
        name::check(NameKind::Semaphore, &slot.semaphore)?;
        if Self::pin(self, slot)? {
            Ok(())
        } else {
            Err(lost(slot))
        }
    }

    /// Opens a transaction that holds a slot, runs `work`, and commits; `None`, and `work` not run, when no
    /// slot is free. The transaction's end frees the slot: COMMIT, ROLLBACK (also when `work` fails or
    /// panics), or a lost connection.
    ///
    /// Transactions at top level are at READ COMMITTED, on SQLite immediate. In an open transaction it
    /// opens a savepoint, and the slot is held until the outer transaction ends; a rollback to the savepoint
    /// frees it on PostgreSQL. On SQLite any other writer counts as a holder of all slots.
    ///
    /// When slots are held by transactions, the answer `None` takes about 30 ms: a lock on a row does not
    /// tell how long it will last.
    ///
    /// # Errors
    ///
    /// Those of `work`, and, made into the same type, those of
    /// [`try_acquire_slot`](Self::try_acquire_slot) and of COMMIT.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// # use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// const TIMER: Semaphore = Semaphore::from_static("timer", 1);
    ///
    /// match conn.try_with_slot(&TIMER, |_conn| QueryResult::Ok("done"))? {
    ///     Some(done) => println!("{done}"),
    ///     None => println!("accept you are not the special node"),
    /// }
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn try_with_slot<T, E, F>(&mut self, semaphore: &Semaphore, work: F) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        acquire::hold_at_once(self, semaphore, work)
    }

    /// [`try_with_slot`](Self::try_with_slot), and waits while no slot is free, as
    /// [`acquire_slot`](Self::acquire_slot) does.
    ///
    /// # Errors
    ///
    /// [`Error::LockTimeout`], [`Error::Unavailable`], [`Error::InvalidWait`]; those of
    /// [`try_with_slot`](Self::try_with_slot).
    fn with_slot<T, E, F>(&mut self, semaphore: &Semaphore, wait: Wait, work: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        acquire::hold_within(self, semaphore, wait, work)
    }

    /// Makes the slots of these semaphores, and notes that they are to stay when
    /// [`purge_slots`](Self::purge_slots) removes unused ones.
    ///
    /// Call it when the application starts, on every server, after [`migrate`](crate::migrate); any number
    /// may do so at the same moment: one after the other, waiting as long as the session's own limit on locks
    /// allows ([`Error::StatementTimeout`]; PostgreSQL has none by default). Needed only for semaphores that
    /// are first used inside an open transaction; for the others it saves the first user the time (about a
    /// second for 100,000 permits).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] and [`Error::InvalidPermits`] before anything is sent;
    /// [`Error::AlreadyInTransaction`] inside an open transaction; errors of the database.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// # use diesel_locks::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// const TIMER: Semaphore = Semaphore::from_static("timer", 1);
    /// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
    ///
    /// conn.register_semaphores([&TIMER, &COLLATE])?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn register_semaphores(
        &mut self,
        semaphores: impl IntoIterator<Item = impl Borrow<Semaphore>>,
    ) -> Result<(), Error> {
        let semaphores: Vec<_> = semaphores.into_iter().collect();
        for semaphore in &semaphores {
            semaphore.borrow().check()?;
        }
        outside(self, "register_semaphores", OTHERS_WAIT)?;
        for semaphore in &semaphores {
            Self::add_slots(self, semaphore.borrow(), true)?;
            Self::register(self, semaphore.borrow())?;
        }
        Ok(())
    }

    /// Removes slots that are free and were last granted more than `unused_for` ago, and says how many:
    /// those of semaphores that nobody uses any more, and those above a number of permits that was lowered.
    /// Slots up to the number of permits that was last registered stay.
    ///
    /// Others may acquire meanwhile, and wait for nothing longer than a short transaction; a slot that was
    /// removed is made again when it is needed. Fences do not start over. Slots are removed from the last
    /// one on: one that is held keeps those below it. Who else purges, or registers, at this moment is waited
    /// for as in [`register_semaphores`](Self::register_semaphores).
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyInTransaction`] inside an open transaction; [`Error::InvalidLease`] for more than
    /// [`LeaseOptions::LONGEST`](crate::LeaseOptions::LONGEST); errors of the database.
    fn purge_slots(&mut self, unused_for: Duration) -> Result<usize, Error> {
        outside(self, "purge_slots", OTHERS_WAIT)?;
        if unused_for > LeaseOptions::LONGEST {
            return Err(Error::InvalidLease {
                asked: unused_for,
                why: "no slot can be unused for longer than the longest lease",
            });
        }
        Self::purge_slots_older_than(self, lease::up_to_micros(unused_for))
    }

    /// Makes the fences of all grants from now on, of all semaphores, larger than all before by so much time of
    /// the database's clock, and returns a number that they are all larger than.
    ///
    /// For the operator, after a fail-over that may have lost grants: a replica that was promoted knows nothing
    /// of what its primary granted after the last transaction that it received, and its clock may be behind.
    /// Holders of lost grants may go on, with fences larger than those of the next holders. `by` is to be more
    /// than the two clocks may differ; if an earlier `raise_fences` may have been lost too, as much more. An hour
    /// does no harm: fences last until the year 2112. Call it before the applications go on.
    ///
    /// Slots that are held stay so, and keep their fences. Grants in transactions that are open may have smaller
    /// fences than the number returned. Who adds or removes slots at this moment is waited for as in
    /// [`register_semaphores`](Self::register_semaphores).
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyInTransaction`] inside an open transaction; [`Error::FencesTooLarge`]; errors of the database.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use diesel::prelude::*;
    /// # use diesel_locks::prelude::*;
    /// # use std::time::Duration;
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// # const QUEUE: Semaphore = Semaphore::from_static("queue", 1);
    /// let raised = conn.raise_fences(Duration::from_secs(3600))?;
    /// let slot = conn.acquire_slot(&QUEUE, LeaseOptions::new(Duration::from_secs(30)), Wait::No)?;
    /// assert!(slot.fence() > raised);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sqlite"))]
    /// # fn main() {}
    /// ```
    fn raise_fences(&mut self, by: Duration) -> Result<i64, Error> {
        outside(self, "raise_fences", OTHERS_WAIT)?;
        loop {
            match Self::raise_fence_floor(self, by)? {
                Raised::To(fence) => {
                    tracing::warn!(fence, "fences raised");
                    return Ok(fence);
                }
                Raised::TooFar => return Err(Error::FencesTooLarge { asked: by }),
                Raised::NoFloor => Self::make_fence_floor(self)?,
            }
        }
    }
}

impl<C: SlotStore> SemaphoreExt for C {}

const OTHERS_WAIT: &str = "others would have to wait for its end";

/// First the common case, then the other.
const STATES: [(Expiry, LeaseState); 2] = [
    (Expiry::Unexpired, LeaseState::Unexpired),
    (Expiry::Any, LeaseState::Expired),
];

fn lost(slot: &Slot) -> Error {
    Error::SlotLost {
        semaphore: slot.semaphore.clone(),
        number: slot.number,
    }
}

/// [`Error::TransactionAborted`] in a transaction that the server does not have any more.
fn assert_open_if_in_transaction<C: SlotStore>(conn: &mut C) -> Result<(), Error> {
    if depth::depth(conn)? > 0 {
        C::assert_open(conn)?;
    }
    Ok(())
}

fn outside<C: SlotStore>(
    conn: &mut C,
    method: &'static str,
    why: &'static str,
) -> Result<(), Error> {
    if depth::depth(conn)? == 0 {
        Ok(())
    } else {
        Err(Error::AlreadyInTransaction { method, why })
    }
}

fn held_slot(name: &str, row: HeldRow) -> HeldSlot {
    let (number, token, holder, fence, acquired_us, expires_us, left_us) = row;
    HeldSlot {
        semaphore: name.to_owned(),
        number: number.unsigned_abs(),
        holder,
        token: token.and_then(|token| Uuid::from_slice(&token).ok()),
        fence,
        acquired_at: time(acquired_us),
        expires_at: time(expires_us),
        remaining: Duration::from_micros(u64::try_from(left_us).unwrap_or(0)),
    }
}

/// Within chrono's range: leases are limited.
fn time(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::<Utc>::MAX_UTC)
}
