//! What happens when the future of a method is dropped before it is ready, on connections of diesel-async.
//!
//! When a time-out passes, a client hangs up, `select!` takes another branch, a task is aborted or a runtime is shut down, the
//! methods of this crate end what they have started, at whichever `.await` they are dropped, also in their closures.
//! (diesel-async's own `transaction` leaves the transaction open.)
//!
//! - What was not committed is rolled back. A slot that was leased, and that nobody got, is released.
//! - A statement that is running is cancelled at the server, so that no waiter is left there.
//! - The connection is not used again. The pools bb8 and deadpool close it and open another. Without a pool, close it and
//!   open a new one.
//!
//! Dropping does not wait for the server. A thread of this crate does the rest in a few ms, without a runtime. If the future is
//! dropped between two attempts (of [`acquire_slot`] or [`with_slot`]) or before its first poll, the connection stays usable.
//!
//! Until the old session has ended, it exists beside the one that replaces it, and a cancel request is a connection of its
//! own: allow some connections more on the server than the pools have.
//!
//! A future that is kept and not polled keeps its locks and its connection: a branch of `select!` by reference, or a stream
//! of buffered futures whose consumer awaits something else. Two such futures of one task can wait for each other until a
//! limit passes; in a queue of the process one delays others by about 100 ms, several by some seconds. Await them together, spawn
//! them, or drop them.
//!
//! # Outcomes
//!
//! | dropped | PostgreSQL | MySQL, MariaDB | SQLite |
//! |---|---|---|---|
//! | while it waits for a lock, a slot or a draw | the waiter leaves the server | the waiter leaves the server | no waiter is left |
//! | in the closure, between statements | rolled back | rolled back | rolled back |
//! | in a statement of the closure | cancelled, rolled back | cancelled, rolled back | rolled back when the statement has ended; the drop waits for it |
//! | at COMMIT | committed or rolled back, as a whole | committed or rolled back, as a whole | committed or rolled back, as a whole |
//! | a lease ([`try_acquire_slot`], [`acquire_slot`], all of `SlotRenewer` and `SlotGuard`) | released | released | released |
//! | [`renew_slot`], [`release_slot`] | done or not done | done or not done | done or not done |
//! | the connection afterwards, without a pool | closed: each use is an error | connect again: its session is ended, and one or two statements that are not of this crate may return answers to earlier ones before each use is an error | methods of this crate and transactions return an error; other statements work, with the settings that the method has made (`busy_timeout` may be 0 or 200 ms, and `query_only` may be on) |
//!
//! A slot that was leased is released by a statement after the one that acquired it. In rare cases that fails, and the slot is free
//! when its lease ends: if another session has the slot's row locked, if the connection is lost, on MySQL and MariaDB if the server
//! takes longer than 60 ms for it, and on SQLite if another connection writes for longer than 200 ms.
//!
//! On MySQL and MariaDB it also fails if the connection is a Unix socket (which the client uses on the server's own machine,
//! unless the URL has `prefer_socket=false`), and the application closes it, or returns it to its pool, while the server acquires
//! the slot. `SlotRenewer` keeps the connection open until the server has ended the session.
//!
//! On MySQL and MariaDB the client can't send a rollback before it has read all rows of a statement of the closure: then the
//! transaction ends when the connection is closed. bb8, `LockPool` and `SlotRenewer` close it at once, deadpool at the next `get` if
//! the application took it by `pool.get()`.
//!
//! # In an open transaction
//!
//! If the dropped future is that of a call inside an open transaction (a nested lock, [`lock_object`], a draw), the whole
//! transaction is rolled back at once: the method of this crate that began it returns [`Error::TransactionAborted`], and
//! diesel-async's `transaction` an error. A closure that continues gets errors for its statements; on SQLite its reads work, and its
//! writes fail. For a limited wait in a transaction use [`Wait::AtMost`] or [`Wait::No`], after which the transaction is usable.
//!
//! # Statements of the application on MySQL and MariaDB
//!
//! After a statement of the application that is dropped, diesel-async's client takes its answer for that of the next statement.
//! In a closure that continues this includes COMMIT: drop the future of the whole method instead. (PostgreSQL's client reads past the
//! answer, and on SQLite diesel-async waits for it.)
//!
//! Outside of a method of this crate the pool lends that connection again: the check of bb8 and deadpool does not notice it, and a
//! lock may be reported that is not acquired yet. `LockPool` and `SlotRenewer` discard such connections: they send a number to
//! each connection that they borrow, and compare the answer. The methods of a connection that the application borrows by itself do
//! not. Where clients may hang up, spawn such statements (`tokio::spawn`), or run them in [`run_transaction`], whose connection is
//! discarded when it is dropped. bb8 itself drops its check of a connection when `connection_timeout` passes: with
//! `test_on_check_out(false)` it makes none.
//!
//! # Panics, runtimes, processes
//!
//! A runtime that is shut down drops its tasks, and so the futures in them. Its connections are closed, which rolls back
//! their transactions, and their statements are cancelled. A runtime with one thread that is not running (`block_on` has
//! returned) sends nothing: statements are cancelled, but an idle transaction is rolled back when the runtime runs again, or is
//! dropped with its connections. For the guards of a `SlotRenewer` see its page.
//!
//! On SQLite a statement of the application that is dropped while it runs panics on a runtime with one thread, in
//! diesel-async: use one with several threads. In a `LocalSet` of such a runtime, the futures of this crate
//! panic too when they are dropped while a statement of their closure runs: do not await them there. The end of a runtime may take
//! as long as the `busy_timeout`, because the drop of a statement that waits for a writer ends with the wait.
//!
//! When a process is killed or exits, the system closes its connections, and the server rolls back, but not while it runs a
//! statement: see [A client that vanishes](super::blocking#a-client-that-vanishes). For PostgreSQL 14 or newer set in the URL, as
//! any user may:
//!
//! ```text
//! postgres://app@db/shop?options=-c%20client_connection_check_interval%3D1s
//! ```
//!
//! # TLS
//!
//! On MySQL and MariaDB a cancel request is a connection like the first. On PostgreSQL it is not encrypted, unless the application
//! calls `set_cancel_tls`. PostgreSQL accepts that even where it accepts only encrypted connections, and the request contains nothing
//! but the session's number and its key for cancelling. But it fails with `sslmode=require`, and is logged as a warning, with the
//! target `diesel_locks::cancel`. With another `sslmode`, a proxy that requires TLS ignores it, and nothing reports that.
//!
//! A statement that can't be cancelled runs to its end: a waiter waits until it gets its lock, which is then released at once. On
//! PostgreSQL, a connection on which the server does not answer is closed after about a minute. At most eight cancel requests of a
//! process are on their way, for 5 s each, whichever servers they go to.
//!
//! # Proxies and restarts
//!
//! PostgreSQL's requests contain a key. Those on MySQL and MariaDB name the session by its number, at the same address. Behind
//! a proxy that distributes connections over several servers one may reach another server, and cancel there the statement of
//! a session of the same user with the same number: use a proxy that sends a client's connections to one server. A server that
//! restarts gives the same numbers to new sessions. Requests are repeated every 200 ms until the session has ended, for 16 s at most,
//! and stop after one that does not reach the server, so only a restart within 200 ms could lead one to a new session.
//!
//! [`run_transaction`]: crate::AsyncTransactionExt::run_transaction
//! [`lock_object`]: crate::AsyncObjectLockExt::lock_object
//! [`try_acquire_slot`]: crate::AsyncSemaphoreExt::try_acquire_slot
//! [`acquire_slot`]: crate::AsyncSemaphoreExt::acquire_slot
//! [`renew_slot`]: crate::AsyncSemaphoreExt::renew_slot
//! [`release_slot`]: crate::AsyncSemaphoreExt::release_slot
//! [`with_slot`]: crate::AsyncSemaphoreExt::with_slot
//! [`Error::TransactionAborted`]: crate::Error::TransactionAborted
//! [`Wait::AtMost`]: crate::Wait::AtMost
//! [`Wait::No`]: crate::Wait::No
