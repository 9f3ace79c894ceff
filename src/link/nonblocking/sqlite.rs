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
use crate::link::nonblocking::{DroppedBy, rows, status};
use crate::link::raw_sql::{BusyTimeout, set_busy_timeout};
use crate::rt::{backoff, thread_waker};

pub(crate) type Conn = SyncConnectionWrapper<SqliteConnection>;

impl Link for Conn {
    type Db = Sqlite;

    async fn batch(&mut self, sql: &str) -> QueryResult<()> {
        let sql = sql.to_owned();
        run(self, move |conn| conn.batch_execute(&sql)).await
    }

    async fn execute<Q>(&mut self, statement: Q) -> QueryResult<usize>
    where
        Q: QueryFragment<Sqlite> + QueryId + Send,
    {
        finishing(self.execute_returning_count(statement)).await
    }

    async fn load<Q, T>(&mut self, query: Q) -> QueryResult<Vec<T>>
    where
        Q: AsQuery<Query: QueryFragment<Sqlite> + QueryId + Send> + Send,
        Sqlite: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Sqlite> + Send,
    {
        finishing(rows(self, query)).await
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

    /// No statement of this crate is running: [`finishing`] has waited for it. A pool asks for the state of the connection
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
        DroppedBy::new(future, drop_off_runtime)
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

/// diesel-async panics while the thread of a statement, whose future has panicked, still has the connection.
fn mark_broken(conn: &mut Conn) {
    for _ in 0..100 {
        let marked = catch_unwind(AssertUnwindSafe(|| status(conn).set_in_error()));
        if marked.is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Drops a future where its statements can be waited for. diesel-async waits for a statement that is dropped, and panics on a
/// runtime with one thread. What the closure has captured is dropped in the runtime, and may spawn tasks.
///
/// One that is ready runs no statement: it is dropped where it is, which saves a thread for each call.
fn drop_off_runtime<F: Future + Send>(future: Pin<Box<F>>) {
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

const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(8);

/// Runs blocking work to its end, also when the future is dropped.
async fn run<T: Send + 'static>(
    conn: &mut Conn,
    work: impl FnOnce(&mut SqliteConnection) -> QueryResult<T> + Send + 'static,
) -> QueryResult<T> {
    finishing(conn.spawn_blocking(work)).await
}

/// Waits for the future when it is dropped. Statements of this crate are short: they wait for other writers for at most 10 ms.
fn finishing<F: Future>(future: F) -> impl Future<Output = F::Output> {
    DroppedBy::new(future, |mut future: Pin<Box<F>>| {
        let _ = finish(future.as_mut());
    })
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
    use std::task::Waker;
    use std::thread::ThreadId;

    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

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

    /// Sends the thread on which it is dropped. Needs a runtime then, as a connection of bb8 does.
    struct Dropped(UnboundedSender<ThreadId>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            let (sender, thread) = (self.0.clone(), thread::current().id());
            tokio::spawn(async move { sender.send(thread) });
        }
    }

    #[tokio::test]
    async fn future_that_is_ready_is_dropped_on_its_thread() {
        let (sender, mut threads) = unbounded_channel();
        let dropped = Dropped(sender);
        // The closure owns it until the future is dropped.
        let ready = poll_fn(move |_| {
            let _ = &dropped;
            Poll::Ready(())
        });
        Conn::droppable(ready).await;
        assert_eq!(threads.recv().await, Some(thread::current().id()));
    }

    #[tokio::test]
    async fn future_that_is_not_ready_is_dropped_off_a_runtime_of_one_thread_but_in_it() {
        let (sender, mut threads) = unbounded_channel();
        let dropped = Dropped(sender);
        let mut future = Box::pin(Conn::droppable(async move {
            let _dropped = dropped;
            pending::<()>().await;
        }));
        let _ = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(future);
        let dropped_on = threads.recv().await.expect("a task that was spawned");
        assert_ne!(dropped_on, thread::current().id());
    }
}
