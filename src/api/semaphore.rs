//! Semaphores: the methods on connections.

use std::borrow::Borrow;
use std::time::Duration;

use uuid::Uuid;

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::{administration, holding, slot as acquire};
use crate::api::pair::pair;
use crate::{Error, LeaseOptions, LeaseState, Semaphore, Slot, Wait};

pair! {
    /// Limits the number of concurrent holders across all servers that use the database.
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
    ///
    /// There are two kinds of slot, which count against the same number of permits:
    ///
    /// | | leased slot | slot of a transaction |
    /// |---|---|---|
    /// | does not wait | [`try_acquire_slot`](Self::try_acquire_slot) | [`try_with_slot`](Self::try_with_slot) |
    /// | waits | [`acquire_slot`](Self::acquire_slot) | [`with_slot`](Self::with_slot) |
    /// | held | until it is released or its lease expires; outlives transactions, connections and processes | until the transaction ends, also when its process dies |
    /// | for | work that is too long for one transaction | one short transaction |
    /// | can be lost | yes; a `SlotGuard` is notified, a [`Slot`] is not: see [`Slot::fence`] and [`pin_slot`](Self::pin_slot) | no |
    ///
    /// Where there is a pool, use a `SlotRenewer` for leased slots: it renews them in the background, and releases them. A bare
    /// [`Slot`] is neither renewed nor released on drop, on `?` or on a panic.
    ///
    /// [Blocking](crate::operation::blocking) lists when each method waits, and for how long,
    /// [Errors by method](crate::Error#errors-by-method) what it returns. For the error type of a closure see
    /// [`ObjectLockExt`](crate::ObjectLockExt#the-error-type-of-a-closure). SQLite needs [two settings](crate::operation::sqlite).
    ///
    /// Leases begin and expire by the database's clock; the clocks of the application's servers do not matter. If it jumps
    /// backwards, leases last longer by that time. If it jumps forwards, they expire earlier, and [fences](Slot::fence) still
    /// order the holders.
    ///
    /// # In an open transaction
    ///
    /// The first use of a semaphore creates its slots, which are rows of the table `diesel_locks_slots`. In a transaction that the
    /// application has opened it fails with [`Error::NotRegistered`], because other sessions would wait for the new rows until
    /// that transaction ends: [register](Self::register_semaphores) the semaphore before.
    ///
    /// A slot that is acquired, renewed or released there changes when the transaction commits, and not when it rolls back.
    /// Until then no other session can acquire it. A transaction that holds a slot can acquire the same slot again.
    ///
    /// To acquire a slot, the transaction must see current data, or the call fails with [`Error::UnsuitableIsolation`]: see
    /// [Isolation](crate::ObjectLockExt#isolation).
    #[doc(alias("concurrency limit", "distributed semaphore", "lease"))]
    pub trait SemaphoreExt;

    /// The methods of [`SemaphoreExt`](crate::SemaphoreExt) on connections of diesel-async, with `async` closures.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use diesel::prelude::*;
    /// use diesel_async::AsyncConnection;
    /// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
    /// use diesel_locks::prelude::*;
    ///
    /// const COLLATE: Semaphore = Semaphore::from_static("collate", 10);
    ///
    /// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
    /// diesel_locks::migrate_async(&mut conn).await?;
    /// let lease = LeaseOptions::new(Duration::from_secs(30));
    /// if let Some(slot) = conn.try_acquire_slot(&COLLATE, lease).await? {
    ///     // .. collate the logs
    ///     conn.release_slot(slot).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Tasks and threads of a process wait in the same queue. If a future that leases a slot is dropped, a slot that it may have
    /// acquired is released, in [rare cases](crate::operation::dropped_futures#outcomes) when its lease ends.
    #[doc(alias("concurrency limit", "lease", "tokio"))]
    pub trait AsyncSemaphoreExt;

    closures {
        /// Runs `f` in a transaction that holds a slot, and commits it. Waits while no slot is free.
        ///
        /// The slot has no lease. It is released when the transaction ends: by COMMIT, by ROLLBACK (also when `f` fails or
        /// panics), or when the connection is lost. For longer work, which holds a leased slot, use `SlotRenewer::try_run`.
        ///
        /// The transaction is as that of [`with_object_lock`](crate::ObjectLockExt::with_object_lock). In an open one the method
        /// begins a savepoint, and the slot is held until the outer transaction ends; on PostgreSQL a rollback to the savepoint
        /// also releases it. On SQLite any other writer counts as a holder of all slots.
        ///
        /// Waiters are in the same queue as those of [`acquire_slot`](Self::acquire_slot), and ask the database at least every 100 ms.
        ///
        /// # Errors
        ///
        /// The errors of `f`; those of COMMIT, as in [`with_object_lock`](crate::ObjectLockExt::with_object_lock);
        /// [others](crate::Error#errors-by-method).
        #[doc(alias("with_permit", "concurrency limit"))]
        fn with_slot(semaphore: &Semaphore, wait: Wait; f) -> Result<T, E> {
            |conn| acquire::with_slot(conn, semaphore, wait, f).await
        }

        /// Runs `f` in a transaction that holds a slot, or returns `None` when no slot is free.
        ///
        /// Otherwise as [`with_slot`](Self::with_slot). When slots are held by transactions, it takes about 30 ms to return `None`:
        /// the lock on a row does not show how long it will last.
        ///
        /// To run a job once, use a lease with [`hold_at_least`](crate::LeaseOptions::hold_at_least): a server whose timer fires
        /// after this transaction has ended acquires the slot too.
        ///
        /// # Errors
        ///
        /// As [`with_slot`](Self::with_slot), except [`Error::Unavailable`].
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
        fn try_with_slot(semaphore: &Semaphore; f) -> Result<Option<T>, E> {
            |conn| acquire::try_with_slot(conn, semaphore, f).await
        }
    }

    engine {
        /// Leases a slot, or returns `None` when all slots are held.
        ///
        /// Does not wait for a slot to become free. Usually returns after one or two statements, in the
        /// [worst case](crate::operation::blocking) after about 2 s. A slot whose row stays locked counts as held by a transaction.
        /// To return with an error if no slot is free, call [`acquire_slot`](Self::acquire_slot) with [`Wait::No`].
        ///
        /// # Errors
        ///
        /// See [Errors by method](crate::Error#errors-by-method). After a lost connection a slot may have been granted: it stays
        /// held until its lease ends.
        #[doc(alias("try_acquire", "try_acquire_permit", "lease"))]
        fn try_acquire_slot(semaphore: &Semaphore, lease: LeaseOptions) -> Result<Option<Slot>, Error> {
            |engine| acquire::try_acquire(engine, semaphore, &lease, Uuid::new_v4()).await
        }

        /// Leases a slot, and waits while all slots are held.
        ///
        /// The waiters of one process form one queue per semaphore, in the order in which they came. The first of them polls the
        /// database: every 10 to 100 ms, after a second at intervals of a tenth of the time for which the holders have not changed,
        /// at most 1 s (100 ms with more than 100 permits), and when the next lease ends. When a slot is released in the same
        /// process, the next waiter whose query is not running queries at once, and may overtake one whose query is running; from
        /// time to time a released slot is left to other processes. The order between processes is not defined.
        ///
        /// A waiter that is not the first sends a short query at least every 5 s, so that its session is not idle for longer: set
        /// the server's limit for idle sessions to 8 s or more. In an open transaction the method polls on its own, and the
        /// transaction stays open while it waits: if possible, acquire outside a transaction.
        ///
        /// # Errors
        ///
        /// [`Error::LockTimeout`], [`Error::Unavailable`] with [`Wait::No`]; those of [`try_acquire_slot`](Self::try_acquire_slot).
        #[doc(alias("acquire", "acquire_permit", "lease", "lock"))]
        fn acquire_slot(semaphore: &Semaphore, lease: LeaseOptions, wait: Wait) -> Result<Slot, Error> {
            |engine| acquire::acquire_timeout(engine, semaphore, &lease, wait).await
        }

        /// Renews the lease: it now expires `duration` after this call. Returns whether the previous lease had expired.
        ///
        /// Renewal succeeds as long as no other holder was granted the slot, even after expiry, and
        /// [`purge_slots`](Self::purge_slots) has not deleted the expired slot. It does not check the number of permits. The new
        /// lease may expire earlier than the previous one, but not before the end of
        /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least).
        ///
        /// When the renewal is rolled back with its transaction, the previous lease applies, but [`Slot::remaining`] shows the
        /// renewed one.
        ///
        /// # Errors
        ///
        /// [`Error::SlotLost`] if the slot was released, or granted to another holder, whose lease this call does not change. After
        /// any [other error](crate::Error#errors-by-method) the previous lease is unchanged. After a lost connection the lease
        /// may have been renewed.
        #[doc(alias("refresh", "extend", "heartbeat", "keepalive", "keep_alive"))]
        fn renew_slot(slot: &mut Slot, duration: Duration) -> Result<LeaseState, Error> {
            |engine| unless_dropped!(engine, |engine| holding::renew(engine, slot, duration))
        }

        /// Releases the slot. Returns whether its lease had expired.
        ///
        /// Succeeds as long as [`renew_slot`](Self::renew_slot) does. With
        /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least) the slot stays unavailable until that time has
        /// passed, but no longer belongs to this token.
        ///
        /// On PostgreSQL a release outside a transaction does not wait for the disk. If the server crashes immediately afterwards,
        /// the slot may stay held until its lease expires.
        ///
        /// # Errors
        ///
        /// As [`renew_slot`](Self::renew_slot). Pass `&slot` to be able to retry.
        #[doc(alias("unlock", "free"))]
        fn release_slot(slot: impl Borrow<Slot>) -> Result<LeaseState, Error> {
            let slot = slot.borrow().clone();
            |engine| unless_dropped!(engine, |engine| holding::release(engine, &slot))
        }

        /// Releases all leased slots of one semaphore, whatever their tokens. Returns how many were held. For an operator.
        ///
        /// Holders detect the loss at their next renewal, release or [`pin_slot`](Self::pin_slot). Until then they continue beside
        /// new holders: call it only when the holders are known to have stopped. It ignores
        /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least). Slots of transactions are not affected.
        ///
        /// # Errors
        ///
        /// See [Errors by method](crate::Error#errors-by-method).
        #[doc(alias("break lock", "steal", "unlock", "evict"))]
        fn force_release_all(semaphore: impl AsRef<str>) -> Result<usize, Error> {
            let name = semaphore.as_ref().to_owned();
            |engine| unless_dropped!(engine, |engine| administration::force_release_all(engine, &name))
        }

        /// Prevents others from being granted the slot until the open transaction ends, if it still belongs to this token.
        ///
        /// What the transaction writes is then written by the holder, even if the lease expires meanwhile.
        ///
        /// An expired lease can be pinned as long as no other holder was granted the slot. If the number of permits was lowered,
        /// a pinned slot whose lease has expired does not count as held. Above READ COMMITTED the transaction reads what is as old as
        /// its snapshot; the method does not check that.
        ///
        /// While the slot is pinned:
        ///
        /// - PostgreSQL: other sessions that have the token can renew and release the slot.
        /// - MySQL, MariaDB: a renewal waits. A `SlotGuard` skips it, so keep the transaction shorter than the lease.
        /// - SQLite: all writers wait.
        ///
        /// # Errors
        ///
        /// [`Error::SlotLost`]: roll the transaction back, because another holder may have the slot, and because on MySQL and
        /// MariaDB the slot's row stays locked until then. [`Error::NotInTransaction`] outside a transaction.
        /// [Others](crate::Error#errors-by-method).
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
        /// # assert!(store(&mut conn, &slot, "b.log", 7).is_err());
        /// # Ok(()) }
        /// ```
        #[doc(alias("fence", "fencing token", "ensure_slot", "check_lease"))]
        fn pin_slot(slot: &Slot) -> Result<(), Error> {
            |engine| unless_dropped!(engine, |engine| holding::pin(engine, slot))
        }

        /// Creates the slots of these semaphores, and excludes them from [`purge_slots`](Self::purge_slots).
        ///
        /// Optional, unless a semaphore is first used in an open transaction. Call it when the application starts, on every
        /// server, after [`migrate`](crate::migrate()). It saves the first acquirer the time to create the rows, about a second
        /// for 100,000 permits. Concurrent calls run one after the other. To undo it, delete the semaphore's row from the table
        /// `diesel_locks_semaphores`.
        ///
        /// # Errors
        ///
        /// [`Error::AlreadyInTransaction`] in an open transaction; [others](crate::Error#errors-by-method).
        #[doc(alias("create_semaphore"))]
        fn register_semaphores(
            semaphores: impl IntoIterator<Item = impl Borrow<Semaphore>>
        ) -> Result<(), Error> {
            let semaphores: Vec<Semaphore> = semaphores.into_iter().map(|it| it.borrow().clone()).collect();
            |engine| unless_dropped!(engine, |engine| administration::register(engine, &semaphores))
        }

        /// Removes free slots that were last leased more than `unused_for` ago, of all semaphores. Returns how many.
        ///
        /// Slots up to the last registered number of permits are not removed. A slot of a transaction
        /// ([`with_slot`](Self::with_slot)) does not count as a lease: [register](Self::register_semaphores) semaphores that are
        /// used in this way only.
        ///
        /// Other sessions can acquire slots meanwhile. A removed slot is created again when it is needed, and its fences continue
        /// to increase. Slots are removed from the highest number down, so that a held slot keeps those below it.
        ///
        /// # Errors
        ///
        /// [`Error::AlreadyInTransaction`] in an open transaction. [`Error::InvalidLease`] for more than
        /// [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE). [Others](crate::Error#errors-by-method).
        #[doc(alias("cleanup"))]
        fn purge_slots(unused_for: Duration) -> Result<usize, Error> {
            |engine| unless_dropped!(engine, |engine| administration::purge(engine, unused_for))
        }

        /// Raises the fences of all future grants. Returns a number that all of them exceed.
        ///
        /// Each is larger than the largest existing fence, of all semaphores, plus `by` (fences grow with the database's clock).
        ///
        /// Call it after a fail-over that may have lost grants, before the applications continue: holders of lost grants may have
        /// fences larger than those of the next holders. After a promotion on PostgreSQL call it only in the cases that the
        /// guide lists under "After a fail-over". Choose `by` larger than the possible difference of the two servers' clocks,
        /// plus that of any earlier `raise_fences` that may have been lost. An hour does no harm: fences last until the year 2112.
        ///
        /// Held slots keep their fences. Grants in transactions that are open during the call may get smaller fences.
        ///
        /// # Errors
        ///
        /// [`Error::AlreadyInTransaction`] in an open transaction; [`Error::FencesTooLarge`];
        /// [others](crate::Error#errors-by-method).
        #[doc(alias("fencing token", "failover"))]
        fn raise_fences(by: Duration) -> Result<i64, Error> {
            |engine| unless_dropped!(engine, |engine| administration::raise_fences(engine, by))
        }
    }
}
