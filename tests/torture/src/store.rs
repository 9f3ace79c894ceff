//! The application's tables, and its statements for all engines, in Diesel's DSL.

use diesel::connection::{AnsiTransactionManager, SimpleConnection};
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection};
use diesel_locks::prelude::{ObjectLockExt, SemaphoreExt, SequenceExt, TransactionExt};
use torture_history::{Op, workload_spec};

use crate::async_store::AsyncStore;

diesel::table! {
    torture_counters (id) {
        id -> Integer,
        n -> BigInt,
        balance -> BigInt,
    }
}

diesel::table! {
    torture_ledger (op, counter) {
        op -> BigInt,
        counter -> Integer,
        n -> BigInt,
    }
}

diesel::table! {
    torture_resources (id) {
        id -> Integer,
        fence -> BigInt,
        version -> BigInt,
    }
}

diesel::table! {
    torture_writes (op) {
        op -> BigInt,
        resource -> Integer,
        version -> BigInt,
        fence -> BigInt,
    }
}

diesel::table! {
    torture_passes (op) {
        op -> BigInt,
        sequence -> Integer,
        number -> BigInt,
    }
}

diesel::table! {
    torture_slot_uses (op) {
        op -> BigInt,
        semaphore -> Text,
    }
}

diesel::table! {
    torture_steps (op, step) {
        op -> BigInt,
        step -> Integer,
    }
}

/// How long a connection to SQLite waits for other writers.
pub(crate) const SQLITE_BUSY_TIMEOUT: &str = "PRAGMA busy_timeout = 30000";

/// An account as it was read.
pub(crate) struct Account {
    pub(crate) n: i64,
    pub(crate) balance: i64,
}

/// A connection, with what the application does on it.
pub(crate) trait Store:
    ObjectLockExt
    + SemaphoreExt
    + SequenceExt
    + TransactionExt
    + R2D2Connection
    + Connection<TransactionManager = AnsiTransactionManager>
    + 'static
{
    /// The asynchronous connection to the same database.
    type Async: AsyncStore;

    /// The session's settings: the time-outs without which a lost packet could hold up a worker, or a lock, for ever.
    fn settings() -> String;

    /// The application's tables, with a row for each counter, account and resource.
    fn create_tables(&mut self) -> QueryResult<()>;

    fn read_counter(&mut self, id: u32) -> QueryResult<i64>;

    /// Writes the counter, and that it was this operation.
    fn write_counter(&mut self, op: Op, id: u32, n: i64) -> QueryResult<()>;

    /// Reads an account with the lock of those who write, where the engine has one.
    fn read_account(&mut self, id: u32) -> QueryResult<Account>;

    /// Writes the account, and that it was this operation.
    fn write_account(&mut self, op: Op, id: u32, account: &Account) -> QueryResult<()>;

    /// Writes at a fenced resource: whether it was accepted. To be called in a transaction.
    fn write_resource(&mut self, op: Op, id: u32, fence: i64) -> QueryResult<bool>;

    /// The same at a resource that forgot to look at the fence.
    fn write_unfenced_resource(&mut self, op: Op, id: u32, fence: i64) -> QueryResult<bool>;

    fn insert_pass(&mut self, op: Op, sequence: u32, number: i64) -> QueryResult<()>;

    fn insert_slot_use(&mut self, op: Op, semaphore: &str) -> QueryResult<()>;

    /// A row of an operation's that nothing protects.
    fn insert_step(&mut self, op: Op, step: u32) -> QueryResult<()>;

    /// Whether it is there, for this session.
    fn has_step(&mut self, op: Op, step: u32) -> QueryResult<bool>;

    /// Before a transaction of Diesel's: it is to be one in which objects can be locked.
    const BEFORE_TRANSACTION: &str;

    /// After it.
    const AFTER_TRANSACTION: &str;

    /// Begins a transaction that may write.
    const BEGIN: &str;

    /// Before a statement that is to wait for a row for a short time, in a transaction.
    const SHORT_LOCK_TIMEOUT: &str;

    /// After it.
    const DEFAULT_LOCK_TIMEOUT: &str;
}

/// A number as the tables have it.
pub(crate) fn key(id: u32) -> i32 {
    i32::try_from(id).unwrap_or(i32::MAX)
}

/// That a write was accepted, under the lock on the resource's row.
macro_rules! insert_write {
    ($conn:expr, $op:expr, $id:expr, $fence:expr) => {{
        let version: i64 = torture_resources::table
            .find(key($id))
            .select(torture_resources::version)
            .first($conn)?;
        let row = (
            torture_writes::op.eq($op.0),
            torture_writes::resource.eq(key($id)),
            torture_writes::version.eq(version),
            torture_writes::fence.eq($fence),
        );
        diesel::insert_into(torture_writes::table)
            .values(row)
            .execute($conn)?;
    }};
}

macro_rules! store {
    ($connection:ty, $asynchronous:ty, $($locked:ident)?, $settings:expr, $begin:expr, $timeout:expr $(,)?) => {
        impl Store for $connection {
            type Async = $asynchronous;

            const BEFORE_TRANSACTION: &str = $begin.0;
            const AFTER_TRANSACTION: &str = $begin.1;
            const BEGIN: &str = $begin.2;
            const SHORT_LOCK_TIMEOUT: &str = $timeout.0;
            const DEFAULT_LOCK_TIMEOUT: &str = $timeout.1;

            fn settings() -> String {
                $settings
            }

            fn create_tables(&mut self) -> QueryResult<()> {
                self.batch_execute(include_str!("store/tables.sql"))?;
                let counters = (0..workload_spec::LOCKED_COUNTERS)
                    .chain(workload_spec::ACCOUNTS)
                    .chain(workload_spec::PINNED_COUNTERS)
                    .chain(workload_spec::FAULT_COUNTERS);
                for id in counters {
                    let row = (
                        torture_counters::id.eq(key(id)),
                        torture_counters::n.eq(0),
                        torture_counters::balance.eq(0),
                    );
                    diesel::insert_into(torture_counters::table).values(row).execute(self)?;
                }
                for id in workload_spec::resources() {
                    let row = (
                        torture_resources::id.eq(key(id)),
                        torture_resources::fence.eq(0),
                        torture_resources::version.eq(0),
                    );
                    diesel::insert_into(torture_resources::table).values(row).execute(self)?;
                }
                Ok(())
            }

            fn read_counter(&mut self, id: u32) -> QueryResult<i64> {
                torture_counters::table.find(key(id)).select(torture_counters::n).first(self)
            }

            fn write_counter(&mut self, op: Op, id: u32, n: i64) -> QueryResult<()> {
                diesel::update(torture_counters::table.find(key(id)))
                    .set(torture_counters::n.eq(n))
                    .execute(self)?;
                let row = (
                    torture_ledger::op.eq(op.0),
                    torture_ledger::counter.eq(key(id)),
                    torture_ledger::n.eq(n),
                );
                diesel::insert_into(torture_ledger::table).values(row).execute(self)?;
                Ok(())
            }

            fn read_account(&mut self, id: u32) -> QueryResult<Account> {
                let (n, balance) = torture_counters::table
                    .find(key(id))
                    .select((torture_counters::n, torture_counters::balance))
                    $(.$locked())?
                    .first(self)?;
                Ok(Account { n, balance })
            }

            fn write_account(&mut self, op: Op, id: u32, account: &Account) -> QueryResult<()> {
                diesel::update(torture_counters::table.find(key(id)))
                    .set(torture_counters::balance.eq(account.balance))
                    .execute(self)?;
                self.write_counter(op, id, account.n)
            }

            fn write_resource(&mut self, op: Op, id: u32, fence: i64) -> QueryResult<bool> {
                let accepting = torture_resources::table
                    .find(key(id))
                    .filter(torture_resources::fence.le(fence));
                let written = diesel::update(accepting)
                    .set((
                        torture_resources::fence.eq(fence),
                        torture_resources::version.eq(torture_resources::version + 1),
                    ))
                    .execute(self)?;
                if written == 1 {
                    insert_write!(self, op, id, fence);
                }
                Ok(written == 1)
            }

            fn write_unfenced_resource(&mut self, op: Op, id: u32, fence: i64) -> QueryResult<bool> {
                diesel::update(torture_resources::table.find(key(id)))
                    .set((
                        torture_resources::fence.eq(fence),
                        torture_resources::version.eq(torture_resources::version + 1),
                    ))
                    .execute(self)?;
                insert_write!(self, op, id, fence);
                Ok(true)
            }

            fn insert_pass(&mut self, op: Op, sequence: u32, number: i64) -> QueryResult<()> {
                let row = (
                    torture_passes::op.eq(op.0),
                    torture_passes::sequence.eq(key(sequence)),
                    torture_passes::number.eq(number),
                );
                diesel::insert_into(torture_passes::table).values(row).execute(self)?;
                Ok(())
            }

            fn insert_slot_use(&mut self, op: Op, semaphore: &str) -> QueryResult<()> {
                let row = (
                    torture_slot_uses::op.eq(op.0),
                    torture_slot_uses::semaphore.eq(semaphore),
                );
                diesel::insert_into(torture_slot_uses::table).values(row).execute(self)?;
                Ok(())
            }

            fn insert_step(&mut self, op: Op, step: u32) -> QueryResult<()> {
                let row = (torture_steps::op.eq(op.0), torture_steps::step.eq(key(step)));
                diesel::insert_into(torture_steps::table).values(row).execute(self)?;
                Ok(())
            }

            fn has_step(&mut self, op: Op, step: u32) -> QueryResult<bool> {
                let there: i64 = torture_steps::table
                    .find((op.0, key(step)))
                    .count()
                    .get_result(self)?;
                Ok(there > 0)
            }
        }
    };
}

// The server ends the session of a silent client, and so releases what it held:
// `idle_in_transaction_session_timeout` when it waits for the next statement, `tcp_*` when it waits for an
// acknowledgement.
store!(
    PgConnection,
    AsyncPgConnection,
    for_update,
    format!(
        "SET idle_in_transaction_session_timeout = '{}s'; \
         SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; \
         SET tcp_keepalives_count = 3; SET tcp_user_timeout = 5000; SET deadlock_timeout = '200ms'",
        workload_spec::SILENT_CLIENT_TIMEOUT.as_secs()
    ),
    ("SELECT 1", "SELECT 1", "BEGIN"),
    (
        "SET LOCAL lock_timeout = '50ms'",
        "SET LOCAL lock_timeout = DEFAULT"
    ),
);

// `wait_timeout`: as above. `innodb_lock_wait_timeout` is low, as some set it.
store!(
    MysqlConnection,
    AsyncMysqlConnection,
    for_update,
    format!(
        "SET SESSION wait_timeout = {0}, net_write_timeout = {0}, net_read_timeout = {0}, \
         innodb_lock_wait_timeout = 2",
        workload_spec::SILENT_CLIENT_TIMEOUT.as_secs()
    ),
    (
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "BEGIN",
    ),
    (
        "SET SESSION innodb_lock_wait_timeout = 1",
        "SET SESSION innodb_lock_wait_timeout = 2",
    ),
);

store!(
    SqliteConnection,
    SyncConnectionWrapper<SqliteConnection>,
    ,
    format!("{SQLITE_BUSY_TIMEOUT}; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL"),
    ("SELECT 1", "SELECT 1", "BEGIN IMMEDIATE"),
    ("SELECT 1", "SELECT 1"),
);
