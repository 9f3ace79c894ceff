//! Semaphores: the methods on connections.

use std::borrow::Borrow;
use std::time::Duration;

use uuid::Uuid;

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::waiting::unless_refused;
use crate::acts::{administration, slot as slots};
use crate::api::pair::pair;
use crate::{Error, LeaseOptions, LeaseState, Semaphore, Slot, SlotInfo, Wait};

pair! {
    /// Limits the number of concurrent holders across all servers that use the database.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_locks::Error;
    /// use diesel_locks::prelude::*;
    /// use std::time::Duration;
    ///
    /// const COLLATE: Semaphore = Semaphore::from_static("collate-logs", 10);
    ///
    /// # let mut conn = SqliteConnection::establish(":memory:")?;
    /// # diesel_locks::migrate(&mut conn)?;
    /// let (ten_seconds, minute) = (Duration::from_secs(10), Wait::AtMost(Duration::from_secs(60)));
    /// let lease = LeaseOptions::new(ten_seconds).holder("worker-7");
    /// let mut slot = conn.acquire_slot(&COLLATE, lease, minute)?; // or `try_acquire_slot`
    /// // A part of the work, shorter than the lease. If it returns here, the slot stays held for 10 s.
    /// conn.renew_slot(&mut slot, ten_seconds)?;
    /// conn.run_transaction(TransactionOptions::new(), |conn| -> Result<(), Error> {
    ///     conn.pin_slot(&slot)?; // an error if the slot no longer belongs to its token
    ///     Ok(()) // write
    /// })?;
    /// conn.release_slot(slot)?;
    ///
    /// // A slot of a transaction:
    /// conn.with_slot(&COLLATE, minute, |_conn| QueryResult::Ok(()))?;
    /// let done = conn.try_with_slot(&COLLATE, |_conn| QueryResult::Ok(()))?;
    /// assert!(done.is_some()); // `None`: all ten slots are held
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// There are two kinds of slot, which count against the same number of permits:
    ///
    /// | | leased slot | slot of a transaction |
    /// |---|---|---|
    /// | does not wait | [`try_acquire_slot`](Self::try_acquire_slot) | [`try_with_slot`](Self::try_with_slot) |
    /// | waits | [`acquire_slot`](Self::acquire_slot) | [`with_slot`](Self::with_slot) |
    /// | several permits | [`LeaseOptions::permits`] | [`with_slots`](Self::with_slots) |
    /// | held | until it is released or its lease expires; outlives transactions, connections and processes | until the transaction ends, also when its process dies |
    /// | for | work that is too long for one transaction | one short transaction |
    /// | can be lost | yes; a `SlotGuard` is notified, a [`Slot`] is not: see [`Slot::fence`] and [`pin_slot`](Self::pin_slot) | no |
    ///
    /// Where there is a pool, use a `SlotRenewer` for leased slots. A bare [`Slot`] is neither renewed nor released on drop, on `?` or on
    /// a panic.
    ///
    /// [Blocking](crate::operation::blocking) lists how long each method waits, [Errors by method](crate::Error#errors-by-method)
    /// what it returns. A closure may return [any error type](crate::ObjectLockExt#the-error-type-of-a-closure). SQLite needs [two
    /// settings](crate::operation::sqlite).
    ///
    /// Leases begin and expire by the database's clock.
    /// [When it jumps](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#when-the-clock-jumps),
    /// [fences](Slot::fence) still order the holders.
    ///
    /// # In an open transaction
    ///
    /// The first use of a semaphore creates its slots, which are rows. In a transaction that the application has opened it fails
    /// with [`Error::NotRegistered`], because other sessions would wait for them until that transaction ends:
    /// [register](Self::register_semaphores) the semaphore before.
    ///
    /// A slot that is acquired, renewed or released there changes when the transaction commits, and not when it rolls back. Until
    /// then no other session can acquire it. To acquire a slot, the transaction must see [current
    /// data](crate::ObjectLockExt#isolation), or the call fails with [`Error::UnsuitableIsolation`]. A transaction that holds a
    /// slot can acquire the same slot again.
    #[doc(alias("concurrency limit", "distributed semaphore", "lease"))]
    pub trait SemaphoreExt;

    /// The methods of [`SemaphoreExt`](crate::SemaphoreExt) on connections of diesel-async, with `async` closures:
    /// [example](crate::AsyncObjectLockExt).
    ///
    /// Tasks and threads of a process wait in the same queue. If a future that leases a slot is dropped, a slot that it may have
    /// acquired is released, in [rare cases](crate::operation::dropped_futures#leases) when its lease expires.
    #[doc(alias("concurrency limit", "lease", "tokio"))]
    pub trait AsyncSemaphoreExt;

    closures {
        /// Runs `f` in a transaction that holds a slot, and commits it. Waits while no slot is free.
        ///
        /// The slot has no lease, and is released when the transaction ends. In an open transaction the method begins a savepoint,
        /// and the slot is held until the outer transaction ends; on PostgreSQL a rollback to the savepoint also releases it. On
        /// SQLite any other writer counts as a holder of all slots. Commit and rollback are those of
        /// [`with_object_lock`](crate::ObjectLockExt::with_object_lock).
        ///
        /// Waiters are in the queue of [`acquire_slot`](Self::acquire_slot), and ask the database at least every 100 ms.
        ///
        /// # Errors
        ///
        /// The errors of `f`; those of COMMIT, as in [`with_object_lock`](crate::ObjectLockExt::with_object_lock);
        /// [others](crate::Error#errors-by-method).
        #[doc(alias("with_permit", "concurrency limit"))]
        fn with_slot(semaphore: &Semaphore, wait: impl Into<Wait>; f) -> Result<T, E> {
            let wait = wait.into();
            |conn| {
                let several = slots::begin(conn, semaphore, None, Some(wait)).await?;
                slots::run(conn, semaphore, several, f).await
            }
        }

        /// Runs `f` in a transaction that holds several permits, all or none, and commits it. Waits while too few are free.
        ///
        /// ```
        /// # use diesel::prelude::*;
        /// # use diesel_locks::prelude::*;
        /// const MEMORY_GB: Semaphore = Semaphore::from_static("memory-gb", 8);
        ///
        /// # let mut conn = SqliteConnection::establish(":memory:")?;
        /// # diesel_locks::migrate(&mut conn)?;
        /// conn.with_slots(&MEMORY_GB, 3, Wait::Forever, |_conn| QueryResult::Ok(()))?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// Acquires the permits as [`LeaseOptions::permits`] describes it, and then begins the transaction, which locks them until
        /// its end. They are released after it; if that fails, after 10 s at most. With [`Wait::No`] it returns
        /// [`Error::Unavailable`] when too few are free. Otherwise as [`with_slot`](Self::with_slot), but not in an open transaction.
        ///
        /// # Errors
        ///
        /// [`Error::InvalidPermitsAtOnce`], [`Error::AlreadyInTransaction`]; those of [`with_slot`](Self::with_slot).
        #[doc(alias("weight", "acquire_many"))]
        fn with_slots(semaphore: &Semaphore, permits: u32, wait: impl Into<Wait>; f) -> Result<T, E> {
            let wait = wait.into();
            |conn| {
                let several = slots::begin(conn, semaphore, Some(permits), Some(wait)).await?;
                slots::run(conn, semaphore, several, f).await
            }
        }

        /// Runs `f` in a transaction that holds a slot, or returns `None` when no slot is free.
        ///
        /// Otherwise as [`with_slot`](Self::with_slot). When slots are held by transactions, it takes about 30 ms to return `None`.
        #[doc(alias("try_with_permit", "try_acquire"))]
        fn try_with_slot(semaphore: &Semaphore; f) -> Result<Option<T>, E> {
            |conn| match unless_refused(slots::begin(conn, semaphore, None, None).await)? {
                Some(several) => slots::run(conn, semaphore, several, f).await.map(Some),
                None => Ok(None),
            }
        }
    }

    engine {
        /// Acquires a slot by a lease, or returns `None` when all slots are held.
        ///
        /// Usually returns after one or two statements, in the [worst case](crate::operation::blocking) after about 2 s. A slot
        /// whose row stays locked counts as held by a transaction.
        ///
        /// After a lost connection a slot may have been granted: it stays held until its lease expires.
        #[doc(alias("try_acquire", "try_acquire_permit", "lease"))]
        fn try_acquire_slot(
            semaphore: &Semaphore,
            lease: impl Into<LeaseOptions>
        ) -> Result<Option<Slot>, Error> {
            let lease = lease.into();
            |engine| {
                lease.check_unrenewed()?;
                slots::try_acquire(engine, semaphore, &lease, Uuid::new_v4()).await
            }
        }

        /// Acquires a slot by a lease, and waits while all slots are held.
        ///
        /// The waiters of one process form one queue per semaphore, in the order in which they came; one whose query is running may
        /// be overtaken. Between processes no order is defined. The first waiter polls the database: every 10 to 100 ms, after a
        /// second at intervals of a tenth of the time for which the holders have not changed, at most 1 s (100 ms with more than
        /// 100 permits), and when the next lease expires. A release in the same process wakes the next waiter, or, from time to time,
        /// is left to other processes. The other waiters send a short query at least every 5 s: set the server's limit for idle
        /// sessions to 8 s or more.
        ///
        /// In an open transaction the method polls on its own, and the transaction stays open while it waits: if possible, acquire
        /// outside a transaction.
        #[doc(alias("acquire", "acquire_permit", "lease", "lock"))]
        fn acquire_slot(
            semaphore: &Semaphore,
            lease: impl Into<LeaseOptions>,
            wait: impl Into<Wait>
        ) -> Result<Slot, Error> {
            let lease = lease.into();
            let wait = wait.into();
            |engine| {
                lease.check_unrenewed()?;
                slots::acquire_timeout(engine, semaphore, &lease, wait).await
            }
        }

        /// Renews the lease: it now expires `duration` after this call. Returns whether the previous lease had expired.
        ///
        /// Renewal succeeds as long as no other holder was granted the slot, even after expiry, and
        /// [`purge_slots`](Self::purge_slots) has not deleted the expired slot. It does not check the number of permits. The new
        /// lease may expire earlier than the previous one, but not before the end of
        /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least). When the renewal is rolled back with its
        /// transaction, the previous lease applies, but [`Slot::remaining`] shows the renewed one.
        ///
        /// # Errors
        ///
        /// [`Error::SlotLost`] if the slot was released, or granted to another holder, whose lease this call does not change. In an
        /// open transaction, except on SQLite, roll it back, also after `SlotLost` from [`release_slot`](Self::release_slot): until it
        /// ends the slot's row may stay locked, and the other holder can't renew. After any
        /// [other error](crate::Error#errors-by-method) the previous lease is unchanged; after a lost connection it may have been
        /// renewed.
        #[doc(alias("refresh", "extend", "heartbeat", "keepalive", "keep_alive"))]
        fn renew_slot(slot: &mut Slot, duration: Duration) -> Result<LeaseState, Error> {
            |engine| unless_dropped!(engine, |engine| slots::renew(engine, slot, duration))
        }

        /// Releases the slot. Returns whether its lease had expired.
        ///
        /// Succeeds as long as [`renew_slot`](Self::renew_slot) does. With
        /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least) the slot stays unavailable until that time has
        /// passed, but no longer belongs to this token. Of several permits, it releases those that are not lost, also if one is. On PostgreSQL a release outside a transaction does not wait for the disk:
        /// if the server crashes immediately afterwards, the slot may stay held until its lease expires.
        ///
        /// Pass `&slot` to be able to retry after an error. With several permits a retry returns [`Error::SlotLost`] if some were released
        /// before.
        #[doc(alias("unlock", "free"))]
        fn release_slot(slot: impl Borrow<Slot>) -> Result<LeaseState, Error> {
            let slot = slot.borrow().clone();
            |engine| unless_dropped!(engine, |engine| slots::release(engine, &slot))
        }

        /// Sets the data of the slot's holder, which [`SlotInfo::data`] shows to others: an address, or how far the work is. Returns
        /// whether the lease had expired.
        ///
        /// ```
        /// # use diesel::prelude::*;
        /// # use diesel_locks::prelude::*;
        /// # use diesel_locks::{InspectExt, ListOptions};
        /// # let mut conn = SqliteConnection::establish(":memory:")?;
        /// # diesel_locks::migrate(&mut conn)?;
        /// # let lease = LeaseOptions::new(std::time::Duration::from_secs(9));
        /// let slot = conn.acquire_slot(&Semaphore::new("collate-logs", 10), lease, Wait::No)?;
        /// conn.set_slot_data(&slot, "17 of 40 files")?;
        /// let held = conn.held_slots(&ListOptions::new().name("collate-logs"))?;
        /// assert_eq!(held[0].data.as_deref(), Some("17 of 40 files"));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// It replaces what this holder has set before, and has up to [`MAX_NAME_CHARS`](crate::limits::MAX_NAME_CHARS) (255)
        /// characters without NUL. The next holder's is `None`. For the slot of a guard pass `guard.slot()`. What does not change goes
        /// into [`LeaseOptions::holder`](crate::LeaseOptions::holder), at no cost.
        ///
        /// Succeeds as long as [`renew_slot`](Self::renew_slot) does. Fails in an open transaction, which would keep the lease from being
        /// renewed.
        ///
        /// # Errors
        ///
        /// [`Error::SlotLost`] if the slot was released, or granted to another holder; [`Error::InvalidName`].
        /// [Others](crate::Error#errors-by-method).
        #[doc(alias("metadata", "value", "progress", "annotate"))]
        fn set_slot_data(slot: &Slot, data: impl AsRef<str>) -> Result<LeaseState, Error> {
            let data = data.as_ref().to_owned();
            |engine| unless_dropped!(engine, |engine| slots::set_data(engine, slot, &data))
        }

        /// Asks the holder of a slot, an entry of [`held_slots`](crate::InspectExt::held_slots), to release it. Returns whether its
        /// lease had expired. For an operator.
        ///
        /// ```
        /// # use diesel::prelude::*;
        /// # use diesel_locks::prelude::*;
        /// # use diesel_locks::{Error, InspectExt, LeaseState, ListOptions};
        /// # let mut conn = SqliteConnection::establish(":memory:")?;
        /// # diesel_locks::migrate(&mut conn)?;
        /// # let lease = LeaseOptions::new(std::time::Duration::from_secs(9));
        /// # let slot = conn.acquire_slot(&Semaphore::new("collate-logs", 10), lease, Wait::No)?;
        /// for held in conn.held_slots(&ListOptions::new().name("collate-logs"))? {
        ///     match conn.request_release(&held) {
        ///         Err(error) if error.is_slot_lost() => {} // released meanwhile
        ///         requested => assert_eq!(requested?, LeaseState::Unexpired),
        ///     }
        /// }
        /// # let held = &conn.held_slots(&ListOptions::new())?[0];
        /// # assert!(held.release_requested_at.is_some());
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// The slot stays held until its holder releases it. The renewer of a `SlotGuard` notices the request at the next renewal of
        /// this lease: `SlotGuard::release_requested` then returns true, and `ActiveSlot::is_active` false, so that a leader resigns
        /// and a tick ends. A lease is renewed after a third of the renewer's shortest lease, unless `progress_within` or `max_hold`
        /// of its [`LeaseOptions`] prevents that. The holder of a bare [`Slot`] is not notified.
        /// The request belongs to this token: a later holder does not see it. It can't be withdrawn.
        ///
        /// Fails in an open transaction, which would keep the holder from renewing its lease.
        ///
        /// # Errors
        ///
        /// [`Error::SlotLost`] if the slot was released, or granted to another holder, which is not asked.
        /// [Others](crate::Error#errors-by-method).
        #[doc(alias("revoke", "preempt", "step down", "resign", "evict"))]
        fn request_release(slot: &SlotInfo) -> Result<LeaseState, Error> {
            |engine| unless_dropped!(engine, |engine| slots::request_release(engine, slot))
        }

        /// Releases all leased slots of one semaphore, whatever their tokens. Returns how many were held. For an operator.
        ///
        /// Holders detect the loss at their next renewal, release or [`pin_slot`](Self::pin_slot), and continue until then: call it
        /// only when they are known to have stopped. It ignores
        /// [`LeaseOptions::hold_at_least`](crate::LeaseOptions::hold_at_least). Slots of transactions are not affected.
        ///
        /// # Errors
        ///
        /// [`Error::UnknownSemaphore`] if the database has no semaphore of this name. An application that calls the method before the first
        /// use [registers](Self::register_semaphores) the semaphore first. [`Error::UnsuitableIsolation`] in an open transaction above READ
        /// COMMITTED on PostgreSQL, MySQL and MariaDB. [Others](crate::Error#errors-by-method).
        #[doc(alias("break lock", "steal", "unlock", "evict"))]
        fn force_release_all(semaphore: impl AsRef<str>) -> Result<usize, Error> {
            let name = semaphore.as_ref().to_owned();
            |engine| unless_dropped!(engine, |engine| administration::force_release_all(engine, &name))
        }

        /// Prevents others from being granted the slot until the open transaction ends, if it still belongs to this token.
        ///
        /// What the transaction writes is then written by the holder, even if the lease expires meanwhile.
        ///
        /// An expired lease can be pinned as long as no other holder was granted the slot. If the number of permits was lowered, a
        /// pinned slot whose lease has expired does not count as held. Above READ COMMITTED the transaction reads what is as old as
        /// its snapshot; the method does not check that.
        ///
        /// While the slot is pinned, other sessions that have the token can renew and release it on PostgreSQL. On MySQL and
        /// MariaDB a renewal waits; a `SlotGuard` skips it, so keep the transaction shorter than the lease. On SQLite all writers
        /// wait.
        ///
        /// # Errors
        ///
        /// [`Error::SlotLost`]: roll the transaction back, because another holder may have the slot, and because the
        /// slot's row may stay locked until then, except on SQLite. [`Error::NotInTransaction`] outside a transaction.
        /// [Others](crate::Error#errors-by-method).
        #[doc(alias("fence", "fencing token", "ensure_slot", "check_lease"))]
        fn pin_slot(slot: &Slot) -> Result<(), Error> {
            |engine| unless_dropped!(engine, |engine| slots::pin(engine, slot))
        }

        /// Creates the slots of these semaphores, and excludes them from [`purge_slots`](Self::purge_slots).
        ///
        /// Ignores [`Semaphore::registered`], whose slots [`set_permits`](Self::set_permits) creates. Optional, unless a semaphore is
        /// first used in an open transaction, in which this method fails. Call it when the application starts, on every server,
        /// after [`migrate`](crate::migrate()). It saves the first acquirer the time to create
        /// the rows, about a second for 100,000 permits. To undo it, delete the semaphore's row from the table
        /// `diesel_locks_semaphores`.
        #[doc(alias("create_semaphore"))]
        fn register_semaphores(
            semaphores: impl IntoIterator<Item = impl Borrow<Semaphore>>
        ) -> Result<(), Error> {
            let semaphores: Vec<Semaphore> = semaphores.into_iter().map(|it| it.borrow().clone()).collect();
            |engine| unless_dropped!(engine, |engine| administration::register(engine, &semaphores))
        }

        /// Sets the number of permits of [`Semaphore::registered`]: 0 to [`MAX_PERMITS`](crate::limits::MAX_PERMITS) (100,000).
        ///
        /// Every attempt that begins after this method has returned obeys it. Holders keep their slots: of a lowered number none is
        /// granted until fewer are held. 0 pauses the semaphore. Creates missing slots; [`purge_slots`](Self::purge_slots) removes
        /// those above a lowered number, which [cost time](Semaphore#changing-the-number-of-permits) until then.
        ///
        /// [`register_semaphores`](Self::register_semaphores) with a number of permits sets it too: for this semaphore pass
        /// [`Semaphore::registered`], which changes nothing. Fails in an open transaction.
        #[doc(alias("limit", "resize", "pause", "throttle"))]
        fn set_permits(semaphore: impl AsRef<str>, permits: u32) -> Result<(), Error> {
            let name = semaphore.as_ref().to_owned();
            |engine| unless_dropped!(engine, |engine| administration::set_permits(engine, &name, permits))
        }

        /// Removes free slots that were last leased more than `unused_for` ago, of all semaphores. Returns how many.
        ///
        /// Slots up to the last registered number of permits, and those below a held slot, are not removed. A slot of a transaction
        /// does not count as a lease: [register](Self::register_semaphores) semaphores that are used in this way only. Other
        /// sessions can acquire slots meanwhile. A removed slot is created again when it is needed, and its fences continue to
        /// increase.
        ///
        /// Fails in an open transaction, and for more than [`LONGEST_LEASE`](crate::limits::LONGEST_LEASE).
        #[doc(alias("cleanup"))]
        fn purge_slots(unused_for: Duration) -> Result<usize, Error> {
            |engine| unless_dropped!(engine, |engine| administration::purge(engine, unused_for))
        }

        /// Raises the fences of all future grants. Returns a number that all of them exceed.
        ///
        /// Each exceeds the largest existing fence, of all semaphores, by as much as fences grow with the clock in the time `by`.
        /// Held slots keep their fences. Grants in transactions that are open during the call may get smaller fences.
        ///
        /// Call it after a fail-over that may have lost grants, before the applications continue, and outside a transaction:
        /// holders of lost grants may have fences larger than those of the next holders. On PostgreSQL only [these cases] need it.
        /// Choose `by` larger than the possible difference of the two servers' clocks, plus that of any earlier `raise_fences` that
        /// may have been lost. An hour does no harm. [`Error::FencesTooLarge`] if fences would then pass the year 2100.
        ///
        /// [these cases]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#after-a-fail-over
        #[doc(alias("fencing token", "failover"))]
        fn raise_fences(by: Duration) -> Result<i64, Error> {
            |engine| unless_dropped!(engine, |engine| administration::raise_fences(engine, by))
        }
    }
}
