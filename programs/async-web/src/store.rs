//! What the service stores, on the connections of an engine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use deadpool::Runtime;
use diesel::prelude::*;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{
    AsyncConnection, AsyncMysqlConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection,
};
use diesel_locks::prelude::*;
use diesel_locks::{AsyncLockPool, AsyncPool, AsyncShutdown};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use program_support::database::{Database, Engine};

use crate::witness::Witness;

diesel::table! {
    async_web_documents (id) {
        id -> Text,
        revision -> BigInt,
    }
}

diesel::table! {
    async_web_revisions (document, revision) {
        document -> Text,
        revision -> BigInt,
    }
}

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS async_web_documents (id VARCHAR(200) PRIMARY KEY, revision BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS async_web_revisions (document VARCHAR(200) NOT NULL, revision BIGINT NOT NULL,
    PRIMARY KEY (document, revision));";

/// At most two requests make a report at a time, on all instances together.
static REPORTS: Semaphore = Semaphore::from_static("async-web-reports", 2);

/// How long a request waits for a lock or a slot. Then it answers 503.
const WAIT: Wait = Wait::AtMost(Duration::from_secs(10));

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Answer<'a, T> = BoxFuture<'a, Result<T, BoxError>>;

/// The engine is chosen by the URL, so the futures are boxed.
pub(crate) trait Store: Send + Sync {
    fn engine(&self) -> &'static str;

    /// Stores the next revision of a document under its object lock, after some work with the lock.
    fn revise<'a>(&'a self, document: &'a str, work: Duration) -> Answer<'a, i64>;

    /// Counts the documents in a transaction that holds a slot, after some work with it.
    fn report(&self, work: Duration) -> Answer<'_, i64>;

    /// Whether the database answers.
    fn check_health(&self) -> Answer<'_, ()>;

    /// The stored revisions of a document, in their order.
    fn revisions<'a>(&'a self, document: &'a str) -> Answer<'a, Vec<i64>>;

    /// Requests that wait for a lock or a slot.
    fn waiting(&self) -> usize;

    /// Ends the waits, and waits for the transactions.
    fn shutdown(&self) -> &AsyncShutdown;

    /// Of the closures that have the lock of a document, and of those that have a slot.
    fn witnesses(&self) -> [&Witness; 2];
}

/// Opens a pool, and creates the tables.
pub(crate) async fn open(database: &Database, connections: usize) -> Result<Arc<dyn Store>> {
    let url = &database.url;
    Ok(match database.engine {
        Engine::Postgres => {
            Arc::new(Documents::<Pool<AsyncPgConnection>>::open(url, connections).await?)
        }
        Engine::Mysql => {
            Arc::new(Documents::<Pool<AsyncMysqlConnection>>::open(url, connections).await?)
        }
        Engine::Sqlite => Arc::new(Documents::<Pool<Sqlite>>::open(url, connections).await?),
    })
}

type Sqlite = SyncConnectionWrapper<SqliteConnection>;

struct Documents<P: AsyncPool> {
    locks: AsyncLockPool<P>,
    shutdown: AsyncShutdown,
    revising: Witness,
    reporting: Witness,
}

/// A macro, because the futures of a function that is generic over the connection are not `Send` for the compiler.
macro_rules! store {
    ($conn:ty, $engine:literal, |$new:ident| $setup:expr) => {
        impl Documents<Pool<$conn>> {
            async fn open(url: &str, connections: usize) -> Result<Self> {
                let mut config = ManagerConfig::<$conn>::default();
                config.custom_setup = Box::new(|url| {
                    async move {
                        let mut conn = <$conn>::establish(url).await?;
                        let $new = &mut conn;
                        let set: QueryResult<()> = $setup;
                        set.map_err(ConnectionError::CouldntSetupConfiguration)?;
                        Ok(conn)
                    }
                    .boxed()
                });
                let manager = AsyncDieselConnectionManager::new_with_config(url, config);
                let pool = Pool::builder(manager)
                    .max_size(connections)
                    .wait_timeout(Some(Duration::from_secs(10)))
                    .runtime(Runtime::Tokio1)
                    .build()?;
                let mut conn = pool.get().await.context("no connection")?;
                diesel_locks::migrate_async(&mut conn).await?;
                for table in TABLES.split(';').filter(|sql| !sql.trim().is_empty()) {
                    conn.batch_execute(table).await?;
                }
                drop(conn);
                let shutdown = AsyncShutdown::new();
                Ok(Self {
                    locks: shutdown.add_lock_pool(&AsyncLockPool::new(pool)),
                    shutdown,
                    revising: Witness::new(1),
                    reporting: Witness::new(2),
                })
            }
        }

        impl Store for Documents<Pool<$conn>> {
            fn engine(&self) -> &'static str {
                $engine
            }

            fn revise<'a>(&'a self, document: &'a str, work: Duration) -> Answer<'a, i64> {
                let request = LockRequest::new(ObjectId::new("Document", document)).wait(WAIT);
                let revised = self.locks.with_object_lock(
                    request,
                    async move |conn| -> diesel_locks::Result<_> {
                        let revise = async {
                            let row = async_web_documents::table.find(document);
                            let revision = row.select(async_web_documents::revision);
                            let last: Option<i64> = revision.first(conn).await.optional()?;
                            tokio::time::sleep(work).await;
                            let next = last.unwrap_or(0) + 1;
                            let revision = async_web_documents::revision.eq(next);
                            if last.is_some() {
                                diesel::update(row).set(revision).execute(conn).await?;
                            } else {
                                diesel::insert_into(async_web_documents::table)
                                    .values((async_web_documents::id.eq(document), revision))
                                    .execute(conn)
                                    .await?;
                            }
                            diesel::insert_into(async_web_revisions::table)
                                .values((
                                    async_web_revisions::document.eq(document),
                                    async_web_revisions::revision.eq(next),
                                ))
                                .execute(conn)
                                .await?;
                            Ok(next)
                        };
                        self.revising.watch(revise).await
                    },
                );
                revised.map_err(BoxError::from).boxed()
            }

            fn report(&self, work: Duration) -> Answer<'_, i64> {
                let report = self.locks.with_slot(
                    &REPORTS,
                    WAIT,
                    async move |conn| -> diesel_locks::Result<_> {
                        let report = async {
                            tokio::time::sleep(work).await;
                            Ok(async_web_documents::table.count().get_result(conn).await?)
                        };
                        self.reporting.watch(report).await
                    },
                );
                report.map_err(BoxError::from).boxed()
            }

            fn check_health(&self) -> Answer<'_, ()> {
                async move {
                    let mut conn = self.locks.pool().get().await?;
                    Ok(conn.batch_execute("SELECT 1").await?)
                }
                .boxed()
            }

            fn revisions<'a>(&'a self, document: &'a str) -> Answer<'a, Vec<i64>> {
                async move {
                    let mut conn = self.locks.pool().get().await?;
                    Ok(async_web_revisions::table
                        .filter(async_web_revisions::document.eq(document))
                        .order(async_web_revisions::revision)
                        .select(async_web_revisions::revision)
                        .load(&mut conn)
                        .await?)
                }
                .boxed()
            }

            fn waiting(&self) -> usize {
                self.locks.waiting()
            }

            fn shutdown(&self) -> &AsyncShutdown {
                &self.shutdown
            }

            fn witnesses(&self) -> [&Witness; 2] {
                [&self.revising, &self.reporting]
            }
        }
    };
}

store!(AsyncPgConnection, "PostgreSQL", |_conn| Ok(()));
store!(AsyncMysqlConnection, "MySQL or MariaDB", |_conn| Ok(()));
store!(Sqlite, "SQLite", |conn| {
    match diesel_locks::operation::sqlite::prepare_async(conn).await {
        Ok(()) => conn.batch_execute("PRAGMA synchronous = NORMAL").await,
        error => error,
    }
});
