//! `SyncConnectionWrapper<SqliteConnection>`, whose statements run on threads for blocking work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use diesel::connection::{
    AnsiTransactionManager, Connection, LoadConnection, SimpleConnection, TransactionManager,
    TransactionManagerStatus,
};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::result::Error;
use diesel::sqlite::Sqlite;
use diesel::{QueryResult, SqliteConnection};
use diesel_async::AsyncConnectionCore;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::unconstrained;
use tokio::time::sleep;

use crate::error::classify::{ErrorClass, classify};
use crate::link::Link;
use crate::link::nonblocking::{rows, status};
use crate::link::raw_sql::{BusyTimeout, set_busy_timeout};
use crate::rt::{backoff, thread_waker};

pub(crate) type Conn = SyncConnectionWrapper<SqliteConnection>;

impl Link for Conn {
    type Backend = Sqlite;

    async fn batch(&mut self, sql: &str) -> QueryResult<()> {
        let sql = sql.to_owned();
        run(self, move |conn| conn.batch_execute(&sql)).await
    }

    async fn execute<Q>(&mut self, statement: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<Sqlite> + QueryId + Send,
    {
        Finishing(Some(self.execute_returning_count(statement))).await
    }

    async fn load<Q, T>(&mut self, query: Q) -> QueryResult<Vec<T>>
    where
        Q: AsQuery<Query: QueryFragment<Sqlite> + QueryId + Send> + Send,
        Sqlite: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Sqlite> + Send,
    {
        Finishing(Some(Box::pin(rows(self, query)))).await
    }

    fn status(&mut self) -> &mut TransactionManagerStatus {
        status(self)
    }

    /// Waits for another writer for `busy_timeout`, but not in SQLite: a dropped future would have to wait there.
    async fn begin(&mut self, sql: &str) -> QueryResult<()> {
        let started = Instant::now();
        for attempt in 0.. {
            let sql = sql.to_owned();
            let begun = run(self, move |conn| begin_at_once(conn, &sql));
            let Err(Busy { error, limit }) = begun.await? else {
                return Ok(());
            };
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(error);
            }
            let longest = backoff::growing(attempt, MIN_PAUSE, MAX_PAUSE);
            sleep(backoff::jittered(longest).min(left)).await;
        }
        unreachable!("attempts have no end")
    }

    async fn begin_nested(&mut self) -> QueryResult<()> {
        run(self, AnsiTransactionManager::begin_transaction).await
    }

    async fn commit(&mut self) -> QueryResult<()> {
        run(self, AnsiTransactionManager::commit_transaction).await
    }

    async fn roll_back(&mut self) -> QueryResult<()> {
        run(self, AnsiTransactionManager::rollback_transaction).await
    }

    /// No statement of this crate is running: [`Finishing`] has waited for it. A pool asks for the state of the connection
    /// at once, and diesel-async panics while a statement runs, so this waits for the statements too.
    fn abandon(&mut self, statements: &[&str]) {
        let statements: Vec<String> = statements.iter().map(|sql| (*sql).to_owned()).collect();
        let sent = finish(pin!(self.spawn_blocking(move |conn| {
            for sql in statements {
                let _ = conn.batch_execute(&sql);
            }
            Ok(())
        })));
        if sent.is_err() {
            close(self);
        }
        mark_broken(self);
    }

    fn droppable<F: Future<Output: Send> + Send>(
        future: F,
    ) -> impl Future<Output = F::Output> + Send {
        OffRuntime(Some(Box::pin(future)))
    }
}

/// Another connection writes.
struct Busy {
    error: Error,
    limit: Duration,
}

/// Begins a transaction. SQLite's `busy_timeout` is 0 meanwhile.
fn begin_at_once(conn: &mut SqliteConnection, sql: &str) -> QueryResult<Result<(), Busy>> {
    let millis = busy_timeout(conn)?;
    if millis == 0 {
        return AnsiTransactionManager::begin_transaction_sql(conn, sql).map(Ok);
    }
    conn.batch_execute(&set_busy_timeout(0))?;
    let begun = AnsiTransactionManager::begin_transaction_sql(conn, sql);
    let restored = conn.batch_execute(&set_busy_timeout(millis));
    let begun = match begun {
        Err(error) if classify(&error) == ErrorClass::Busy => {
            let limit = Duration::from_millis(millis.unsigned_abs().into());
            Err(Busy { error, limit })
        }
        begun => Ok(begun?),
    };
    restored?;
    Ok(begun)
}

fn busy_timeout(conn: &mut SqliteConnection) -> QueryResult<i32> {
    let mut rows = LoadConnection::load(conn, BusyTimeout {})?;
    let row = rows.next().ok_or(Error::NotFound)??;
    FromSqlRow::<diesel::sql_types::Integer, _>::build_from_row(&row)
        .map_err(Error::DeserializationError)
}

/// Closes the file, which rolls back. For a runtime that has been shut down, where no statement runs any more, while its
/// pool keeps the connection. In its place is an empty database, which refuses writes.
fn close(conn: &mut Conn) {
    let empty = SqliteConnection::establish(":memory:");
    if let Ok(mut empty) = empty
        && empty.batch_execute("PRAGMA query_only = 1").is_ok()
    {
        *conn = SyncConnectionWrapper::new(empty);
    }
}

/// diesel-async panics while another thread still has the connection. That of a statement whose future has panicked may have
/// it for a moment.
fn mark_broken(conn: &mut Conn) {
    for _ in 0..100 {
        let marked = catch_unwind(AssertUnwindSafe(|| status(conn).set_in_error()));
        if marked.is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A future that is dropped where its statements can be waited for. diesel-async waits for a statement that is dropped, and
/// panics on a runtime with one thread. What the closure has captured is dropped in the runtime, and may spawn tasks.
///
/// One that is ready runs no statement: it is dropped where it is, which saves a thread for each call.
struct OffRuntime<F: Future + Send>(Option<Pin<Box<F>>>);

impl<F: Future + Send> Future for OffRuntime<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.0.as_mut().expect("a future that was not ready");
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<F: Future + Send> Drop for OffRuntime<F> {
    fn drop(&mut self) {
        let Some(future) = self.0.take() else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            thread::scope(|scope| {
                let dropped = thread::Builder::new().spawn_scoped(scope, || {
                    let _entered = runtime.enter();
                    drop(future);
                });
                let _ = dropped.map(ScopedJoinHandle::join);
            });
        }
    }
}

const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(8);

/// Runs blocking work to its end, also when the future is dropped.
async fn run<T: Send + 'static>(
    conn: &mut Conn,
    work: impl FnOnce(&mut SqliteConnection) -> QueryResult<T> + Send + 'static,
) -> QueryResult<T> {
    Finishing(Some(conn.spawn_blocking(work))).await
}

/// Waits for the future when it is dropped, as [`OffRuntime`] does.
///
/// Statements of this crate are short: they wait for other writers in steps of at most 10 ms.
struct Finishing<F: Future + Unpin>(Option<F>);

impl<F: Future + Unpin> Future for Finishing<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // A future that panics can't be polled again, so `drop` must not find it.
        let mut future = self.0.take().expect("a future that was not ready");
        let polled = Pin::new(&mut future).poll(context);
        if polled.is_pending() {
            self.0 = Some(future);
        }
        polled
    }
}

impl<F: Future + Unpin> Drop for Finishing<F> {
    fn drop(&mut self) {
        if let Some(future) = &mut self.0 {
            let _ = finish(Pin::new(future));
        }
    }
}

fn finish<F: Future>(future: Pin<&mut F>) -> F::Output {
    let waker = thread_waker();
    let mut context = Context::from_waker(&waker);
    // The budget of the task that is dropped may be used up.
    let mut future = pin!(unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::mpsc::{Sender, channel};
    use std::task::Waker;
    use std::thread::ThreadId;

    use super::*;

    #[test]
    fn another_writer_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.sqlite3").display().to_string();
        let mut writer = SqliteConnection::establish(&path).expect("a database");
        writer.batch_execute("BEGIN IMMEDIATE").expect("BEGIN");
        let mut conn = SqliteConnection::establish(&path).expect("a database");
        conn.batch_execute("PRAGMA busy_timeout = 60000")
            .expect("PRAGMA");

        let begun = begin_at_once(&mut conn, "BEGIN IMMEDIATE").expect("an answer");
        let Err(Busy { limit, .. }) = begun else {
            panic!("two writers");
        };
        assert_eq!(limit, Duration::from_secs(60));
        assert_eq!(busy_timeout(&mut conn), Ok(60_000));

        writer.batch_execute("ROLLBACK").expect("ROLLBACK");
        let begun = begin_at_once(&mut conn, "BEGIN IMMEDIATE").expect("an answer");
        assert!(begun.is_ok());
        assert_eq!(busy_timeout(&mut conn), Ok(60_000));
    }

    struct Dropped(Sender<ThreadId>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[tokio::test]
    async fn future_that_is_ready_is_dropped_on_its_thread() {
        let (sender, threads) = channel();
        let dropped = Dropped(sender);
        // The closure owns it until the future is dropped.
        let ready = poll_fn(move |_| {
            let _ = &dropped;
            Poll::Ready(())
        });
        OffRuntime(Some(Box::pin(ready))).await;
        assert_eq!(threads.recv(), Ok(thread::current().id()));
    }

    /// Needs a runtime when it is dropped, as a connection of bb8 does.
    struct SpawnsInDrop(Option<tokio::sync::oneshot::Sender<()>>);

    impl Drop for SpawnsInDrop {
        fn drop(&mut self) {
            let sender = self.0.take();
            tokio::spawn(async move { sender.map(|sender| sender.send(())) });
        }
    }

    #[tokio::test]
    async fn destructor_that_needs_the_runtime_has_it() {
        let (sender, spawned) = tokio::sync::oneshot::channel();
        let spawns = SpawnsInDrop(Some(sender));
        let mut future = Box::pin(OffRuntime(Some(Box::pin(async move {
            let _spawns = spawns;
            pending::<()>().await;
        }))));
        let _ = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(future);
        assert_eq!(spawned.await, Ok(()));
    }

    #[tokio::test]
    async fn future_that_is_not_ready_is_dropped_off_a_runtime_of_one_thread() {
        let (sender, threads) = channel();
        let dropped = Dropped(sender);
        let mut future = Box::pin(OffRuntime(Some(Box::pin(async move {
            let _dropped = dropped;
            pending::<()>().await;
        }))));
        let _ = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(future);
        assert_ne!(threads.recv(), Ok(thread::current().id()));
    }
}
