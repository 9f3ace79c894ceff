//! The trait `SemaphoreExt`: the methods for semaphores on a connection.

pub(crate) mod acquire;
pub(crate) mod backend;
pub(crate) mod definition;
pub(crate) mod fence;
#[cfg(feature = "r2d2")]
pub(crate) mod guard;
pub(crate) mod lease;
#[cfg(feature = "r2d2")]
pub(crate) mod renewer;
pub(crate) mod slot;

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::name::{self, NameKind};
use crate::semaphore::backend::{Expiry, HeldRow, RaiseOutcome, SemaphoreBackend};
use crate::{Error, HeldSlot, LeaseOptions, LeaseState, Semaphore, Slot, Wait, transaction::depth};

/// Counting semaphores as methods of a connection.
///
/// A semaphore limits the number of concurrent holders across all servers that use the database.
///
/// The trait is implemented for Diesel's `PgConnection`, `MysqlConnection` and `SqliteConnection` (features
/// `postgres`, `mysql`, `sqlite`). An r2d2 `PooledConnection` has the methods through its connection.
///
/// # Two ways to hold a slot
///
/// - **A leased slot** ([`try_acquire_slot`](Self::try_acquire_slot)) is held for a limited time. It outlives
///   transactions, connections and processes, can be renewed, and carries a [fencing token](Slot::fence). Use it for
///   work that is too long for one transaction. A holder is not notified when its lease expires: see
///   [`Slot::fence`].
/// - **A transaction's slot** ([`try_with_slot`](Self::try_with_slot)) is held until the transaction ends, also when
///   its process dies. It has no lease, does not depend on a clock, and needs no renewal. Use it for work that is one
///   short transaction.
///
/// Both kinds count against the same number of permits.
///
/// # The error type of a closure
///
/// A closure may return any error that implements `From<Error>` for this crate's [`Error`]; if `?` follows the call, name
/// the type at the closure: `|conn| -> diesel_locks::Result<_> { .. }` (see [`Result`](crate::Result)).
///
/// # Clock
///
/// Leases begin and expire by the database's clock, read when the statement runs. The clocks of the application's
/// servers do not matter. When the database's clock is set back, leases last longer by the same time. When it is set
/// forward, leases expire earlier, and fencing tokens still order the holders. After a fail-over, the clock of the new
/// primary counts.
///
/// # Tables
///
/// Each slot is a row of the table `diesel_locks_slots`. A slot is acquired by an update of a free row that skips
/// locked rows, so that acquirers do not wait for each other. (The lease with a token follows Sage Bionetworks'
/// database-semaphore of 2015, the row per slot its later versions, and "accept you are not the special node" Søren
/// Kyndi-Wiuff, 2014.)
///
/// The rows are created when a semaphore is first used, or by [`register_semaphores`](Self::register_semaphores).
/// Using a new semaphore in an open transaction fails with [`Error::NotRegistered`], because other sessions would have
/// to wait until that transaction ends.
///
/// # In an open transaction
///
/// A slot that is acquired, renewed or released in an open transaction changes when the transaction commits, and does
/// not change when it rolls back. Until then no other session can acquire it, and none waits for it.
///
/// Acquisition is re-entrant within a transaction: a transaction that holds a slot can acquire the same slot again.
///
/// To acquire a slot, a transaction on PostgreSQL must be at READ COMMITTED. On MySQL and MariaDB the session must be
/// at READ COMMITTED or below, or the transaction must be one of this crate's at READ COMMITTED. Otherwise the call
/// fails with [`Error::UnsuitableIsolation`]. On SQLite, which allows one writer per database, other writers wait until
/// the transaction ends.
///
/// After the number of permits was lowered, a semaphore has more slots than permits until
/// [`purge_slots`](Self::purge_slots) removes them. An acquisition then locks the free slots to count the held ones. On
/// MySQL and MariaDB these locks last until the acquiring transaction ends, and other sessions may find no free slot
/// meanwhile. Acquire outside a transaction, or call `purge_slots`.
///
/// # SQLite
///
/// SQLite 3.42 or newer is required. As for [object locks](crate::ObjectLockExt), set `PRAGMA journal_mode = WAL` and a
/// `busy_timeout`. In the other journal modes readers block COMMIT, and the methods fail with "database is locked".
///
/// # Locked tables
///
/// While another session holds a lock on one of this crate's tables as a whole (`LOCK TABLES`, `ALTER TABLE`), the
/// methods that acquire a slot return within their time limit, as if no slot were free. All other methods wait for that
/// session. To limit this wait, set `lock_timeout` on PostgreSQL, or `lock_wait_timeout` on MySQL and MariaDB, in the
/// session.
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
pub trait SemaphoreExt: SemaphoreBackend {
    /// Leases a slot without waiting. Returns `None` when all slots are held.
    ///
    /// A free slot may be locked for a moment by another session that acquires, releases or purges it. The method retries
    /// up to 10 times within about 30 ms; a slot that stays locked longer counts as held by a transaction. When slots of
    /// this semaphore are missing and another session is adding or removing slots, the method waits for that session for up
    /// to 2 s. It writes nothing when it returns `None`.
    ///
    /// Within one process, at most as many threads as there are permits query the database at the same time. Further
    /// threads wait for up to 10 ms.
    ///
    /// Outside a transaction the method takes one round trip on PostgreSQL. On MySQL and MariaDB it takes two when a slot is
    /// granted and one when none is free. On SQLite a grant waits for other writers, for up to 5 s or `busy_timeout`,
    /// whichever is longer, and then fails with [`Error::LockTimeout`].
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidName`], [`Error::InvalidPermits`], [`Error::InvalidLease`], before anything is sent to the
    ///   database.
    /// - [`Error::NotRegistered`], [`Error::UnsuitableIsolation`] in an open transaction.
    /// - [`Error::LockTimeout`] on SQLite.
    /// - [`Error::ReadOnly`], [`Error::MissingTables`], [`Error::InsufficientPrivilege`],
    ///   [`Error::PreparedStatementMismatch`], and other errors of the database.
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
        let slot = acquire::try_acquire(self, semaphore, &lease)?;
        tracing::debug!(
            semaphore = semaphore.name(),
            number = slot.as_ref().map(Slot::number),
            "slot asked for"
        );
        Ok(slot)
    }

    /// Leases a slot like [`try_acquire_slot`](Self::try_acquire_slot), and waits while all slots are held.
    ///
    /// The waiters of one process form one queue per semaphore, first come, first served. Only the first of them polls the
    /// database: every 10 to 20 ms at the beginning, every 50 to 100 ms later. When a slot is released in the same process,
    /// the next waiter is woken and queries at once. At most a third of these releases, and at most a twentieth of the time,
    /// is left to waiters in other processes. The order between processes is not defined.
    ///
    /// In an open transaction the method does not join the queue, because the transaction may hold what the other waiters
    /// need; it polls on its own. The transaction stays open while it waits: if possible, acquire outside a transaction.
    ///
    /// # Errors
    ///
    /// - [`Error::LockTimeout`] when no slot was acquired within [`Wait::AtMost`].
    /// - [`Error::Unavailable`] when all slots are held, with [`Wait::No`].
    /// - [`Error::InvalidWait`].
    /// - The errors of [`try_acquire_slot`](Self::try_acquire_slot).
    fn acquire_slot(
        &mut self,
        semaphore: &Semaphore,
        lease: LeaseOptions,
        wait: Wait,
    ) -> Result<Slot, Error> {
        acquire::acquire_timeout(self, semaphore, &lease, wait)
    }

    /// Renews the lease: it now expires `duration` after this call, by the database's clock. Returns whether the previous
    /// lease had expired.
    ///
    /// Renewal succeeds as long as no other holder was granted the slot, even after expiry. It does not check the number of
    /// permits: if that number was lowered meanwhile, the holders may exceed it, up to the previous number.
    ///
    /// The new lease may expire earlier than the previous one, but not before the time requested with
    /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least).
    ///
    /// The method takes one round trip, and two when the lease had expired. An expired slot may be locked by a transaction
    /// that acquires or holds it; the method then waits until that transaction ends. When the renewal is rolled back with
    /// its transaction, the previous lease applies, but [`Slot::remaining`] shows the renewed one.
    ///
    /// # Errors
    ///
    /// - [`Error::SlotLost`] when the slot was granted to another holder, released, or released by force. The other holder
    ///   is not affected.
    /// - [`Error::InvalidLease`].
    /// - [`Error::InvalidName`], for a slot made by [`Slot::from_parts`].
    /// - After any other error the previous lease stays valid.
    fn renew_slot(&mut self, slot: &mut Slot, duration: Duration) -> Result<LeaseState, Error> {
        let lease_us = lease::micros(duration)?;
        name::validate(NameKind::Semaphore, &slot.semaphore)?;
        assert_open_if_in_transaction(self)?;
        for (expiry, state) in STATES {
            let started = Instant::now();
            if Self::renew_one(self, slot, lease_us, expiry)? > 0 {
                slot.deadline = started + duration.saturating_sub(Self::CLOCK_RESOLUTION);
                return Ok(state);
            }
        }
        Err(lost(slot))
    }

    /// Releases the slot. Returns whether its lease had expired.
    ///
    /// Release succeeds as long as no other holder was granted the slot. With
    /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least) the slot stays unavailable until that time has
    /// passed, but no longer belongs to this token.
    ///
    /// The method takes one round trip, and two when the lease had expired; it may then wait as
    /// [`renew_slot`](Self::renew_slot) does. On PostgreSQL a release outside a transaction does not wait for the disk
    /// (`synchronous_commit` is off for this statement). If the server crashes immediately afterwards, the slot may stay
    /// held until its lease expires.
    ///
    /// # Errors
    ///
    /// - [`Error::SlotLost`] when the slot was granted to another holder, already released, or released by force. The other
    ///   holder is not affected.
    /// - [`Error::InvalidName`], for a slot made by [`Slot::from_parts`].
    /// - After any other error the slot stays held until its lease expires. Pass `&slot` to be able to retry.
    fn release_slot(&mut self, slot: impl Borrow<Slot>) -> Result<LeaseState, Error> {
        let slot = slot.borrow();
        name::validate(NameKind::Semaphore, &slot.semaphore)?;
        assert_open_if_in_transaction(self)?;
        for (expiry, state) in STATES {
            if Self::release(self, slot, expiry)? > 0 {
                tracing::debug!(
                    semaphore = slot.semaphore,
                    number = slot.number,
                    "slot released"
                );
                if depth::depth(self)? == 0 {
                    acquire::notify_released(&slot.semaphore, 1, Some(slot.number));
                }
                return Ok(state);
            }
        }
        Err(lost(slot))
    }

    /// Releases all leased slots of the semaphore, whoever holds them. Returns how many were held. Intended for
    /// administrative recovery.
    ///
    /// Holders detect the loss at their next renewal, release or [`pin_slot`](Self::pin_slot). Until then they continue,
    /// together with new holders, so call it only when the holders are known to have stopped. Slots held by transactions
    /// are not affected.
    ///
    /// The method waits for open transactions that have renewed or released a slot, and on MySQL and MariaDB also for those
    /// that have pinned one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; errors of the database.
    fn force_release_all(&mut self, semaphore: impl AsRef<str>) -> Result<usize, Error> {
        let name = semaphore.as_ref();
        name::validate(NameKind::Semaphore, name)?;
        assert_open_if_in_transaction(self)?;
        let released = Self::release_all(self, name)?;
        acquire::notify_released(name, released, None);
        tracing::warn!(semaphore = name, released, "all slots released by force");
        Ok(released)
    }

    /// Lists the leased slots that are held by the database's clock, ordered by number.
    ///
    /// Slots that were released but are still unavailable because of
    /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least) are included, without a token. Slots held by
    /// transactions are not visible.
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
        name::validate(NameKind::Semaphore, name)?;
        let rows = Self::list_held(self, name)?;
        Ok(rows.into_iter().map(|row| held_slot(name, row)).collect())
    }

    /// In an open transaction, checks that the slot still belongs to this token, and prevents other holders from being
    /// granted it until the transaction ends. What the transaction writes is then written by the holder, even if the lease
    /// expires meanwhile.
    ///
    /// An expired lease can be pinned as long as no other holder was granted the slot. If the number of permits was lowered,
    /// a pinned slot whose lease has expired does not count as held.
    ///
    /// Renewal and release while the slot is pinned:
    ///
    /// - PostgreSQL: other sessions that have the token can renew and release the slot.
    /// - MySQL, MariaDB: a renewal waits until the transaction ends. A `SlotGuard` skips such renewals, so keep the
    ///   transaction shorter than the lease.
    /// - SQLite: all writers wait until the transaction ends.
    ///
    /// After [`Error::SlotLost`] roll back the transaction: on MySQL and MariaDB the slot stays locked until then, also for
    /// its holder.
    ///
    /// The method takes one round trip.
    ///
    /// # Errors
    ///
    /// - [`Error::SlotLost`].
    /// - [`Error::NotInTransaction`] outside a transaction.
    /// - [`Error::InvalidName`], for a slot made by [`Slot::from_parts`].
    /// - [`Error::UnsuitableIsolation`] on SQLite, in a deferred transaction that has read before another connection wrote.
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
        name::validate(NameKind::Semaphore, &slot.semaphore)?;
        if Self::pin(self, slot)? {
            Ok(())
        } else {
            Err(lost(slot))
        }
    }

    /// Begins a transaction that holds a slot, runs `work` in it, and commits. Returns `None`, without running `work`, when
    /// no slot is free.
    ///
    /// The slot is released when the transaction ends: by COMMIT, by ROLLBACK (also when `work` fails or panics), or when
    /// the connection is lost.
    ///
    /// Top-level transactions run at READ COMMITTED, on SQLite as immediate transactions. In an open transaction the method
    /// begins a savepoint, and the slot is held until the outer transaction ends; on PostgreSQL a rollback to the savepoint
    /// also releases it. On SQLite any other writer counts as a holder of all slots.
    ///
    /// When slots are held by transactions, it takes about 30 ms to return `None`: the lock on a row does not show how long
    /// it will last.
    ///
    /// # Errors
    ///
    /// The errors of `work`, and, converted into the same type, those of [`try_acquire_slot`](Self::try_acquire_slot) and
    /// of COMMIT.
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
        acquire::try_with_slot(self, semaphore, work)
    }

    /// Runs `work` in a transaction that holds a slot, like [`try_with_slot`](Self::try_with_slot), and waits while no slot
    /// is free, like [`acquire_slot`](Self::acquire_slot).
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
        acquire::with_slot(self, semaphore, wait, work)
    }

    /// Creates the slots of these semaphores, and excludes them from [`purge_slots`](Self::purge_slots).
    ///
    /// Call it when the application starts, on every server, after [`migrate`](crate::migrate). It is required only for
    /// semaphores that are first used in an open transaction. For others it saves the first acquirer the time to create the
    /// rows, about a second for 100,000 permits.
    ///
    /// Concurrent calls run one after the other. Each waits as long as the session's lock time-out allows
    /// ([`Error::StatementTimeout`]); PostgreSQL has no lock time-out by default.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidName`], [`Error::InvalidPermits`], before anything is sent to the database.
    /// - [`Error::AlreadyInTransaction`] in an open transaction.
    /// - Errors of the database.
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
            semaphore.borrow().validate()?;
        }
        outside(self, "register_semaphores", OTHERS_WAIT)?;
        for semaphore in &semaphores {
            Self::create_slots(self, semaphore.borrow(), true)?;
            Self::register(self, semaphore.borrow())?;
        }
        Ok(())
    }

    /// Removes slots that are free and were last granted more than `unused_for` ago. Returns how many were removed.
    ///
    /// These are the slots of semaphores that are no longer used, and those above a lowered number of permits. Slots up to
    /// the last registered number of permits are not removed.
    ///
    /// Other sessions can acquire slots meanwhile; they wait at most for a short transaction. A removed slot is created
    /// again when it is needed, and its fencing tokens continue to increase. Slots are removed from the highest number down,
    /// so that a held slot keeps those below it. Concurrent purges and registrations are waited for as in
    /// [`register_semaphores`](Self::register_semaphores).
    ///
    /// # Errors
    ///
    /// - [`Error::AlreadyInTransaction`] in an open transaction.
    /// - [`Error::InvalidLease`] for more than [`LeaseOptions::LONGEST`](crate::LeaseOptions::LONGEST).
    /// - Errors of the database.
    fn purge_slots(&mut self, unused_for: Duration) -> Result<usize, Error> {
        outside(self, "purge_slots", OTHERS_WAIT)?;
        if unused_for > LeaseOptions::LONGEST {
            return Err(Error::InvalidLease {
                requested: unused_for,
                reason: "no slot can be unused for longer than the longest lease",
            });
        }
        Self::purge_unused_slots(self, lease::up_to_micros(unused_for))
    }

    /// Raises the fencing tokens of all future grants, of all semaphores, above all existing ones by at least `by` of the
    /// database's clock. Returns a number that all future tokens exceed.
    ///
    /// Call it after a fail-over that may have lost grants, before the applications continue. A promoted replica does not
    /// know what its primary granted after the last transaction that it received, and its clock may be behind. Holders of
    /// lost grants may continue with tokens larger than those of the next holders. Choose `by` larger than the possible
    /// difference of the two clocks, plus that of any earlier `raise_fences` that may have been lost. An hour does no harm:
    /// tokens last until the year 2112.
    ///
    /// Held slots stay held, and keep their tokens. Grants in transactions that are open during the call may get smaller
    /// tokens than the number returned. Sessions that add or remove slots are waited for as in
    /// [`register_semaphores`](Self::register_semaphores).
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyInTransaction`] in an open transaction; [`Error::FencesTooLarge`]; errors of the database.
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
                RaiseOutcome::RaisedTo(fence) => {
                    tracing::warn!(fence, "fences raised");
                    return Ok(fence);
                }
                RaiseOutcome::TooLarge => return Err(Error::FencesTooLarge { requested: by }),
                RaiseOutcome::NoFenceFloor => Self::create_fence_floor(self)?,
            }
        }
    }
}

#[diagnostic::do_not_recommend]
impl<C: SemaphoreBackend> SemaphoreExt for C {}

const OTHERS_WAIT: &str = "others would have to wait for its end";

/// The common case comes first.
const STATES: [(Expiry, LeaseState); 2] = [
    (Expiry::Unexpired, LeaseState::Unexpired),
    (Expiry::IncludeExpired, LeaseState::Expired),
];

fn lost(slot: &Slot) -> Error {
    Error::SlotLost {
        semaphore: slot.semaphore.clone(),
        number: slot.number,
    }
}

/// Fails with [`Error::TransactionAborted`] in a transaction that the server has already ended.
fn assert_open_if_in_transaction<C: SemaphoreBackend>(conn: &mut C) -> Result<(), Error> {
    if depth::depth(conn)? > 0 {
        C::assert_open(conn)?;
    }
    Ok(())
}

fn outside<C: SemaphoreBackend>(
    conn: &mut C,
    method: &'static str,
    reason: &'static str,
) -> Result<(), Error> {
    if depth::depth(conn)? == 0 {
        Ok(())
    } else {
        Err(Error::AlreadyInTransaction { method, reason })
    }
}

fn held_slot(name: &str, row: HeldRow) -> HeldSlot {
    HeldSlot {
        semaphore: name.to_owned(),
        number: row.number.unsigned_abs(),
        holder: row.holder,
        token: row.token.and_then(|token| Uuid::from_slice(&token).ok()),
        fence: row.fence,
        acquired_at: time(row.acquired_us),
        expires_at: time(row.expires_us),
        remaining: Duration::from_micros(u64::try_from(row.remaining_us).unwrap_or(0)),
    }
}

/// The limits of leases keep the time within chrono's range.
fn time(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::<Utc>::MAX_UTC)
}
