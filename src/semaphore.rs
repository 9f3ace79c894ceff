//! The trait `SemaphoreExt`: the methods for semaphores on a connection.

mod acquire;
mod acquisition;
#[cfg(feature = "r2d2")]
pub(crate) mod active_slot;
pub(crate) mod administration;
#[cfg(feature = "_async_pool")]
pub(crate) mod async_active_slot;
#[cfg(feature = "_async")]
pub(crate) mod async_ext;
mod attempts;
pub(crate) mod backend;
pub(crate) mod definition;
mod events;
#[cfg(feature = "_pool")]
mod failures;
pub(crate) mod fence;
#[cfg(feature = "_pool")]
pub(crate) mod guard;
mod holding;
#[cfg(feature = "_pool")]
mod leader;
pub(crate) mod lease;
mod pace;
pub(crate) mod polling;
#[cfg(feature = "_pool")]
pub(crate) mod pooled;
pub(crate) mod renewal;
#[cfg(feature = "_pool")]
pub(crate) mod renewer;
pub(crate) mod slot;
pub(crate) mod slot_times;
#[cfg(feature = "_pool")]
pub(crate) mod timer;

use std::borrow::Borrow;
use std::time::Duration;

use crate::engine::HasBlockingEngine;
use crate::poll::blocking;
use crate::{Error, LeaseOptions, LeaseState, Semaphore, Slot, Wait};

/// Counting semaphores as methods of a connection.
///
/// A semaphore limits the number of concurrent holders across all servers that use the database. There are two kinds of
/// slot, which count against the same number of permits:
///
/// | | leased slot | slot of a transaction |
/// |---|---|---|
/// | does not wait | [`try_acquire_slot`](Self::try_acquire_slot) | [`try_with_slot`](Self::try_with_slot) |
/// | waits | [`acquire_slot`](Self::acquire_slot) | [`with_slot`](Self::with_slot) |
/// | held | until it is released or its lease expires; outlives transactions, connections and processes | until the transaction ends, also when its process dies |
/// | for | work that is too long for one transaction | one short transaction |
/// | can be lost | yes; a `SlotGuard` is notified, a [`Slot`] is not: see [`Slot::fence`] and [`pin_slot`](Self::pin_slot) | no |
///
/// With an r2d2 pool use a `SlotRenewer` for leased slots: it renews them in the background, and releases them when the
/// closure returns or the guard is dropped. A bare [`Slot`] is neither renewed nor released on drop, on `?` or on a panic.
///
/// [Blocking](crate::operation::blocking) lists how long each method waits. SQLite must be 3.38 or newer, and needs [two
/// settings](crate::operation::sqlite) on each connection.
///
/// # The error type of a closure
///
/// A closure may return any error type `E: From<diesel_locks::Error>`. If `?` follows the call, name
/// the type at the closure: `|conn| -> diesel_locks::Result<_> { .. }` (see [`Result`](crate::Result)).
///
/// # Clock
///
/// Leases begin and expire by the database's clock; the clocks of the application's servers do not matter. If it jumps
/// backwards, leases last longer by that time. If it jumps forwards, they expire earlier, and [fences](Slot::fence) still
/// order the holders.
///
/// # Slots are rows
///
/// Each slot is a row of the table `diesel_locks_slots`. The rows are created when a semaphore is first used outside a
/// transaction, or by [`register_semaphores`](Self::register_semaphores).
///
/// # In an open transaction
///
/// The first use of a semaphore in a transaction that the application has opened fails with [`Error::NotRegistered`]: other
/// sessions would have to wait for the new rows until that transaction ends.
///
/// A slot that is acquired, renewed or released there changes when the transaction commits, and does not change when it
/// rolls back. Until then no other session can acquire it. A transaction that holds a slot can acquire the same slot again.
///
/// To acquire a slot, the transaction must be suitable for an object lock: see
/// [Isolation](crate::ObjectLockExt#isolation). Otherwise the call fails with [`Error::UnsuitableIsolation`].
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
    note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for `MysqlConnection`, \
            `sqlite` for `SqliteConnection`"
)]
#[doc(alias("concurrency limit", "distributed semaphore", "lease"))]
pub trait SemaphoreExt: HasBlockingEngine {
    /// Leases a slot. Returns `None` when all slots are held. The compiler does not warn if the result is ignored: to return
    /// with an error if no slot is free, call [`acquire_slot`](Self::acquire_slot) with [`Wait::No`].
    ///
    /// Does not wait for a slot to become free. Usually returns after one or two statements; in the worst case after:
    ///
    /// - about 30 ms, when other sessions have locked all free slots. A slot that stays locked counts as held by a
    ///   transaction.
    /// - 10 ms more, when as many threads of this process query the database as the semaphore has permits.
    /// - 2 s, when slots of this semaphore are missing while another session adds or removes slots.
    /// - On SQLite, when a slot is free and another connection writes: 5 s or `busy_timeout`, whichever is longer. Then it
    ///   fails with [`Error::LockTimeout`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::InvalidPermits`] and [`Error::InvalidLease`], before anything is sent to the database.
    /// [`Error::NotRegistered`] and [`Error::UnsuitableIsolation`] in an open transaction. [`Error::LockTimeout`] on SQLite, and
    /// on MariaDB while a backup lets no session commit. [`Error::StatementTimeout`] if a limit of the session ends a statement:
    /// `lock_timeout`, `statement_timeout`, `max_statement_time`.
    /// [`Error::Unsupported`] on MySQL and MariaDB, outside a transaction in a session with `autocommit = 0`.
    /// The [common errors](crate::Error#common-errors). After a lost connection a slot may have been granted: it stays held until
    /// its lease ends.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// use std::time::Duration;
    ///
    /// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut conn = SqliteConnection::establish(":memory:")?; diesel_locks::migrate(&mut conn)?;
    /// let ten_seconds = Duration::from_secs(10);
    /// let lease = LeaseOptions::new(ten_seconds).holder("worker-7");
    /// if let Some(mut slot) = conn.try_acquire_slot(&COLLATE, lease)? {
    ///     // A part of the work, shorter than the lease. If it returns here, the slot stays held for 10 s.
    ///     conn.renew_slot(&mut slot, ten_seconds)?;
    ///     // another part
    ///     conn.release_slot(slot)?;
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias("try_acquire", "try_acquire_permit", "lease"))]
    fn try_acquire_slot(
        &mut self,
        semaphore: &Semaphore,
        lease: LeaseOptions,
    ) -> Result<Option<Slot>, Error> {
        Self::block_on(acquire::try_acquire(self, semaphore, &lease))
    }

    /// Leases a slot like [`try_acquire_slot`](Self::try_acquire_slot), and waits while all slots are held.
    ///
    /// The waiters of one process form one queue per semaphore, in the order in which they came. The first of them polls the
    /// database: every 10 to 20 ms at the beginning, every 50 to 100 ms later. After a second it asks who holds the slots,
    /// and its pauses grow to a tenth of the time for which the holders have not changed, at most 1 s; it also asks when the
    /// next lease ends. With more than 100 permits the pauses do not grow. When a slot is released in the same process, the next
    /// waiter whose query is not running queries at once, and may overtake one whose query is running; from time to time the
    /// process leaves a released slot to other processes. The order between processes is not defined. A waiter that is not the
    /// first sends a short query at least every 5 s, so that its session is not idle for longer: set the server's limit for
    /// idle sessions to 8 s or more. A future that is not polled, and a process that is stopped, send nothing.
    ///
    /// In an open transaction the method polls on its own. The transaction stays open while it waits: if possible, acquire
    /// outside a transaction.
    ///
    /// # Errors
    ///
    /// [`Error::LockTimeout`], [`Error::Unavailable`] with [`Wait::No`], [`Error::InvalidWait`]; those of
    /// [`try_acquire_slot`](Self::try_acquire_slot).
    #[doc(alias("acquire", "acquire_permit", "lease", "lock"))]
    fn acquire_slot(
        &mut self,
        semaphore: &Semaphore,
        lease: LeaseOptions,
        wait: Wait,
    ) -> Result<Slot, Error> {
        Self::block_on(acquire::acquire_timeout(self, semaphore, &lease, wait))
    }

    /// Renews the lease: it now expires `duration` after this call, by the database's clock. Returns whether the previous
    /// lease had expired.
    ///
    /// Renewal succeeds as long as no other holder was granted the slot, even after expiry, and
    /// [`purge_slots`](Self::purge_slots) has not deleted the expired slot. It does not check the number of
    /// permits. The new lease may expire earlier than the previous one, but not before the end of
    /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least).
    ///
    /// Blocks only while a transaction has locked the slot's row: one that has renewed or released it, one that has acquired
    /// it after its lease had expired, and on MySQL and MariaDB one that has pinned it. When the renewal is rolled back with
    /// its transaction, the previous lease applies, but [`Slot::remaining`] shows the renewed one.
    ///
    /// # Errors
    ///
    /// - [`Error::SlotLost`] when the slot was granted to another holder, released, or released by force. The other holder
    ///   is not affected.
    /// - [`Error::InvalidLease`]. [`Error::InvalidName`], for a slot made by [`Slot::from_parts`].
    /// - [`Error::StatementTimeout`] when a time-out of the session ended the wait, on SQLite [`Error::LockTimeout`].
    /// - [`Error::Unsupported`] as for [`try_acquire_slot`](Self::try_acquire_slot).
    /// - The [common errors](crate::Error#common-errors). After all but [`Error::SlotLost`] the slot is still held by the
    ///   previous lease. After a lost connection it is unknown whether the lease was renewed.
    #[doc(alias("refresh", "extend", "heartbeat", "keepalive", "keep_alive"))]
    fn renew_slot(&mut self, slot: &mut Slot, duration: Duration) -> Result<LeaseState, Error> {
        Self::block_on(holding::renew(self, slot, duration))
    }

    /// Releases the slot. Returns whether its lease had expired.
    ///
    /// Release succeeds as long as no other holder was granted the slot, and [`purge_slots`](Self::purge_slots) has not deleted
    /// the expired slot. With
    /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least) the slot stays unavailable until that time has
    /// passed, but no longer belongs to this token.
    ///
    /// Blocks as [`renew_slot`](Self::renew_slot) does. On PostgreSQL a release outside a transaction does not wait for the
    /// disk. If the server crashes immediately afterwards, the slot may stay held until its lease expires.
    ///
    /// # Errors
    ///
    /// As [`renew_slot`](Self::renew_slot), except [`Error::InvalidLease`]. After all but [`Error::SlotLost`] the slot stays
    /// held until its lease expires; pass `&slot` to be able to retry. After a lost connection it is unknown whether the slot
    /// was released.
    #[doc(alias("unlock", "free"))]
    fn release_slot(&mut self, slot: impl Borrow<Slot>) -> Result<LeaseState, Error> {
        Self::block_on(holding::release(self, slot.borrow()))
    }

    /// Releases all leased slots of one semaphore, also those of other processes, whatever their tokens. Returns how many
    /// were held: 0 for a name that no semaphore has. For an operator.
    ///
    /// A process releases its own slots by [`release_slot`](Self::release_slot), a dropped `SlotGuard`,
    /// `SlotRenewer::release_guards`, or `Shutdown`.
    ///
    /// Holders detect the loss at their next renewal, release or [`pin_slot`](Self::pin_slot). Until then they continue,
    /// together with new holders: call it only when the holders are known to have stopped. It ignores
    /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least). Slots held by transactions are not affected.
    ///
    /// Blocks as [`release_slot`](Self::release_slot) does, for each slot.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::StatementTimeout`], on SQLite [`Error::LockTimeout`]; [`Error::Unsupported`] as for
    /// [`try_acquire_slot`](Self::try_acquire_slot); the [common errors](crate::Error#common-errors).
    #[doc(alias("break lock", "steal", "unlock", "evict"))]
    fn force_release_all(&mut self, semaphore: impl AsRef<str>) -> Result<usize, Error> {
        let released = administration::force_release_all(self, semaphore.as_ref());
        Self::block_on(released)
    }

    /// In an open transaction, checks that the slot still belongs to this token, and prevents other holders from being
    /// granted it until the transaction ends. What the transaction writes is then written by the holder, even if the lease
    /// expires meanwhile.
    ///
    /// An expired lease can be pinned as long as no other holder was granted the slot. If the number of permits was lowered,
    /// a pinned slot whose lease has expired does not count as held. What the transaction reads afterwards is current at READ
    /// COMMITTED and on SQLite. At a higher level it is as old as the transaction's snapshot, and the method does not check
    /// that.
    ///
    /// Blocks on PostgreSQL only while a transaction has acquired the slot after its lease had expired; on MySQL and MariaDB
    /// while any transaction has renewed, released or acquired it; on SQLite while another connection writes. While the slot
    /// is pinned:
    ///
    /// - PostgreSQL: other sessions that have the token can renew and release the slot.
    /// - MySQL, MariaDB: a renewal waits. A `SlotGuard` skips it, so keep the transaction shorter than the lease.
    /// - SQLite: all writers wait.
    ///
    /// # Errors
    ///
    /// - [`Error::SlotLost`]. The transaction is usable. Roll it back, because another holder may have the slot, and because
    ///   on MySQL and MariaDB the slot's row stays locked until then.
    /// - [`Error::NotInTransaction`] outside a transaction. [`Error::InvalidName`], for a slot made by [`Slot::from_parts`].
    /// - [`Error::StatementTimeout`] when a time-out of the session ended the wait, on SQLite [`Error::LockTimeout`].
    /// - [`Error::UnsuitableIsolation`] on SQLite, in a deferred transaction that has read before another connection wrote.
    /// - [`Error::SeveralWriters`]; the [common errors](crate::Error#common-errors).
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::Slot;
    /// use diesel_locks::prelude::*;
    ///
    /// diesel::table! { files (path) { path -> Text, hour -> Integer } }
    ///
    /// /// Stores the file if the slot still belongs to its token. Otherwise fails with `Error::SlotLost`, and writes nothing.
    /// fn store(conn: &mut SqliteConnection, slot: &Slot, path: &str, hour: i32) -> QueryResult<()> {
    ///     conn.run_transaction(TransactionOptions::new(), |conn| {
    ///         conn.pin_slot(slot)?;
    ///         diesel::insert_into(files::table)
    ///             .values((files::path.eq(path), files::hour.eq(hour)))
    ///             .execute(conn)?;
    ///         Ok(())
    ///     })
    /// }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut conn = SqliteConnection::establish(":memory:")?; diesel_locks::migrate(&mut conn)?;
    /// # diesel::sql_query("CREATE TABLE files (path TEXT PRIMARY KEY, hour INTEGER NOT NULL)").execute(&mut conn)?;
    /// # let lease = LeaseOptions::new(std::time::Duration::from_secs(30));
    /// # let slot = conn.acquire_slot(&Semaphore::from_static("collate-logs", 10), lease, Wait::No)?;
    /// # store(&mut conn, &slot, "a.log", 7)?;
    /// # conn.release_slot(&slot)?;
    /// # let error = store(&mut conn, &slot, "b.log", 7).unwrap_err();
    /// # assert!(diesel_locks::Error::find(&error).is_some_and(|error| error.is_slot_lost()));
    /// # assert_eq!(files::table.count().get_result::<i64>(&mut conn)?, 1);
    /// # Ok(()) }
    /// ```
    #[doc(alias("fence", "fencing token", "ensure_slot", "check_lease"))]
    fn pin_slot(&mut self, slot: &Slot) -> Result<(), Error> {
        Self::block_on(holding::pin(self, slot))
    }

    /// Begins a transaction that holds a slot, runs `f` in it, and commits. Returns `None`, without running `f`, when
    /// no slot is free.
    ///
    /// The slot has no lease. It is released when the transaction ends: by COMMIT, by ROLLBACK (also when `f` fails or
    /// panics), or when the connection is lost. For longer work, which holds a leased slot, use `SlotRenewer::try_run`.
    ///
    /// The slot excludes others only while the transaction runs. It does not make a job run once: a server whose timer fires
    /// after the transaction has ended acquires the slot and runs the job again. For that use a lease with
    /// [`hold_at_least`](crate::LeaseOptions::hold_at_least).
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
    /// The errors of `f`; those of COMMIT, as in [`with_object_lock`](crate::ObjectLockExt::with_object_lock); those
    /// of [`try_acquire_slot`](Self::try_acquire_slot), except [`Error::InvalidLease`]; [`Error::SeveralWriters`].
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::prelude::*;
    /// /// At most five transactions at a time recompute statistics.
    /// const STATISTICS: Semaphore = Semaphore::from_static("statistics", 5);
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut conn = SqliteConnection::establish(":memory:")?; diesel_locks::migrate(&mut conn)?;
    /// match conn.try_with_slot(&STATISTICS, |_conn| QueryResult::Ok("recomputed"))? {
    ///     Some(done) => println!("{done}"),
    ///     None => println!("five others recompute statistics; try again later"),
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias("try_with_permit", "try_acquire"))]
    fn try_with_slot<T, E, F>(&mut self, semaphore: &Semaphore, f: F) -> Result<Option<T>, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let work = &mut Some(f);
        Self::block_on(acquire::try_with_slot(self, semaphore, blocking(work)))
    }

    /// Begins a transaction that holds a slot, runs `f` in it, and commits, like [`try_with_slot`](Self::try_with_slot).
    /// Waits while no slot is free, in the same queue as [`acquire_slot`](Self::acquire_slot), and asks the database at least
    /// every 100 ms.
    ///
    /// # Errors
    ///
    /// [`Error::LockTimeout`], [`Error::Unavailable`] with [`Wait::No`], [`Error::InvalidWait`]; those of
    /// [`try_with_slot`](Self::try_with_slot).
    #[doc(alias("with_permit", "concurrency limit"))]
    fn with_slot<T, E, F>(&mut self, semaphore: &Semaphore, wait: Wait, f: F) -> Result<T, E>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
        E: From<Error>,
    {
        let work = &mut Some(f);
        Self::block_on(acquire::with_slot(self, semaphore, wait, blocking(work)))
    }

    /// Creates the slots of these semaphores, and excludes them from [`purge_slots`](Self::purge_slots).
    ///
    /// Optional, unless a semaphore is first used in an open transaction. Call it when the application starts, on every
    /// server, after [`migrate`](crate::migrate()). It saves the first acquirer the time to create the rows, about a second
    /// for 100,000 permits. To undo it, delete the semaphore's row from the table `diesel_locks_semaphores`.
    ///
    /// Concurrent calls run one after the other. Each waits as long as the session's lock time-out allows
    /// ([`Error::StatementTimeout`]): by default without limit on PostgreSQL, 50 s on MySQL and MariaDB. On SQLite it waits for
    /// 5 s or `busy_timeout`, whichever is longer ([`Error::LockTimeout`]).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] and [`Error::InvalidPermits`], before anything is sent to the database.
    /// [`Error::AlreadyInTransaction`] in an open transaction. The two time-outs above. The
    /// [common errors](crate::Error#common-errors).
    #[doc(alias("create_semaphore"))]
    fn register_semaphores(
        &mut self,
        semaphores: impl IntoIterator<Item = impl Borrow<Semaphore>>,
    ) -> Result<(), Error> {
        let semaphores: Vec<_> = semaphores.into_iter().collect();
        Self::block_on(administration::register(self, &semaphores))
    }

    /// Removes slots that are free and were last leased more than `unused_for` ago, of all semaphores. Returns how many were
    /// removed.
    ///
    /// Slots up to the last registered number of permits are not removed. A slot of a transaction
    /// ([`with_slot`](Self::with_slot)) does not count as a lease: [register](Self::register_semaphores) semaphores that are
    /// used in this way only.
    ///
    /// Other sessions can acquire slots meanwhile. A removed slot is created again when it is needed, and its fences continue
    /// to increase. Slots are removed from the highest number down, so that a held slot keeps those below it. Waits as
    /// [`register_semaphores`](Self::register_semaphores) does.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyInTransaction`] in an open transaction. [`Error::InvalidLease`] for more than
    /// [`LeaseOptions::LONGEST`](crate::LeaseOptions::LONGEST). The time-outs of
    /// [`register_semaphores`](Self::register_semaphores). [`Error::SeveralWriters`]; [`Error::BrokenClientLibrary`]; the
    /// [common errors](crate::Error#common-errors).
    #[doc(alias("cleanup"))]
    fn purge_slots(&mut self, unused_for: Duration) -> Result<usize, Error> {
        Self::block_on(administration::purge(self, unused_for))
    }

    /// Raises the fences of all future grants, of all semaphores: each is larger than the largest existing fence plus `by`.
    /// Returns a number that all future fences exceed.
    ///
    /// Fences grow with the database's clock, so `by` is a time. Call the method after a fail-over that may have lost grants,
    /// before the applications continue. A promoted replica does not know what its primary granted after the last transaction
    /// that it received, and its clock may be behind. Holders of lost grants may continue with fences larger than those of the
    /// next holders. Choose `by` larger than the possible difference of the two clocks, plus that of any earlier `raise_fences`
    /// that may have been lost. An hour does no harm: fences last until the year 2112.
    ///
    /// Held slots stay held, and keep their fences. Grants in transactions that are open during the call may get smaller
    /// fences. Waits as [`register_semaphores`](Self::register_semaphores) does.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyInTransaction`] in an open transaction; [`Error::FencesTooLarge`]; the time-outs of
    /// [`register_semaphores`](Self::register_semaphores); the [common errors](crate::Error#common-errors).
    #[doc(alias("fencing token", "failover"))]
    fn raise_fences(&mut self, by: Duration) -> Result<i64, Error> {
        Self::block_on(administration::raise_fences(self, by))
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasBlockingEngine> SemaphoreExt for C {}
