//! How to operate an application that uses this crate: when calls block, dropped futures, events, GRANTs, poolers, SQLite.

/// When each method blocks, for how long, and what is usable afterwards.
///
/// Methods of Diesel's connections and of r2d2's pools block the thread: in async code call them in `spawn_blocking` or its like.
/// Those of diesel-async's connections and pools are futures. A method of a connection occupies it while it waits. A `LockPool`
/// waits without a connection for object locks and slots of transactions, and a `SlotRenewer` for leased slots.
///
/// "SQLite's limit": 5 s or the connection's `busy_timeout`, whichever is longer. "the session's limit": `lock_timeout` on
/// PostgreSQL (none by default), `innodb_lock_wait_timeout` on MySQL and MariaDB (50 s by default). "the pool's time-out": r2d2's
/// and bb8's `connection_timeout` (30 s by default), deadpool's `wait_timeout` (30 s if it has none); bb8 and deadpool return
/// `AsyncPool` in place of `Pool`.
///
/// | method | waits for | at most | then returns | on SQLite |
/// |---|---|---|---|---|
/// | `with_object_lock`, `lock_object` | the locks | [`Wait`](crate::Wait) of the request, without limit by default (in an open transaction on MySQL and MariaDB `innodb_lock_wait_timeout`); up to 250 ms longer | `LockTimeout`; `Unavailable` with `Wait::No` | waits for any other writer |
/// | `try_with_object_lock`, `try_lock_object` | nothing | 50 ms; longer with thousands of ids; 200 ms on MySQL and MariaDB while the table is locked | `None`, `LockOutcome::Unavailable` | any other writer holds the lock |
/// | `purge_object_locks` | nothing; skips held rows | | | waits for other writers without limit |
/// | `try_acquire_slot`, `try_with_slot` | no slot; it may be delayed: 30 ms if other sessions lock the free slots, 10 ms in a busy process, 2 s while slots are added or removed | about 2 s | `None` | a grant of `try_acquire_slot` waits for other writers up to SQLite's limit, then `LockTimeout` |
/// | `acquire_slot`, `with_slot`, `with_slots` | a slot, or [several permits](crate::LeaseOptions::permits) | the argument `Wait`, and one more statement (several permits: for each of them, and two; or 2 s) | `LockTimeout`; `Unavailable` with `Wait::No` | each attempt to lease a free slot waits for other writers up to SQLite's limit, even if `Wait` is shorter. The wait ends at its own limit |
/// | `renew_slot`, `release_slot`, `request_release`, `set_slot_data`, `force_release_all` for each slot | a transaction that has renewed, released or acquired this slot; on MySQL and MariaDB also one that has pinned it | the session's limit | `StatementTimeout` | waits for other writers up to SQLite's limit, then `LockTimeout` |
/// | `pin_slot` | PostgreSQL: a transaction that acquired the slot after its lease had expired; MySQL, MariaDB: one that has renewed, released or acquired it | the session's limit | `StatementTimeout` | as `renew_slot` |
/// | `register_semaphores`, `set_permits`, `purge_slots`, `raise_fences` | sessions that add or remove slots | the session's limit | `StatementTimeout` | as `renew_slot` |
/// | `next_number`, `next_numbers` | the transaction that drew before from the same sequence; MySQL, MariaDB: the first draw of a process from a sequence also waits, up to 5 s, while another session waits for a new sequence | the session's limit | `StatementTimeout` | waits for any other writer up to `busy_timeout` (0 in Diesel) |
/// | `last_number`, and those of `InspectExt` | nothing | | | |
/// | `run_transaction` | the pauses between attempts; with `LockRequest::retry` in each attempt as `with_object_lock`; of a `LockPool`: connections | `RetryPolicy::max_elapsed`, 30 s by default; each connection: the pool's time-out | the error of the last attempt | BEGIN waits for other writers up to `busy_timeout` |
/// | `migrate` | another session that migrates | PostgreSQL: `lock_timeout`; MySQL, MariaDB: no limit | `StatementTimeout` | waits for other writers without limit |
/// | `run_migrations` | another session that runs them; in it as `migrate` | no limit | | without limit; a statement outside of a transaction for other writers up to 60 s, or `busy_timeout` if that is longer |
/// | `LockPool::..`, `SlotRenewer::try_acquire`, `acquire`, `try_run` | a connection of the pool for each attempt, then as the method of a connection | the pool's time-out, and the limit of that method (`LockPool::with_object_lock` without a `Wait`: the pool's time-out) | as that method; `Pool`, `Stopped` | as that method |
/// | `SlotRenewer::run_as_leader`, `run_on_timer` | an election or a tick, again and again | the stop of the renewer, and the closure | `Ok`; the closure's error; an error that is not retried, such as missing tables | as `SlotRenewer::acquire` |
/// | `SlotRenewer::release_guards`, `SlotGuard::release` | a connection of the pool, then as `release_slot`; `release_guards` skips locked slots | the pool's time-out, and the session's limit | `release_guards`: the number of released slots; `release`: `Pool`, `StatementTimeout` | as `release_slot` |
/// | dropping a `SlotGuard` | the renewer's thread, which releases the slot; a `SlotGuard<Async>`: nothing | 200 ms | | |
/// | `Shutdown::shut_down` | closures, guards and transactions | its argument, and the release of the slots that are left, for which it waits at least 0.5 s for a connection; `Shutdown<Async>`: no longer than the rest of its argument, or 0.5 s | what had not ended | the release waits for other writers up to SQLite's limit |
/// | dropping a future | nothing | | | the statement that is running |
///
/// `Wait::AtMost` includes waits for a table that another session has locked (`LOCK TABLES`, `ALTER TABLE`). The methods above
/// that have no `Wait`, except those with `try_` and `held_object_locks`, wait for such a table up to `lock_timeout` on PostgreSQL, and up to
/// `lock_wait_timeout` on MySQL (a year by default) and MariaDB (a day): set it to a few seconds. On MySQL, while an `ALTER TABLE` waits for a transaction that
/// uses a table of this crate, all methods wait up to `lock_wait_timeout`, also those with `try_` and with `Wait::AtMost`.
///
/// A COMMIT on MySQL and MariaDB waits up to `lock_wait_timeout` while a backup blocks it (`BACKUP STAGE BLOCK_COMMIT` on
/// MariaDB, `FLUSH TABLES WITH READ LOCK`), whatever the `Wait`. Then the transaction is rolled back, and the error is
/// `StatementTimeout`. On MariaDB `try_acquire_slot` does not wait for such a backup: it returns `LockTimeout`.
///
/// # The transaction after an error
///
/// After `None`, a refusal, `LockTimeout`, `NotRegistered` and `UnknownSemaphore` an open transaction remains usable on every engine, with
/// the exceptions of the table, and holds no lock of the request. After `SlotLost` it is usable too, but may have locked the slot of another holder: roll it back. After `PartlyLocked` it may hold some of the locks:
/// roll it back, or request them again. After `Deadlock` roll it back on every engine.
///
/// | in an open transaction | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | `lock_object` with `Wait::AtMost` | usable after any error | usable; not after `LockTimeout` if the server has `innodb_rollback_on_timeout` | usable |
/// | `lock_object` with `Wait::Forever` | after an error of the database, `LockTimeout` included, only ROLLBACK is accepted | as above | usable |
/// | `lock_object` with `Wait::No`, `try_lock_object` | usable; after another error of the database only ROLLBACK is accepted | usable; on MariaDB with `innodb_rollback_on_timeout` a refusal ends the transaction, and is `TransactionAborted` | usable |
/// | `with_..` and `try_with_..`, which open a savepoint | usable after any error | usable, with the exceptions above; the locks may be held until the end | usable; the locks are held until the end |
/// | slots | after another error of the database only ROLLBACK is accepted | usable | usable |
/// | draws | after an error of the database only ROLLBACK is accepted | usable; not after `StatementTimeout` if the server has `innodb_rollback_on_timeout` | usable |
///
/// # A client that vanishes
///
/// When a process dies, its connections are closed. The server rolls back and releases the locks at once, or when a statement that
/// it runs for the session (a long query, a wait for another lock) has ended. On PostgreSQL 14 or newer set
/// `client_connection_check_interval = '1s'`, as any user may, also in the URL
/// (`?options=-c%20client_connection_check_interval%3D1s`): the server then looks for a closed connection during statements too.
///
/// When a machine loses power or its network, nothing closes the connection: with the system's defaults the server notices after
/// two hours. [Set time-outs](https://github.com/diesel-locks/diesel-locks/blob/main/docs/web-service.md#network-time-outs). A
/// leased slot is free when its lease expires, whatever the connection does.
pub mod blocking {}

/// What happens when the future of a method is dropped before it is ready, on connections of diesel-async.
///
/// The methods of this crate end what they have started, at whichever `.await` they are dropped, also in their closures: when a
/// time-out passes, a client hangs up, `select!` takes another branch, a task is aborted or a runtime is shut down. (diesel-async's
/// own `transaction` leaves the transaction open.)
///
/// | dropped | outcome |
/// |---|---|
/// | while it waits for a lock, a slot or a draw | the statement is cancelled at the server: no waiter is left |
/// | in the closure | rolled back. A statement that is running is cancelled; on SQLite the drop waits for its end |
/// | at COMMIT | committed or rolled back, as a whole |
/// | a lease (`try_acquire_slot`, `acquire_slot`, all of `SlotRenewer` and `SlotGuard`) | [released](#leases) |
/// | `renew_slot`, `release_slot`, `request_release`, `set_slot_data` | done or not done |
/// | between two attempts (of `acquire_slot`, `with_slot` or `with_slots`), before the first poll | nothing was started: the connection stays usable. What a request for several permits keeps is free after 5 s at most |
///
/// The connection is not used again: bb8 and deadpool close it and open another. Without a pool, close it and open a new one. On
/// PostgreSQL each use of the old one is an error. On MySQL and MariaDB the next one or two statements of the application may return
/// the answers to earlier statements; later ones are errors. On SQLite methods of this crate and transactions return an error; other statements work, with
/// the settings that the method has made (`busy_timeout` may be 0 or 200 ms, and `query_only` may be on).
///
/// Dropping does not wait for the server. A thread of this crate does the rest in a few ms, without a runtime. Allow some
/// connections more on the server than the pools have: a session that is being ended exists beside the one that replaces it, and a
/// cancel request is a connection of its own.
///
/// A future that is kept and not polled keeps its locks and its connection: a branch of `select!` by reference, or a buffered stream
/// whose consumer awaits something else. Two such futures of one task can wait for each other until a limit passes; in a queue of
/// the process one delays others by about 100 ms, several by some seconds. Await them together, spawn them, or drop them.
///
/// # Leases
///
/// A slot that was leased is released by a statement after the one that acquired it. In rare cases that fails, and the slot is free
/// when its lease expires: if another session has the slot's row locked, if the connection is lost, on MySQL and MariaDB if the server
/// takes longer than 60 ms for it, and on SQLite if another connection writes for longer than 200 ms. On MySQL and MariaDB also if
/// the connection is a Unix socket (on the server's own machine, unless the URL has `prefer_socket=false`), and the application
/// closes it, or returns it to its pool, while the server acquires the slot; `SlotRenewer` keeps it open.
///
/// # In an open transaction
///
/// If the dropped future is that of a call inside an open transaction (a nested lock, `lock_object`, a draw), the whole
/// transaction is rolled back at once: the method of this crate that began it returns
/// [`Error::TransactionAborted`](crate::Error::TransactionAborted), and diesel-async's `transaction` an error. A closure that
/// continues gets errors for its statements; on SQLite its reads work, and its writes fail. For a limited wait in a transaction use
/// `Wait::AtMost` or `Wait::No`, after which the transaction is usable.
///
/// # MySQL and MariaDB
///
/// The client can't send a rollback before it has read all rows of a statement of the closure: then the transaction ends when the
/// connection is closed. bb8, `LockPool` and `SlotRenewer` close it at once, deadpool at the next `get` if the application took it
/// by `pool.get()`.
///
/// After a statement of the application that is dropped, diesel-async's client takes its answer for that of the next statement,
/// also for that of COMMIT: drop the future of the whole method instead. Outside of a method of this crate the pool lends that
/// connection again, and a lock may be reported that is not acquired yet. `LockPool` and `SlotRenewer` detect and discard such
/// connections. For connections that the application borrows by itself spawn such statements (`tokio::spawn`), or run them in
/// `run_transaction`. bb8 itself drops its check of a connection when `connection_timeout` passes: with `test_on_check_out(false)`
/// it makes none.
///
/// A cancel request is a connection like the first, encrypted or not. It names the session by its number, at the same address: use a
/// proxy that sends all connections of a client to one server, or it may lead the request to another session of the same user.
/// Requests are repeated every 200 ms until the session has ended, for 16 s at most, and stop after one that does not reach the
/// server: only a restart within 200 ms could lead one to a new session.
///
/// # Runtimes and processes
///
/// A runtime that is shut down drops its tasks, and so the futures in them. A runtime of one thread
/// that does not run (`block_on` has returned) rolls an idle transaction back only when it runs again, or is dropped.
///
/// On SQLite use a runtime with several threads, and no `LocalSet` in it: with one thread diesel-async panics when a statement of
/// the application is dropped while it runs, and in a `LocalSet` the futures of this crate panic too when they are dropped while a
/// statement of their closure runs. The end of a runtime may take as long as the `busy_timeout`.
///
/// When a process is killed or exits, the system closes its connections:
/// [A client that vanishes](crate::operation::blocking#a-client-that-vanishes).
///
/// # Cancel requests
///
/// A statement that can't be cancelled runs to its end: a waiter waits until it gets its lock, which is then released at once. At most
/// eight cancel requests of a process are on their way, for 5 s each, whichever servers they go to.
///
/// On PostgreSQL a request contains the session's number and its key for cancelling. It is not encrypted, unless the application calls
/// `set_cancel_tls`. A connection on which the server does not answer is closed after about a minute.
#[cfg(feature = "_async")]
pub mod dropped_futures {}

/// The events and spans that this crate records by [`tracing`](https://docs.rs/tracing), for logs and OpenTelemetry.
///
/// A later version of this crate may change messages and levels, but not the targets, outcomes and fields of the table. `waited_us`
/// and `held_us` are whole microseconds (`u64`); `waited` and `held` are the same durations as texts, and `pause` is a text too.
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
/// | | `released` | a `SlotGuard` (also by `into_slot`), or the transaction that was begun for a slot, has ended | `semaphore`, `number` of a leased slot, `held_us`, `held` |
/// | | `lost` | a `SlotGuard` is lost: its lease was not renewed, or it was released by force | `semaphore`, `number`, `held_us`, `held` |
/// | | `stalled` | the lease of a `SlotGuard` is not renewed, because no [progress](crate::LeaseOptions::progress_within) is reported | `semaphore`, `number`, `pause` |
/// | `diesel_locks::transaction` | `retried` | a transaction is about to run again, by its [`RetryPolicy`](crate::RetryPolicy) | `reason`, `attempt`, `pause` |
///
/// A request ends with one of `granted`, `refused`, `timed_out`, `stopped` and `failed`, so their sum counts the requests, also
/// those in an open transaction. `lock_object` and `release_slot` record no `released`: the crate does not see when the transaction
/// ends, or when the slot was acquired. A lost guard records `lost` and no `released`. The guard of a tick begins
/// when its closure is called; a tick that is not begun records no `released`. Other events, such as renewals that failed,
/// have targets that begin with `diesel_locks::` too, and no `outcome`.
///
/// Two spans of level DEBUG have the targets `diesel_locks::object_lock` and `diesel_locks::slot`: `diesel_locks.wait`, from a request to
/// its grant or failure, and `diesel_locks.hold`, from the grant until the transaction has ended or the guard is dropped, also one that
/// is lost. Each has the field `ids` or `semaphore`. Its parent is the span in which the request is made. The hold of a guard has no
/// parent, which would stay open as long as the guard lives, and follows from that span. This crate does not enter its
/// spans: those of a closure have the same parent as without it.
///
/// The feature `metrics` [counts the events](https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#metrics).
pub mod events {}

#[doc = include_str!("../../docs/privileges.md")]
pub mod privileges {}

// Its example compiles with these features only; errors link to it.
#[cfg_attr(
    any(not(doctest), all(feature = "_postgres", feature = "r2d2")),
    doc = include_str!("../../docs/pgbouncer.md")
)]
pub mod pgbouncer {}

pub mod sqlite {
    //! What to set on each connection to SQLite: WAL mode and a `busy_timeout`.
    //!
    //! SQLite 3.38 or newer is required. All processes must run on one machine, whose clock measures leases: WAL mode does not work
    //! on a network file system. SQLite has one writer per database, so every lock, slot and draw of this crate waits for other
    //! writers.
    //!
    //! - `PRAGMA busy_timeout`: how long BEGIN, COMMIT and other statements wait for another connection. It is 0 in Diesel:
    //!   they fail at once with "database is locked". While this crate waits for a lock, it sets its own `busy_timeout`.
    //! - `PRAGMA journal_mode = WAL`: in the other modes COMMIT waits for readers.
    //!
    //! `prepare`, `prepare_async` and `PrepareConnection` set both. Use them and not the text: where several connections switch a new
    //! file to WAL at the same time, SQLite does not always wait, and one of them fails with "database is locked".
    //!
    //! Do not copy or read the file `-shm` of an open database in the process itself: when it closes that file, the operating system
    //! cancels the locks of all its connections, and two of them may write at the same time. Make backups with `VACUUM INTO` or
    //! SQLite's backup API.
    //!
    //! Connections that share a cache (`cache=shared`) wait for object locks as others do. A statement on a table that another
    //! of them is using fails at once with "database table is locked", also a statement of this crate on slots.

    /// Sets WAL mode, and a `busy_timeout` of 5 s, in place of which another one can be set afterwards.
    ///
    /// # Errors
    ///
    /// Diesel's, for example "database is locked" if another connection has kept the file from being switched for 5 s.
    ///
    /// ```
    /// use diesel::prelude::*;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("app.db").display().to_string();
    /// let mut conn = SqliteConnection::establish(&path)?; // "app.db"
    /// diesel_locks::operation::sqlite::prepare(&mut conn)?;
    /// diesel_locks::migrate(&mut conn)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "sqlite")]
    pub fn prepare(conn: &mut diesel::SqliteConnection) -> diesel::QueryResult<()> {
        crate::rt::block_on(set::both(conn))
    }

    /// [`prepare`] on a connection of diesel-async.
    ///
    /// ```
    /// use diesel::SqliteConnection;
    /// use diesel_async::AsyncConnection;
    /// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
    /// use diesel_locks::operation::sqlite::prepare_async;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("app.db").display().to_string();
    /// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(&path).await?;
    /// prepare_async(&mut conn).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [An example] opens a pool of such connections.
    ///
    /// # Errors
    ///
    /// As [`prepare`].
    ///
    /// [An example]: https://github.com/diesel-locks/diesel-locks/blob/main/examples/sqlite/asynchronous.rs
    #[cfg(feature = "async-sqlite")]
    pub async fn prepare_async(
        conn: &mut diesel_async::sync_connection_wrapper::SyncConnectionWrapper<
            diesel::SqliteConnection,
        >,
    ) -> diesel::QueryResult<()> {
        set::both(conn).await
    }

    /// Has a pool of r2d2 [prepare] each connection.
    ///
    /// ```
    /// use diesel::SqliteConnection;
    /// use diesel::r2d2::{ConnectionManager, Pool};
    /// use diesel_locks::operation::sqlite::PrepareConnection;
    ///
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("app.db").display().to_string();
    /// let pool = Pool::builder()
    ///     .connection_customizer(Box::new(PrepareConnection))
    ///     .build(ConnectionManager::<SqliteConnection>::new(path)); // "app.db"
    /// # diesel_locks::migrate(&mut pool.expect("a pool").get().expect("a connection")).expect("no tables yet");
    /// ```
    #[cfg(all(feature = "sqlite", feature = "r2d2"))]
    #[derive(Clone, Copy, Debug)]
    pub struct PrepareConnection;

    #[cfg(all(feature = "sqlite", feature = "r2d2"))]
    impl diesel::r2d2::CustomizeConnection<diesel::SqliteConnection, diesel::r2d2::Error>
        for PrepareConnection
    {
        fn on_acquire(
            &self,
            conn: &mut diesel::SqliteConnection,
        ) -> Result<(), diesel::r2d2::Error> {
            prepare(conn).map_err(diesel::r2d2::Error::QueryError)
        }
    }

    #[cfg(feature = "_sqlite")]
    mod set {
        use std::time::{Duration, Instant};

        use diesel::QueryResult;
        use diesel::sqlite::Sqlite;

        use crate::error::classify::{ErrorClass, classify};
        use crate::link::Link;
        use crate::rt;
        use crate::rt::backoff;

        /// The `busy_timeout`, and how long the switch to WAL mode is tried.
        const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

        /// The longest pause between two attempts to switch.
        const PAUSE: Duration = Duration::from_millis(20);

        pub(crate) async fn both<C: Link<Db = Sqlite>>(conn: &mut C) -> QueryResult<()> {
            let set = format!("PRAGMA busy_timeout = {}", BUSY_TIMEOUT.as_millis());
            conn.batch(&set).await?;
            let started = Instant::now();
            loop {
                match conn.batch("PRAGMA journal_mode = WAL").await {
                    // Two connections that both want to switch would wait for each other, so SQLite lets one of them fail at once.
                    Err(error)
                        if classify(&error) == ErrorClass::Busy
                            && started.elapsed() < BUSY_TIMEOUT =>
                    {
                        rt::pause(backoff::jittered(PAUSE)).await;
                    }
                    done => return done,
                }
            }
        }
    }
}
