//! What an engine implements, for wrappers: each function calls that of the inner connection.

use std::time::Duration;

use diesel::QueryResult;
use diesel::connection::{TransactionManager, TransactionManagerStatus};
#[cfg(feature = "_mysql")]
use diesel::mysql::Mysql;
#[cfg(feature = "_postgres")]
use diesel::pg::Pg;
#[cfg(feature = "_sqlite")]
use diesel::sqlite::Sqlite;

use super::timer::WrapperTimer;
use super::{ConnectionWrapper, Engine};
use crate::engine::{HasBlockingEngine, HasEngine, active_isolation};
use crate::inspect::list_options::ListRequest;
use crate::inspect::object_lock::HeldObjectLock;
use crate::migrations::backend::MigrationBackend;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Expiry, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, ReleaseKind, SemaphoreBackend, SemaphoreRow,
};
use crate::semaphore::renewal::{RenewalRequest, RenewalResult};
use crate::semaphore::slot_times::FirstSlot;
use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::transaction::backend::{SessionChange, TransactionBackend};
use crate::transaction::retry::RetryReason;
use crate::{Error, IsolationLevel, Semaphore, Sequence, Slot, TransactionOptions};

/// The engine of a wrapper is that of its inner connection.
pub enum Wrapped {}

#[diagnostic::do_not_recommend]
impl<W: ConnectionWrapper> HasEngine for W {
    type LockEngine = Wrapped;
    type LockTimer = WrapperTimer<W>;

    fn counted_transactions(conn: &mut Self) -> &mut TransactionManagerStatus {
        W::TransactionManager::transaction_manager_status_mut(conn)
    }
}

/// Evaluates an expression with the inner connection and its engine.
macro_rules! with_inner {
    ($conn:expr, |$inner:ident, $engine:ident| $work:expr) => {
        match $conn.inner_connection().0 {
            #[cfg(feature = "postgres")]
            Engine::Postgres($inner) => with_inner!($engine = Pg, $work),
            #[cfg(feature = "mysql")]
            Engine::Mysql($inner) => with_inner!($engine = Mysql, $work),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite($inner) => with_inner!($engine = Sqlite, $work),
            #[cfg(feature = "async-postgres")]
            Engine::AsyncPostgres($inner) => with_inner!($engine = Pg, $work),
            #[cfg(feature = "async-mysql")]
            Engine::AsyncMysql($inner) => with_inner!($engine = Mysql, $work),
            #[cfg(feature = "async-sqlite")]
            Engine::AsyncSqlite($inner) => with_inner!($engine = Sqlite, $work),
            #[cfg(feature = "async-postgres")]
            Engine::BlockingPostgres($inner) => with_inner!($engine = Pg, $work),
            #[cfg(feature = "async-mysql")]
            Engine::BlockingMysql($inner) => with_inner!($engine = Mysql, $work),
            #[cfg(feature = "async-sqlite")]
            Engine::BlockingSqlite($inner) => with_inner!($engine = Sqlite, $work),
        }
    };
    ($engine:ident = $type:ty, $work:expr) => {{
        #[allow(
            dead_code,
            reason = "what is no engine's own needs only the connection"
        )]
        type $engine = $type;
        $work
    }};
}

#[diagnostic::do_not_recommend]
impl<W: ConnectionWrapper> HasBlockingEngine for W {
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        <W as ConnectionWrapper>::block_on(future)
    }
}

macro_rules! delegate {
    ($trait:ident {
        $(fn $function:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*
        $(async fn $async_function:ident($($async_argument:ident: $async_type:ty),*) -> $async_result:ty;)*
    }) => {
        impl<W: ConnectionWrapper> $trait<W> for Wrapped {
            $(fn $function(conn: &mut W $(, $argument: $type)*) $(-> $result)? {
                with_inner!(conn, |inner, Backend| Backend::$function(inner $(, $argument)*))
            })*

            $(async fn $async_function(conn: &mut W $(, $async_argument: $async_type)*) -> $async_result {
                with_inner!(conn, |inner, Backend| Backend::$async_function(inner $(, $async_argument)*).await)
            })*
        }
    };
}

delegate!(TransactionBackend {
    fn status() -> &mut TransactionManagerStatus;
    fn validate(transaction: &TransactionOptions) -> Result<(), Error>;
    fn prepare_retry();
    fn mark_isolation(level: Option<IsolationLevel>) -> Option<active_isolation::Scope>;
    fn map_commit_error(error: Error) -> Error;
    async fn begin_savepoint() -> QueryResult<()>;
    async fn release_savepoint() -> QueryResult<()>;
    async fn roll_back_to_savepoint() -> QueryResult<()>;
    async fn begin(transaction: &TransactionOptions) -> Result<SessionChange, Error>;
    async fn restore_session(change: SessionChange) -> Result<(), Error>;
    async fn assert_open() -> Result<(), Error>;
    async fn commit() -> Result<(), Error>;
    async fn roll_back() -> QueryResult<bool>;
    async fn may_end_transactions(reason: RetryReason) -> bool;
    async fn prepared_transactions() -> Option<String>;
    async fn assume_single_writer() -> Result<(), Error>;
});

delegate!(MigrationBackend {
    async fn migrate() -> Result<Vec<String>, Error>;
});

// `queue_key` is the default: the engine is known with a connection only.
delegate!(ObjectLockBackend {
    async fn begin_with_locks(request: &Request) -> Result<LockOutcome, Error>;
    async fn lock_in_transaction(request: &Request) -> Result<LockOutcome, Error>;
    async fn purge_unlocked() -> Result<usize, Error>;
    async fn held_locks() -> Result<Vec<HeldObjectLock>, Error>;
});

delegate!(SequenceBackend {
    async fn draw(draw: &DrawRequest<'_>) -> Result<Option<i64>, Error>;
    async fn last(sequence: &Sequence) -> Result<Option<i64>, Error>;
    async fn list_sequences(request: &ListRequest) -> Result<Vec<(String, String, i64)>, Error>;
});

delegate!(SemaphoreBackend {
    fn clock_resolution() -> Duration;
    async fn database_id() -> Result<Option<String>, Error>;
    async fn try_lease(
        request: &LeaseRequest<'_>,
        context: &AttemptContext
    ) -> Result<AttemptOutcome, Error>;
    async fn begin_hold() -> Result<bool, Error>;
    async fn try_hold(semaphore: &Semaphore, context: &AttemptContext) -> Result<AttemptOutcome, Error>;
    async fn grantable_slots(semaphore: &Semaphore) -> Result<Option<Vec<i32>>, Error>;
    async fn resize_in_progress() -> Result<bool, Error>;
    async fn create_batch(semaphore: &Semaphore, block: bool) -> Result<BatchOutcome, Error>;
    async fn create_fence_floor() -> Result<(), Error>;
    async fn raise_fence_floor(by: Duration) -> Result<RaiseOutcome, Error>;
    async fn register(semaphore: &Semaphore) -> Result<(), Error>;
    async fn renew_one(slot: &Slot, lease_us: i64, expiry: Expiry) -> Result<usize, Error>;
    async fn release(slot: &Slot, expiry: Expiry) -> Result<usize, Error>;
    async fn release_unused(slot: &Slot) -> Result<usize, Error>;
    async fn pin(slot: &Slot) -> Result<bool, Error>;
    async fn list_held_nowait(name: &str) -> Result<Option<Vec<HeldSlot>>, Error>;
    async fn first_slot_nowait(name: &str) -> Result<FirstSlot, Error>;
    async fn list_held(request: &ListRequest) -> Result<Vec<(String, HeldRow)>, Error>;
    async fn list_semaphores(request: &ListRequest) -> Result<Vec<SemaphoreRow>, Error>;
    async fn now_us() -> Result<i64, Error>;
    async fn release_all(name: &str) -> Result<usize, Error>;
    async fn purge_unused_slots(age_us: i64) -> Result<usize, Error>;
    async fn release_batch(
        leases: &[RenewalRequest],
        kind: ReleaseKind
    ) -> Result<Vec<Vec<u8>>, Error>;
    async fn renew_batch(leases: &[RenewalRequest]) -> Result<Vec<RenewalResult>, Error>;
});
