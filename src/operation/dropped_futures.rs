//! What happens when the future of a method is dropped before it is ready, on connections of diesel-async.
//!
//! A future is dropped when a time-out passes, a client hangs up, `select!` takes another branch, a task is aborted or a
//! runtime is shut down. diesel-async's own `transaction` then leaves the transaction open, until the pool or the application
//! ends it. The methods of this crate end what they have started, at whichever `.await` they are dropped, also in their
//! closures:
//!
//! - What was not committed is rolled back, so locks and slots of transactions are free for others. A slot that was leased,
//!   and that nobody got, is released.
//! - A statement that is running is cancelled at the server, so that no waiter is left there.
//! - The connection is not used again. The pools bb8 and deadpool close it and make another. Whoever uses it without a pool
//!   gets errors, and connects again.
//!
//! Dropping does not wait for the server. A thread of this crate does the rest, which takes a few ms: it is started by the
//! first dropped future, and needs no runtime of the application. What does not wait in the database needs no end: a future
//! that is dropped while it waits in the queue of the process ([`acquire_slot`], [`with_slot`]), or before it is polled for
//! the first time, leaves its connection usable.
//!
//! # Outcomes
//!
//! | dropped | PostgreSQL | MySQL, MariaDB | SQLite |
//! |---|---|---|---|
//! | while it waits for a lock, a slot or a draw | the waiter leaves the server | the waiter leaves the server | no waiter is left |
//! | in the closure, between statements | rolled back | rolled back | rolled back |
//! | in a statement of the closure | cancelled, rolled back | cancelled, rolled back | rolled back when the statement has ended; the drop waits for it |
//! | at COMMIT | committed or rolled back, as a whole | committed or rolled back, as a whole | committed or rolled back, as a whole |
//! | a lease ([`try_acquire_slot`], [`acquire_slot`]) | released | released | released |
//! | [`renew_slot`], [`release_slot`] | done or not done | done or not done | done or not done |
//! | the connection afterwards, in a pool | replaced | replaced | replaced |
//! | the connection afterwards, without a pool | closed: each use is an error | its session is ended: each use is an error, but one or two statements that are not of this crate may get answers to earlier ones first | methods of this crate and transactions return an error; other statements work |
//!
//! # In an open transaction
//!
//! If the dropped future is that of a call inside an open transaction (a nested lock, [`lock_object`], a draw), the whole
//! transaction is rolled back at once, and can't be committed any more: the method of this crate that began it returns
//! [`Error::TransactionAborted`], and diesel-async's `transaction` an error. A closure that goes on gets errors for its
//! statements; on SQLite its reads work, and its writes fail. For a limited wait in a transaction use [`Wait::AtMost`] or
//! [`Wait::No`], after which the transaction is usable.
//!
//! The same holds for a statement of the application that is dropped in a closure which goes on: PostgreSQL's client reads
//! past its answer, and on SQLite diesel-async waits for it. On MySQL and MariaDB the client then takes its answer for that of
//! the next statement, COMMIT included. That is diesel-async's, with or without this crate: let the whole method be dropped
//! instead.
//!
//! # Panics, runtimes, processes
//!
//! A panic in a closure rolls back, and goes on afterwards, as on connections that block.
//!
//! A runtime that is shut down drops its tasks, and so the futures in them. Its connections are closed, which rolls back
//! their transactions, and their statements are cancelled. A runtime with one thread that is not running (`block_on` has
//! returned) sends nothing: statements are cancelled, but an idle transaction is rolled back when the runtime runs again, or is
//! dropped with its connections.
//!
//! On SQLite a statement of the application that is dropped while it runs panics on a runtime with one thread, in
//! diesel-async: use one with several threads.
//!
//! When a process is killed or exits, the system closes its connections, and the server rolls back. But a server does not
//! notice while it runs a statement, and a session that waits for a lock goes on waiting until it gets the lock, and only then
//! ends. Blocking processes have the same. On PostgreSQL 14 or newer set `client_connection_check_interval`, which any user may
//! do: the server then looks for a closed connection during statements. On MySQL and MariaDB the limits of the waits end them.
//!
//! ```text
//! postgres://app@db/shop?options=-c%20client_connection_check_interval%3D1s
//! ```
//!
//! # TLS
//!
//! A cancel request is a connection of its own. On MySQL and MariaDB it is made as the connection itself. On PostgreSQL it is
//! not encrypted, unless the application calls `set_cancel_tls`. PostgreSQL accepts that even where it accepts only
//! encrypted connections, and the request contains nothing but the session's number and its key for cancelling. But it
//! fails with `sslmode=require`, and before a proxy that wants TLS. A request that fails is logged as a warning, with the
//! target `diesel_locks::cancel`. A statement that can't be cancelled runs to its end: a waiter waits until it gets its
//! lock, which is then released at once.
//!
//! [`lock_object`]: crate::AsyncObjectLockExt::lock_object
//! [`try_acquire_slot`]: crate::AsyncSemaphoreExt::try_acquire_slot
//! [`acquire_slot`]: crate::AsyncSemaphoreExt::acquire_slot
//! [`renew_slot`]: crate::AsyncSemaphoreExt::renew_slot
//! [`release_slot`]: crate::AsyncSemaphoreExt::release_slot
//! [`with_slot`]: crate::AsyncSemaphoreExt::with_slot
//! [`Error::TransactionAborted`]: crate::Error::TransactionAborted
//! [`Wait::AtMost`]: crate::Wait::AtMost
//! [`Wait::No`]: crate::Wait::No
