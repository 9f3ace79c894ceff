//! What an engine implements, for wrappers: each function calls that of the inner connection.

use std::time::Duration;

use diesel::QueryResult;
use diesel::connection::TransactionManagerStatus;

use super::{ConnectionWrapper, Engine};
use crate::engine::active_isolation;
use crate::inspect::list_options::ListRequest;
use crate::inspect::object_lock::HeldObjectLock;
use crate::migrations::run::MigrationBackend;
use crate::object_lock::acquire::Request;
use crate::object_lock::backend::{LockOutcome, ObjectLockBackend};
use crate::semaphore::backend::{
    AttemptContext, AttemptOutcome, BatchOutcome, Expiry, HeldRow, LeaseRequest, RaiseOutcome,
    RenewalRequest, RenewalResult, SemaphoreBackend, SemaphoreRow,
};
use crate::semaphore::slot_times::FirstSlot;
use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::transaction::backend::{SessionChange, TransactionBackend};
use crate::transaction::retry::RetryReason;
use crate::{Error, IsolationLevel, Semaphore, Sequence, Slot, TransactionOptions};

macro_rules! delegate {
    ($trait:ident { $(fn $function:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)* }) => {
        #[diagnostic::do_not_recommend]
        impl<W: ConnectionWrapper> $trait for W {
            $(fn $function(conn: &mut Self $(, $argument: $type)*) $(-> $result)? {
                match conn.inner_connection().0 {
                    #[cfg(feature = "postgres")]
                    Engine::Postgres(inner) => $trait::$function(inner $(, $argument)*),
                    #[cfg(feature = "mysql")]
                    Engine::Mysql(inner) => $trait::$function(inner $(, $argument)*),
                    #[cfg(feature = "sqlite")]
                    Engine::Sqlite(inner) => $trait::$function(inner $(, $argument)*),
                }
            })*
        }
    };
}

delegate!(TransactionBackend {
    fn status() -> &mut TransactionManagerStatus;
    fn begin_savepoint() -> QueryResult<()>;
    fn release_savepoint() -> QueryResult<()>;
    fn roll_back_to_savepoint() -> QueryResult<()>;
    fn validate(transaction: &TransactionOptions) -> Result<(), Error>;
    fn begin(transaction: &TransactionOptions) -> Result<SessionChange, Error>;
    fn restore_session(change: SessionChange) -> Result<(), Error>;
    fn prepare_retry();
    fn mark_isolation(level: Option<IsolationLevel>) -> Option<active_isolation::Scope>;
    fn assert_open() -> Result<(), Error>;
    fn commit() -> Result<(), Error>;
    fn map_commit_error(error: Error) -> Error;
    fn roll_back() -> QueryResult<bool>;
    fn may_end_transactions(reason: RetryReason) -> bool;
    fn assume_single_writer() -> Result<(), Error>;
});

delegate!(MigrationBackend {
    fn migrate() -> Result<Vec<String>, Error>;
});

// `queue_key` is the default: the engine is known with a connection only.
delegate!(ObjectLockBackend {
    fn begin_with_locks(request: &Request) -> Result<LockOutcome, Error>;
    fn lock_in_transaction(request: &Request) -> Result<LockOutcome, Error>;
    fn purge_unlocked() -> Result<usize, Error>;
    fn held_locks() -> Result<Vec<HeldObjectLock>, Error>;
});

delegate!(SequenceBackend {
    fn draw(draw: &DrawRequest<'_>) -> Result<Option<i64>, Error>;
    fn last(sequence: &Sequence) -> Result<Option<i64>, Error>;
    fn list_sequences(request: &ListRequest) -> Result<Vec<(String, String, i64)>, Error>;
});

delegate!(SemaphoreBackend {
    fn clock_resolution() -> Duration;
    fn database_id() -> Result<Option<String>, Error>;
    fn try_lease(
        request: &LeaseRequest<'_>,
        context: &AttemptContext
    ) -> Result<AttemptOutcome, Error>;
    fn begin_hold() -> Result<bool, Error>;
    fn try_hold(semaphore: &Semaphore, context: &AttemptContext) -> Result<AttemptOutcome, Error>;
    fn grantable_slots(semaphore: &Semaphore, in_transaction: bool) -> Result<Vec<i32>, Error>;
    fn resize_in_progress() -> Result<bool, Error>;
    fn create_batch(semaphore: &Semaphore, block: bool) -> Result<BatchOutcome, Error>;
    fn create_fence_floor() -> Result<(), Error>;
    fn raise_fence_floor(by: Duration) -> Result<RaiseOutcome, Error>;
    fn register(semaphore: &Semaphore) -> Result<(), Error>;
    fn renew_one(slot: &Slot, lease_us: i64, expiry: Expiry) -> Result<usize, Error>;
    fn release(slot: &Slot, expiry: Expiry) -> Result<usize, Error>;
    fn release_unused(slot: &Slot) -> Result<usize, Error>;
    fn pin(slot: &Slot) -> Result<bool, Error>;
    fn list_held(name: &str) -> Result<Vec<HeldRow>, Error>;
    fn list_held_nowait(name: &str) -> Result<Option<Vec<HeldRow>>, Error>;
    fn first_slot_nowait(name: &str) -> Result<FirstSlot, Error>;
    fn list_all_held(request: &ListRequest) -> Result<Vec<(String, HeldRow)>, Error>;
    fn list_semaphores(request: &ListRequest) -> Result<Vec<SemaphoreRow>, Error>;
    fn now_us() -> Result<i64, Error>;
    fn release_all(name: &str) -> Result<usize, Error>;
    fn purge_unused_slots(age_us: i64) -> Result<usize, Error>;
    fn release_batch(leases: &[RenewalRequest]) -> Result<Vec<Vec<u8>>, Error>;
    fn renew_batch(leases: &[RenewalRequest]) -> Result<Vec<RenewalResult>, Error>;
});
