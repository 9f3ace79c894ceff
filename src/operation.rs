//! How to operate an application that uses this crate: when calls block, dropped futures, events, GRANTs, poolers, SQLite.

/// When each method blocks, for how long, and what is usable afterwards.
///
/// The methods of Diesel's connections, and of `LockPool`, `SlotRenewer` and `Shutdown`, block the calling thread: in async
/// code call them in `spawn_blocking` or its like. The methods of diesel-async's connections, and of `AsyncLockPool`,
/// `AsyncSlotRenewer` and `AsyncShutdown`, are futures: where the table says that a method waits, its task waits.
///
/// Methods of a connection occupy it while they wait: a pool needs a connection for each waiter besides those for the work.
/// A `LockPool` or an `AsyncLockPool` waits for object locks and slots of transactions without a connection, and a
/// `SlotRenewer` or an `AsyncSlotRenewer` for leased slots.
///
/// "SQLite's limit" below is 5 s or the connection's `busy_timeout`, whichever is longer. "the session's limit" is
/// `lock_timeout` on PostgreSQL (none by default) and `innodb_lock_wait_timeout` on MySQL and MariaDB (50 s by default).
///
/// | method | waits for | at most | then returns | on SQLite |
/// |---|---|---|---|---|
/// | [`with_object_lock`], [`with_object_locks`], [`lock_object`] | the locks | [`Wait`] of the request, without limit by default (in an open transaction on MySQL and MariaDB `innodb_lock_wait_timeout`); up to 250 ms longer | [`LockTimeout`]; [`Unavailable`] with [`Wait::No`] | waits for any other writer |
/// | [`try_with_object_lock`], [`try_with_object_locks`], [`try_lock_object`] | nothing | 50 ms; longer with thousands of ids; 200 ms on MySQL and MariaDB while the table is locked | `None`, `false` | any other writer holds the lock |
/// | [`purge_object_locks`] | nothing; skips held rows | | | waits for other writers without limit |
/// | [`try_acquire_slot`], [`try_with_slot`] | no slot; it may be delayed: 30 ms if other sessions lock the free slots, 10 ms in a busy process, 2 s while slots are added or removed | about 2 s | `None` | a grant of [`try_acquire_slot`] waits for other writers up to SQLite's limit, then [`LockTimeout`] |
/// | [`acquire_slot`], [`with_slot`] | a slot | the argument [`Wait`], and one more statement | [`LockTimeout`]; [`Unavailable`] with [`Wait::No`] | on SQLite each attempt to lease a free slot waits for other writers for 5 s, or `busy_timeout`, even if [`Wait`] is shorter. The wait ends at its own limit |
/// | [`renew_slot`], [`release_slot`] | a transaction that has renewed, released or acquired this slot; on MySQL and MariaDB also one that has pinned it | the session's limit | [`StatementTimeout`] | waits for other writers up to SQLite's limit, then [`LockTimeout`] |
/// | [`pin_slot`] | PostgreSQL: a transaction that acquired the slot after its lease had expired; MySQL, MariaDB: one that has renewed, released or acquired it | the session's limit | [`StatementTimeout`] | as [`renew_slot`] |
/// | [`force_release_all`] | as [`release_slot`], for each slot | the session's limit for each | [`StatementTimeout`] | as [`renew_slot`] |
/// | [`held_slots`], [`last_number`], [`semaphores`], [`sequences`] | nothing | | | |
/// | [`held_object_locks`] | nothing, also while the table is locked | | | not on SQLite |
/// | [`register_semaphores`], [`purge_slots`], [`raise_fences`] | sessions that add or remove slots | the session's limit | [`StatementTimeout`] | as [`renew_slot`] |
/// | [`next_number`], [`next_numbers`] | the transaction that drew before from the same sequence; MySQL, MariaDB: the first draw of a process from a sequence also waits, up to 5 s, while another session waits for a new sequence | the session's limit | [`StatementTimeout`] | waits for any other writer up to `busy_timeout` (0 in Diesel) |
/// | [`run_transaction`] | the pauses between attempts | [`RetryPolicy::max_elapsed`](crate::RetryPolicy::max_elapsed), 30 s by default | the error of the last attempt | BEGIN waits for other writers up to `busy_timeout` |
/// | [`migrate`] | another session that migrates | PostgreSQL: `lock_timeout`; MySQL, MariaDB: no limit | [`StatementTimeout`] | waits for other writers without limit |
/// | `SlotGuard::release` | a connection of the pool, then as [`release_slot`] | the pool's `connection_timeout`, and the session's limit | `Pool`, [`StatementTimeout`] | as [`release_slot`] |
/// | `SlotRenewer::try_acquire`, `acquire`, `try_run` | a connection of the pool, then as the method without a renewer | the pool's `connection_timeout`, 30 s by default, and the limit of that method | `Pool`, `Stopped` | as the method without a renewer |
/// | `SlotRenewer::run_as_leader`, `run_on_timer` | an election or a tick, again and again | their `StopToken`, and the closure | `Ok`; the closure's error | as `SlotRenewer::acquire` |
/// | `Shutdown::shut_down` | closures, guards and transactions | its argument, and the release of the slots that are left, for which it waits at least 0.5 s for a connection | what had not ended | the release waits for other writers up to SQLite's limit |
/// | `SlotRenewer::release_guards` | a connection of the pool | the pool's `connection_timeout` | the number of released slots | waits for other writers up to SQLite's limit |
/// | `LockPool::with_object_lock` | a connection of the pool for each attempt, and the locks | [`Wait`] of the request, the pool's `connection_timeout` by default | [`LockTimeout`]; [`Unavailable`] with [`Wait::No`]; `Pool`, `Stopped` | waits for any other writer |
/// | `LockPool::with_slot` | a connection of the pool for each attempt, and a slot | the argument [`Wait`] | [`LockTimeout`], [`Unavailable`], `Pool`, `Stopped` | any other writer holds all slots |
/// | `LockPool::try_with_slot` | a connection of the pool, then as [`try_with_slot`] | the pool's `connection_timeout`, and about 2 s | `None`, `Pool`, `Stopped` | any other writer holds all slots |
/// | dropping a `SlotGuard` | the renewer's thread, which releases the slot | 200 ms | | |
/// | `AsyncLockPool::..` | as `LockPool::..`; without a limit the request waits as long as the pool does for a connection: bb8's `connection_timeout`, deadpool's `wait_timeout` or 30 s if it has none | | `AsyncPool` in place of `Pool` | as `LockPool::..` |
/// | `AsyncSlotRenewer::..`, `AsyncSlotGuard::release` | as `SlotRenewer::..`, `SlotGuard::release`, with these time-outs of the pool | | `AsyncPool` in place of `Pool` | as `SlotRenewer::..` |
/// | `AsyncShutdown::shut_down` | as `Shutdown::shut_down` | its argument; the release of the slots that are left takes no longer than the rest of it, or 0.5 s | as `Shutdown::shut_down` | the same limit |
/// | dropping an `AsyncSlotGuard` | nothing | | | |
/// | dropping a future | nothing | | | the statement that is running |
///
/// [`Wait::AtMost`] includes waits for a table that another session has locked (`LOCK TABLES`, `ALTER TABLE`). The rows of
/// the table without [`Wait`] do not: for a locked table they wait up to `lock_timeout` on PostgreSQL, and up to
/// `lock_wait_timeout` on MySQL and MariaDB.
///
/// On MySQL, while an `ALTER TABLE` waits for a transaction that uses a table of this crate, the server lets no session
/// prepare a statement on that table. All methods then wait up to the session's `lock_wait_timeout` (a year by default),
/// also those with `try_` and with [`Wait::AtMost`]: set it to a few seconds.
///
/// A COMMIT on MySQL and MariaDB waits up to `lock_wait_timeout` while a backup blocks it (`BACKUP STAGE BLOCK_COMMIT` on
/// MariaDB, `FLUSH TABLES WITH READ LOCK`), whatever the [`Wait`]. Then the transaction is rolled back, and the error is
/// [`StatementTimeout`]. On MariaDB [`try_acquire_slot`] does not wait for such a backup: it returns [`LockTimeout`].
///
/// To limit a draw on PostgreSQL, send `SET LOCAL lock_timeout = '2s'` in its transaction.
///
/// # The transaction after an error
///
/// After `None`, `false`, [`Unavailable`], [`LockTimeout`], [`SlotLost`] and [`NotRegistered`] an open transaction remains
/// usable on every engine, with the exceptions of the table, and holds no lock of the request. After
/// [`PartlyLocked`](crate::Error::PartlyLocked) it is usable too, but may hold some of them: roll it back. After
/// [`Deadlock`] roll it back on every engine.
///
/// | in an open transaction | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | [`lock_object`] with [`Wait::AtMost`] | usable after any error | usable; not after [`LockTimeout`] if the server has `innodb_rollback_on_timeout` | usable |
/// | [`lock_object`] with [`Wait::Forever`] | after an error of the database, [`LockTimeout`] included, only ROLLBACK is accepted | as above | usable |
/// | [`lock_object`] with [`Wait::No`], [`try_lock_object`] | usable; after another error of the database only ROLLBACK is accepted | usable; on MariaDB with `innodb_rollback_on_timeout` a refusal ends the transaction, and is [`TransactionAborted`](crate::Error::TransactionAborted) | usable |
/// | `with_..` and `try_with_..`, which open a savepoint | usable after any error | usable, with the exceptions above; the locks may be held until the end | usable; the locks are held until the end |
/// | slots | after another error of the database only ROLLBACK is accepted | usable | usable |
/// | draws | after an error of the database only ROLLBACK is accepted | usable; not after [`StatementTimeout`] if the server has `innodb_rollback_on_timeout` | usable |
///
/// # A client that vanishes
///
/// When a process dies, the operating system closes its connections. A server that waits for the next statement of the session
/// notices that at once, rolls back, and releases the locks. While it runs a statement of the session (a long query, a wait for
/// another lock), it does not notice it: the transaction holds its locks until the statement ends. On PostgreSQL 14 or newer
/// set `client_connection_check_interval = '1s'`: the server then looks for a closed connection during statements too.
///
/// When a machine loses power or its network, nothing closes the connection: with the system's defaults the
/// server notices after two hours. Set keepalives and time-outs on the server: `tcp_keepalives_idle` and
/// `idle_in_transaction_session_timeout` on PostgreSQL, `wait_timeout` and the system's `tcp_keepalive_time` on MySQL and
/// MariaDB. [Time-outs that an application must
/// set](https://github.com/diesel-locks/diesel-locks/blob/main/docs/web-service.md#network-time-outs) lists
/// values for both sides. A leased slot does not depend on the connection: it is free when its lease expires.
///
/// [`with_object_lock`]: crate::ObjectLockExt::with_object_lock
/// [`with_object_locks`]: crate::ObjectLockExt::with_object_locks
/// [`lock_object`]: crate::ObjectLockExt::lock_object
/// [`try_with_object_lock`]: crate::ObjectLockExt::try_with_object_lock
/// [`try_with_object_locks`]: crate::ObjectLockExt::try_with_object_locks
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
/// [`held_slots`]: crate::InspectExt::held_slots
/// [`held_object_locks`]: crate::InspectExt::held_object_locks
/// [`semaphores`]: crate::InspectExt::semaphores
/// [`sequences`]: crate::InspectExt::sequences
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
/// [`LockTimeout`]: crate::Error::LockTimeout
/// [`Unavailable`]: crate::Error::Unavailable
/// [`StatementTimeout`]: crate::Error::StatementTimeout
/// [`SlotLost`]: crate::Error::SlotLost
/// [`NotRegistered`]: crate::Error::NotRegistered
/// [`Deadlock`]: crate::Error::Deadlock
pub mod blocking {}

pub mod sqlite;

#[cfg(feature = "_async")]
#[cfg_attr(
    docsrs,
    doc(cfg(any(
        feature = "async-postgres",
        feature = "async-mysql",
        feature = "async-sqlite"
    )))
)]
pub mod dropped_futures;

pub mod events;

#[doc = include_str!("../docs/privileges.md")]
pub mod privileges {}

// Its example compiles with these features only; errors link to it.
#[cfg_attr(
    any(not(doctest), all(feature = "_postgres", feature = "r2d2")),
    doc = include_str!("../docs/pgbouncer.md")
)]
pub mod pgbouncer {}
