//! Connections of diesel-async, and the application's statements on them. They contain numbers only, and names of this
//! program.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::{ConnectionResult, QueryResult, SqliteConnection};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::prelude::{
    AsyncObjectLockExt, AsyncSemaphoreExt, AsyncSequenceExt, AsyncTransactionExt,
};
use torture_history::{Op, workload_spec};

use crate::async_pools::{AsyncConnections, PoolKind, implement_pools, open_pool};
use crate::store::key;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection, with what the application does on it.
#[async_trait]
pub(crate) trait AsyncStore:
    AsyncConnection
    + AsyncObjectLockExt
    + AsyncSemaphoreExt
    + AsyncSequenceExt
    + AsyncTransactionExt
    + Send
    + 'static
{
    /// The URL of a blocking connection, as this one's client library spells it.
    fn url(url: &str) -> String;

    /// A pool of its own, whose connections have the session's settings. To be called in the runtime that uses it.
    fn pool(
        url: &str,
        settings: String,
        pool: PoolKind,
        size: u32,
    ) -> anyhow::Result<Arc<dyn AsyncConnections<Self>>>;

    /// Runs a statement, and returns the number of rows that it has changed.
    async fn send(&mut self, sql: String) -> QueryResult<usize>;

    /// Runs a query for one number, which it calls `number`.
    async fn number(&mut self, sql: String) -> QueryResult<i64>;

    async fn read_counter(&mut self, id: u32) -> QueryResult<i64> {
        let id = key(id);
        let counter = format!("SELECT n AS number FROM torture_counters WHERE id = {id}");
        self.number(counter).await
    }

    /// Writes the counter, and that it was this operation.
    async fn write_counter(&mut self, op: Op, id: u32, n: i64) -> QueryResult<()> {
        let (op, id) = (op.0, key(id));
        let counter = format!("UPDATE torture_counters SET n = {n} WHERE id = {id}");
        self.send(counter).await?;
        let ledger = "INSERT INTO torture_ledger (op, counter, n)";
        self.send(format!("{ledger} VALUES ({op}, {id}, {n})"))
            .await?;
        Ok(())
    }

    /// Writes at a fenced resource: whether it was accepted. To be called in a transaction.
    async fn write_resource(&mut self, op: Op, id: u32, fence: i64) -> QueryResult<bool> {
        let (op, id) = (op.0, key(id));
        let resource = format!(
            "UPDATE torture_resources SET fence = {fence}, version = version + 1 \
             WHERE id = {id} AND fence <= {fence}"
        );
        if self.send(resource).await? == 0 {
            return Ok(false);
        }
        let write = format!(
            "INSERT INTO torture_writes (op, resource, version, fence) \
             SELECT {op}, {id}, version, {fence} FROM torture_resources WHERE id = {id}"
        );
        self.send(write).await?;
        Ok(true)
    }

    async fn insert_pass(&mut self, op: Op, sequence: u32, number: i64) -> QueryResult<()> {
        let (op, sequence) = (op.0, key(sequence));
        let pass = "INSERT INTO torture_passes (op, sequence, number)";
        self.send(format!("{pass} VALUES ({op}, {sequence}, {number})"))
            .await?;
        Ok(())
    }

    /// That the operation has held a slot of [`workload_spec::HELD_BY_TRANSACTIONS`].
    async fn insert_slot_use(&mut self, op: Op) -> QueryResult<()> {
        let (op, name) = (op.0, workload_spec::HELD_BY_TRANSACTIONS.name);
        let slot = "INSERT INTO torture_slot_uses (op, semaphore)";
        self.send(format!("{slot} VALUES ({op}, '{name}')")).await?;
        Ok(())
    }

    /// A row of an operation's that nothing protects.
    async fn insert_step(&mut self, op: Op, step: u32) -> QueryResult<()> {
        let (op, step) = (op.0, key(step));
        let row = "INSERT INTO torture_steps (op, step)";
        self.send(format!("{row} VALUES ({op}, {step})")).await?;
        Ok(())
    }
}

#[derive(diesel::QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

/// Opens a connection with the session's settings.
async fn establish<C: AsyncStore>(url: String, settings: String) -> ConnectionResult<C> {
    let mut conn = C::establish(&url).await?;
    let set = conn.batch_execute(&settings).await;
    set.map_err(ConnectionError::CouldntSetupConfiguration)?;
    Ok(conn)
}

macro_rules! async_store {
    ($connection:ty, $url:expr) => {
        #[async_trait]
        impl AsyncStore for $connection {
            fn url(url: &str) -> String {
                let of: fn(&str) -> String = $url;
                of(url)
            }

            fn pool(
                url: &str,
                settings: String,
                pool: PoolKind,
                size: u32,
            ) -> anyhow::Result<Arc<dyn AsyncConnections<Self>>> {
                let mut config = ManagerConfig::default();
                config.custom_setup = Box::new(move |url| {
                    Box::pin(establish::<Self>(url.to_owned(), settings.clone()))
                });
                let manager = AsyncDieselConnectionManager::new_with_config(Self::url(url), config);
                open_pool!(manager, pool, size)
            }

            async fn send(&mut self, sql: String) -> QueryResult<usize> {
                diesel_async::RunQueryDsl::execute(diesel::sql_query(sql), self).await
            }

            async fn number(&mut self, sql: String) -> QueryResult<i64> {
                let query = diesel::sql_query(sql);
                let row: Number = diesel_async::RunQueryDsl::get_result(query, self).await?;
                Ok(row.number)
            }
        }

        implement_pools!($connection);
    };
}

// libpq's names for the limits, and its milliseconds, are not known here: see `database.rs`.
async_store!(AsyncPgConnection, |url| url
    .replace("keepalives_count", "keepalives_retries")
    .replace("tcp_user_timeout=5000", "tcp_user_timeout=5"));

// The client would go to the server's socket, past the proxy.
async_store!(AsyncMysqlConnection, |url| {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}prefer_socket=false")
});

async_store!(SyncConnectionWrapper<SqliteConnection>, str::to_owned);
