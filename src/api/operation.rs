//! How to operate an application that uses this crate: when calls block, dropped futures, events, GRANTs, poolers, SQLite.

#[cfg(feature = "_async")]
pub mod dropped_futures;
pub mod sqlite;

/// When each method blocks, for how long, and what is usable afterwards.
///
/// Methods of Diesel's connections and of r2d2's pools block the thread: in async code call them in `spawn_blocking` or its like.
/// Those of diesel-async's connections and pools are futures, and block their task. A method of a connection occupies it while it
/// waits: a pool needs a connection for each waiter besides those for the work. A `LockPool` waits without a connection for object
/// locks and slots of transactions, and a `SlotRenewer` for leased slots.
///
/// "SQLite's limit" is 5 s or the connection's `busy_timeout`, whichever is longer. "the session's limit" is
/// `lock_timeout` on PostgreSQL (none by default) and `innodb_lock_wait_timeout` on MySQL and MariaDB (50 s by default).
///
/// | method | waits for | at most | then returns | on SQLite |
/// |---|---|---|---|---|
/// | [`with_object_lock`], [`lock_object`] | the locks | [`Wait`] of the request, without limit by default (in an open transaction on MySQL and MariaDB `innodb_lock_wait_timeout`); up to 250 ms longer | `LockTimeout`; `Unavailable` with `Wait::No` | waits for any other writer |
/// | [`try_with_object_lock`], [`try_lock_object`] | nothing | 50 ms; longer with thousands of ids; 200 ms on MySQL and MariaDB while the table is locked | `None`, `LockOutcome::Unavailable` | any other writer holds the lock |
/// | [`purge_object_locks`] | nothing; skips held rows | | | waits for other writers without limit |
/// | [`try_acquire_slot`], [`try_with_slot`] | no slot; it may be delayed: 30 ms if other sessions lock the free slots, 10 ms in a busy process, 2 s while slots are added or removed | about 2 s | `None` | a grant of [`try_acquire_slot`] waits for other writers up to SQLite's limit, then `LockTimeout` |
/// | [`acquire_slot`], [`with_slot`] | a slot | the argument [`Wait`], and one more statement | `LockTimeout`; `Unavailable` with `Wait::No` | each attempt to lease a free slot waits for other writers up to SQLite's limit, even if [`Wait`] is shorter. The wait ends at its own limit |
/// | [`renew_slot`], [`release_slot`] | a transaction that has renewed, released or acquired this slot; on MySQL and MariaDB also one that has pinned it | the session's limit | `StatementTimeout` | waits for other writers up to SQLite's limit, then `LockTimeout` |
/// | [`pin_slot`] | PostgreSQL: a transaction that acquired the slot after its lease had expired; MySQL, MariaDB: one that has renewed, released or acquired it | the session's limit | `StatementTimeout` | as [`renew_slot`] |
/// | [`force_release_all`] | as [`release_slot`], for each slot | the session's limit for each | `StatementTimeout` | as [`renew_slot`] |
/// | [`register_semaphores`], [`purge_slots`], [`raise_fences`] | sessions that add or remove slots | the session's limit | `StatementTimeout` | as [`renew_slot`] |
/// | [`next_number`], [`next_numbers`] | the transaction that drew before from the same sequence; MySQL, MariaDB: the first draw of a process from a sequence also waits, up to 5 s, while another session waits for a new sequence | the session's limit | `StatementTimeout` | waits for any other writer up to `busy_timeout` (0 in Diesel) |
/// | [`last_number`], and those of [`InspectExt`](crate::InspectExt) | nothing | | | |
/// | [`run_transaction`] | the pauses between attempts | [`RetryPolicy::max_elapsed`](crate::RetryPolicy::max_elapsed), 30 s by default | the error of the last attempt | BEGIN waits for other writers up to `busy_timeout` |
/// | [`migrate`] | another session that migrates | PostgreSQL: `lock_timeout`; MySQL, MariaDB: no limit | `StatementTimeout` | waits for other writers without limit |
/// | `LockPool::..`, `SlotRenewer::try_acquire`, `acquire`, `try_run` | a connection of the pool for each attempt, then as the method of a connection | the pool's time-out, and the limit of that method (`LockPool::with_object_lock` without a [`Wait`]: the pool's time-out) | as that method; `Pool`, `Stopped` | as that method |
/// | `SlotRenewer::run_as_leader`, `run_on_timer` | an election or a tick, again and again | the stop of the renewer, and the closure | `Ok`; the closure's error | as `SlotRenewer::acquire` |
/// | `SlotRenewer::release_guards`, `SlotGuard::release` | a connection of the pool, then as [`release_slot`]; the former skips locked slots | the pool's time-out, and the session's limit | the number of released slots; `Pool`, `StatementTimeout` | as [`release_slot`] |
/// | dropping a `SlotGuard` | the renewer's thread, which releases the slot; a `SlotGuard<Async>`: nothing | 200 ms | | |
/// | `Shutdown::shut_down` | closures, guards and transactions | its argument, and the release of the slots that are left, for which it waits at least 0.5 s for a connection; `Shutdown<Async>`: no longer than the rest of its argument, or 0.5 s | what had not ended | the release waits for other writers up to SQLite's limit |
/// | dropping a future | nothing | | | the statement that is running |
///
/// "the pool's time-out" is r2d2's and bb8's `connection_timeout` (30 s by default), and deadpool's `wait_timeout` (30 s if it has
/// none). bb8 and deadpool return `AsyncPool` in place of `Pool`.
///
/// [`Wait::AtMost`] includes waits for a table that another session has locked (`LOCK TABLES`, `ALTER TABLE`). The rows of
/// the table without [`Wait`] do not: for a locked table they wait up to `lock_timeout` on PostgreSQL, and up to
/// `lock_wait_timeout` on MySQL and MariaDB. `held_object_locks` does not wait for one.
///
/// On MySQL, while an `ALTER TABLE` waits for a transaction that uses a table of this crate, all methods wait up to the session's
/// `lock_wait_timeout` (a year by default), also those with `try_` and with [`Wait::AtMost`]: set it to a few seconds.
///
/// A COMMIT on MySQL and MariaDB waits up to `lock_wait_timeout` while a backup blocks it (`BACKUP STAGE BLOCK_COMMIT` on
/// MariaDB, `FLUSH TABLES WITH READ LOCK`), whatever the [`Wait`]. Then the transaction is rolled back, and the error is
/// `StatementTimeout`. On MariaDB [`try_acquire_slot`] does not wait for such a backup: it returns `LockTimeout`.
///
/// # The transaction after an error
///
/// After `None`, a refusal, `LockTimeout`, `SlotLost` and `NotRegistered` an open transaction remains usable on every engine, with
/// the exceptions of the table, and holds no lock of the request. After `PartlyLocked` it is usable too, but may hold some of them:
/// roll it back. After `Deadlock` roll it back on every engine.
///
/// | in an open transaction | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | [`lock_object`] with [`Wait::AtMost`] | usable after any error | usable; not after `LockTimeout` if the server has `innodb_rollback_on_timeout` | usable |
/// | [`lock_object`] with [`Wait::Forever`] | after an error of the database, `LockTimeout` included, only ROLLBACK is accepted | as above | usable |
/// | [`lock_object`] with [`Wait::No`], [`try_lock_object`] | usable; after another error of the database only ROLLBACK is accepted | usable; on MariaDB with `innodb_rollback_on_timeout` a refusal ends the transaction, and is `TransactionAborted` | usable |
/// | `with_..` and `try_with_..`, which open a savepoint | usable after any error | usable, with the exceptions above; the locks may be held until the end | usable; the locks are held until the end |
/// | slots | after another error of the database only ROLLBACK is accepted | usable | usable |
/// | draws | after an error of the database only ROLLBACK is accepted | usable; not after `StatementTimeout` if the server has `innodb_rollback_on_timeout` | usable |
///
/// # A client that vanishes
///
/// When a process dies, its connections are closed. The server rolls back and releases the locks at once, or when a statement that
/// it runs for the session (a long query, a wait for another lock) has ended. On PostgreSQL 14 or newer set
/// `client_connection_check_interval = '1s'`: the server then looks for a closed connection during statements too.
///
/// When a machine loses power or its network, nothing closes the connection: with the system's defaults the
/// server notices after two hours. Set keepalives and time-outs on the server: `tcp_keepalives_idle` and
/// `idle_in_transaction_session_timeout` on PostgreSQL, `wait_timeout` and the system's `tcp_keepalive_time` on MySQL and
/// MariaDB. [Time-outs that an application must
/// set](https://github.com/diesel-locks/diesel-locks/blob/main/docs/web-service.md#network-time-outs) lists
/// values. A leased slot does not depend on the connection: it is free when its lease expires.
///
/// [`with_object_lock`]: crate::ObjectLockExt::with_object_lock
/// [`lock_object`]: crate::ObjectLockExt::lock_object
/// [`try_with_object_lock`]: crate::ObjectLockExt::try_with_object_lock
/// [`try_lock_object`]: crate::ObjectLockExt::try_lock_object
/// [`purge_object_locks`]: crate::ObjectLockExt::purge_object_locks
/// [`try_acquire_slot`]: crate::SemaphoreExt::try_acquire_slot
/// [`acquire_slot`]: crate::SemaphoreExt::acquire_slot
/// [`try_with_slot`]: crate::SemaphoreExt::try_with_slot
/// [`with_slot`]: crate::SemaphoreExt::with_slot
/// [`renew_slot`]: crate::SemaphoreExt::renew_slot
/// [`release_slot`]: crate::SemaphoreExt::release_slot
/// [`pin_slot`]: crate::SemaphoreExt::pin_slot
/// [`force_release_all`]: crate::SemaphoreExt::force_release_all
/// [`register_semaphores`]: crate::SemaphoreExt::register_semaphores
/// [`purge_slots`]: crate::SemaphoreExt::purge_slots
/// [`raise_fences`]: crate::SemaphoreExt::raise_fences
/// [`next_number`]: crate::SequenceExt::next_number
/// [`next_numbers`]: crate::SequenceExt::next_numbers
/// [`last_number`]: crate::SequenceExt::last_number
/// [`run_transaction`]: crate::TransactionExt::run_transaction
/// [`migrate`]: crate::migrate()
/// [`Wait`]: crate::Wait
/// [`Wait::No`]: crate::Wait::No
/// [`Wait::AtMost`]: crate::Wait::AtMost
/// [`Wait::Forever`]: crate::Wait::Forever
pub mod blocking {}

/// The events that this crate records by [`tracing`](https://docs.rs/tracing), for logs and metrics.
///
/// Each event in the table has the field `outcome`. A later version of this crate may change messages and levels, but not
/// targets, outcomes and fields. `waited_us` and `held_us` are whole microseconds (`u64`); `waited` and `held` are the same
/// durations as texts, and `pause` is a text too.
///
/// | target | `outcome` | recorded when | fields |
/// |---|---|---|---|
/// | `diesel_locks::object_lock` | `granted` | the locks were acquired | `ids`, `waited_us`, `waited` |
/// | | `refused` | a lock is held, and the request does not wait | `ids` |
/// | | `timed_out` | the time of the request, or a time-out of the session, is up | `ids`, `waited_us`, `waited` |
/// | | `stopped` | the `StopToken` of a `LockPool` was stopped | `ids`, `waited_us`, `waited` |
/// | | `failed` | any other error | `ids`, `error` |
/// | | `released` | the transaction or savepoint that was begun for the locks has ended | `ids`, `held_us`, `held` |
/// | `diesel_locks::slot` | `granted` | a slot was acquired | `semaphore`, `number` of a leased slot, `waited_us`, `waited` |
/// | | `refused`, `timed_out`, `stopped`, `failed` | as above | `semaphore`, and as above |
/// | | `released` | a `SlotGuard`, or the transaction that was begun for a slot, has ended | `semaphore`, `number` of a leased slot, `held_us`, `held` |
/// | | `lost` | a `SlotGuard` is lost: its lease was not renewed in time, or it was released by force | `semaphore`, `number`, `held_us`, `held` |
/// | `diesel_locks::transaction` | `retried` | a transaction is about to run again, by its [`RetryPolicy`](crate::RetryPolicy) | `reason`, `attempt`, `pause` |
///
/// A request ends with one of `granted`, `refused`, `timed_out`, `stopped` and `failed`, so their sum counts the
/// requests. A request that waits in an open transaction counts too. [`lock_object`](crate::ObjectLockExt::lock_object)
/// and [`release_slot`](crate::SemaphoreExt::release_slot) record no `released`: the crate does not see when the
/// transaction ends, or when the slot was acquired. A lost guard records `lost` and no `released`.
///
/// Other events, such as renewals that failed, have targets that begin with `diesel_locks::` too, and no `outcome`.
///
/// The program `web` makes metrics for Prometheus of these events: `programs/web/src/metrics.rs` in the repository.
pub mod events {}

#[doc = include_str!("../../docs/privileges.md")]
pub mod privileges {}

// Its example compiles with these features only; errors link to it.
#[cfg_attr(
    any(not(doctest), all(feature = "_postgres", feature = "r2d2")),
    doc = include_str!("../../docs/pgbouncer.md")
)]
pub mod pgbouncer {}
