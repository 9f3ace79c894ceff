//! What the tests need of an engine.

use std::mem::ManuallyDrop;
use std::ops::DerefMut;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel::QueryResult;
use diesel::connection::InstrumentationEvent;
use diesel_async::AsyncConnection;
use diesel_async::pooled_connection::ManagerConfig;
use diesel_locks::prelude::*;
use diesel_locks::{Async, AsyncInspectExt, InspectExt, Pool};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The rest of a closure.
pub(crate) type Then<C> =
    Box<dyn for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(), diesel_locks::Error>> + Send>;

/// All methods of an asynchronous connection.
pub(crate) trait AsyncConn:
    AsyncConnection
    + AsyncObjectLockExt
    + AsyncSemaphoreExt
    + AsyncSequenceExt
    + AsyncTransactionExt
    + AsyncInspectExt
    + Send
    + 'static
{
}

impl<C> AsyncConn for C where
    C: AsyncConnection
        + AsyncObjectLockExt
        + AsyncSemaphoreExt
        + AsyncSequenceExt
        + AsyncTransactionExt
        + AsyncInspectExt
        + Send
        + 'static
{
}

/// A connection that a test has to itself, of a pool or not.
pub(crate) type Taken<C> = Box<dyn DerefMut<Target = C> + Send>;

/// Where the connections come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Each is established.
    Bare,
    /// A pool with one connection.
    Bb8,
    Deadpool,
}

impl Source {
    pub(crate) const ALL: [Self; 3] = [Self::Bare, Self::Bb8, Self::Deadpool];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Bb8 => "bb8",
            Self::Deadpool => "deadpool",
        }
    }
}

/// Establishes connections, or takes them from a pool.
#[async_trait::async_trait]
pub(crate) trait Connections<C>: Send + Sync {
    async fn take(&self) -> Taken<C>;
}

/// What a session does, as the server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It has ended.
    Gone,
    Idle,
    /// In a transaction, without a statement.
    InTransaction,
    /// The statement that runs.
    Running(String),
}

/// What becomes of the statements that the application sends on a connection whose future was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterDrop {
    /// They fail.
    Fail,
    /// They fail after at most two, which may get the answers of statements before the drop.
    FailLater,
    Work,
}

/// A database of the test's own, dropped with the value. It has the crate's tables, and `written (attempt, part)` for
/// what closures write.
pub(crate) trait Engine: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// A statement that runs for 60 s, longer than each check. On SQLite it runs for about 0.5 s, because it can't be cancelled.
    const LONG_STATEMENT: &'static str;
    /// Whether there is a server that shows what its sessions do.
    const SHOWS_SESSIONS: bool = true;
    /// Tells a session whether it has a transaction open, where others do not see it.
    const IN_TRANSACTION: Option<&'static str> = None;
    /// One writer for the whole database.
    const ONE_WRITER: bool;
    /// What becomes of the application's statements on a connection, not of a pool, whose future was dropped.
    const AFTER_DROP: AfterDrop;

    /// The folder of the crate's migrations.
    const MIGRATIONS: &'static str;
    /// Whether all migrations are undone with their transaction.
    const MIGRATES_IN_TRANSACTION: bool = true;
    /// A statement that keeps others from migrating, until the end of its transaction and session.
    const LOCK_MIGRATIONS: &'static str;
    /// Statements after which no other session can use the slots, until the session ends.
    const LOCK_SLOTS: &'static str;
    /// Has the statements of a connection wait for other sessions for a minute.
    const WAIT_FOR_A_MINUTE: &'static str;
    /// 1 if no session on the server migrates or waits to migrate.
    const NOBODY_MIGRATES: &'static str;

    /// For what other sessions do, and to look.
    type Blocking: ObjectLockExt
        + SemaphoreExt
        + SequenceExt
        + TransactionExt
        + InspectExt
        + Send
        + 'static;
    type Conn: AsyncConn;

    fn new() -> Self;

    fn connect(&self) -> Self::Blocking;

    /// The same database by way of a port of this machine; `None` without a server.
    fn by_way_of(&self, _port: u16) -> Option<ManuallyDrop<Self>> {
        None
    }

    /// Host and port of the server.
    fn address(&self) -> Option<String> {
        None
    }

    fn connections(&self, source: Source) -> BoxFuture<'_, Box<dyn Connections<Self::Conn>>>;

    type Bb8: Pool<Style = Async, Connection = Self::Conn> + Connections<Self::Conn>;
    type Deadpool: Pool<Style = Async, Connection = Self::Conn> + Connections<Self::Conn>;

    /// A pool of so many connections, which counts their statements.
    fn bb8(&self, size: u32, statements: Arc<AtomicUsize>) -> BoxFuture<'_, Self::Bb8>;

    /// As [`bb8`](Self::bb8).
    fn deadpool(&self, size: u32, statements: Arc<AtomicUsize>) -> BoxFuture<'_, Self::Deadpool>;

    fn url(&self) -> String;

    /// The URL with which the server notices that the client of a running statement is gone, if it can.
    fn url_with_client_checks(&self) -> String {
        self.url()
    }

    /// Whether it can.
    const CHECKS_CLIENTS: bool = false;

    /// The type to which a number is cast.
    const NUMBER: &'static str;

    /// The value of an expression, by a prepared statement.
    fn number(conn: &mut Self::Conn, expression: String) -> BoxFuture<'_, QueryResult<i64>>;

    /// The server's number of the session; `None` without a server.
    fn session(conn: &mut Self::Conn) -> BoxFuture<'_, Option<i64>>;

    fn sql(conn: &mut Self::Blocking, sql: &str);

    /// Has the next transactions of Diesel be such that locks work in them.
    fn prepare_for_locks(conn: &mut Self::Blocking) {
        let _ = conn;
    }

    fn blocking_number(conn: &mut Self::Blocking, expression: &str) -> i64;

    /// A statement that has the server end a session.
    fn end_session(session: i64) -> String {
        unreachable!("no server has session {session}")
    }

    /// `None` where sessions are not shown.
    fn activity(conn: &mut Self::Blocking, session: i64) -> Option<Activity>;
}

/// Implements [`Connections`] for connections of this type and their pools, and makes them.
macro_rules! connections {
    ($conn:ty, $config:expr) => {
        fn connections(
            &self,
            source: $crate::support::engine::Source,
        ) -> $crate::support::engine::BoxFuture<
            '_,
            Box<dyn $crate::support::engine::Connections<Self::Conn>>,
        > {
            use diesel_async::pooled_connection::{ManagerConfig, bb8, deadpool};
            use $crate::support::engine::{Connections, Source, Taken};

            type Conn = $conn;

            struct Bare(String);

            #[async_trait::async_trait]
            impl Connections<Conn> for Bare {
                async fn take(&self) -> Taken<Conn> {
                    let config: ManagerConfig<Conn> = $config;
                    let conn = (config.custom_setup)(&self.0).await;
                    Box::new(Box::new(conn.expect("a connection"))) as Taken<Conn>
                }
            }

            #[async_trait::async_trait]
            impl Connections<Conn> for bb8::Pool<Conn> {
                async fn take(&self) -> Taken<Conn> {
                    let conn = self.get_owned().await.expect("a connection");
                    Box::new(conn) as Taken<Conn>
                }
            }

            #[async_trait::async_trait]
            impl Connections<Conn> for deadpool::Pool<Conn> {
                async fn take(&self) -> Taken<Conn> {
                    let conn = self.get().await.expect("a connection");
                    Box::new(conn) as Taken<Conn>
                }
            }

            Box::pin(async move {
                match source {
                    Source::Bare => Box::new(Bare(self.url())) as Box<dyn Connections<Conn>>,
                    Source::Bb8 => Box::new(self.bb8(1, std::sync::Arc::default()).await),
                    Source::Deadpool => Box::new(self.deadpool(1, std::sync::Arc::default()).await),
                }
            })
        }

        type Bb8 = diesel_async::pooled_connection::bb8::Pool<$conn>;
        type Deadpool = diesel_async::pooled_connection::deadpool::Pool<$conn>;

        fn bb8(
            &self,
            size: u32,
            statements: std::sync::Arc<std::sync::atomic::AtomicUsize>,
        ) -> $crate::support::engine::BoxFuture<'_, Self::Bb8> {
            use diesel_async::pooled_connection::{
                AsyncDieselConnectionManager, ManagerConfig, bb8,
            };

            Box::pin(async move {
                let config: ManagerConfig<$conn> = $config;
                let config = $crate::support::engine::counting(config, statements);
                let manager = AsyncDieselConnectionManager::new_with_config(self.url(), config);
                let pool = bb8::Pool::builder().max_size(size).build(manager);
                pool.await.expect("a pool")
            })
        }

        fn deadpool(
            &self,
            size: u32,
            statements: std::sync::Arc<std::sync::atomic::AtomicUsize>,
        ) -> $crate::support::engine::BoxFuture<'_, Self::Deadpool> {
            use diesel_async::pooled_connection::{
                AsyncDieselConnectionManager, ManagerConfig, deadpool,
            };

            Box::pin(async move {
                let config: ManagerConfig<$conn> = $config;
                let config = $crate::support::engine::counting(config, statements);
                let manager = AsyncDieselConnectionManager::new_with_config(self.url(), config);
                let size = usize::try_from(size).expect("a small pool");
                let pool = deadpool::Pool::builder(manager).max_size(size).build();
                pool.expect("a pool")
            })
        }

        fn number(
            conn: &mut Self::Conn,
            expression: String,
        ) -> $crate::support::engine::BoxFuture<'_, diesel::QueryResult<i64>> {
            Box::pin(async move {
                let sql = format!("SELECT CAST(({expression}) AS {}) AS number", Self::NUMBER);
                let query = diesel::sql_query(sql);
                let row = diesel_async::RunQueryDsl::get_result(query, conn).await;
                row.map(|row: $crate::support::engine::Number| row.number)
            })
        }

        fn blocking_number(conn: &mut Self::Blocking, expression: &str) -> i64 {
            let sql = format!("SELECT CAST(({expression}) AS {}) AS number", Self::NUMBER);
            let row = diesel::RunQueryDsl::get_result(diesel::sql_query(&sql), conn);
            let row: $crate::support::engine::Number = row.expect(&sql);
            row.number
        }
    };
}
pub(crate) use connections;

/// The same configuration, of connections whose statements are counted.
pub(crate) fn counting<C: AsyncConnection + 'static>(
    mut config: ManagerConfig<C>,
    statements: Arc<AtomicUsize>,
) -> ManagerConfig<C> {
    let setup = config.custom_setup;
    config.custom_setup = Box::new(move |url| {
        let (established, statements) = (setup(url), Arc::clone(&statements));
        Box::pin(async move {
            let mut conn = established.await?;
            conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                if let InstrumentationEvent::StartQuery { .. } = event {
                    statements.fetch_add(1, Ordering::SeqCst);
                }
            });
            Ok(conn)
        })
    });
    config
}

#[derive(diesel::QueryableByName)]
pub(crate) struct Number {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    pub(crate) number: i64,
}

/// What each database has besides the crate's tables.
pub(crate) const TABLE: &str =
    "CREATE TABLE written (attempt BIGINT NOT NULL, part BIGINT NOT NULL)";
