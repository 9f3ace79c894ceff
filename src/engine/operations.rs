//! The operations of an [`Engine`](super::Engine) for transactions and semaphores, and what a draw of numbers asks for.

use std::time::Duration;

use async_trait::async_trait;
use diesel::connection::TransactionManagerStatus;

use crate::engine::active_isolation;
use crate::engine::slots::{
    AttemptContext, AttemptOutcome, BatchOutcome, Expiry, HeldRow, HeldSlot, LeaseRequest,
    RaiseOutcome, ReleaseKind, SemaphoreRow,
};
use crate::values::lease::{RenewalRequest, RenewalResult};
use crate::values::list_options::ListRequest;
use crate::values::retry_policy::RetryReason;
use crate::values::slot::FirstSlot;
use crate::{Error, IsolationLevel, Semaphore, Sequence, Slot, TransactionOptions};

/// The transactions of an engine.
#[async_trait]
pub trait TransactionBackend: Send {
    /// Whether the database is in this process: see [`HasEngine::IN_PROCESS`](crate::engine::HasEngine::IN_PROCESS).
    fn is_in_process(&self) -> bool {
        false
    }

    /// The open transactions, as Diesel counts them.
    fn status(&mut self) -> &mut TransactionManagerStatus;

    async fn begin_savepoint(&mut self) -> Result<(), diesel::result::Error>;

    async fn release_savepoint(&mut self) -> Result<(), diesel::result::Error>;

    /// Ends the innermost savepoint and undoes its changes.
    async fn roll_back_to_savepoint(&mut self) -> Result<(), diesel::result::Error>;

    /// Fails with [`Error::Unsupported`] for options that the engine does not have.
    fn validate(&self, _: &TransactionOptions) -> Result<(), Error> {
        Ok(())
    }

    /// Begins a transaction with validated options. Returns whether `restore_session` has to be called after it.
    async fn begin(&mut self, transaction: &TransactionOptions) -> Result<bool, Error>;

    /// Restores what [`begin`](Self::begin) has changed in the session, after the transaction has ended.
    async fn restore_session(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Prepares the connection for another attempt after one that the database aborted.
    fn prepare_retry(&mut self) {}

    /// Marks the transaction that this crate has started, with its level if this crate has set one, while its closure
    /// runs. `None` on engines that show a transaction's level.
    fn mark_isolation(&mut self, _: Option<IsolationLevel>) -> Option<active_isolation::Scope> {
        None
    }

    /// Fails with [`Error::TransactionAborted`] when the server has already ended the transaction that Diesel counts.
    /// Not needed where each later statement fails, or where locking and drawing detect it.
    async fn assert_open(&mut self) -> Result<(), Error>;

    /// Commits the transaction that this crate has started. Fails when the server has already ended it, or would roll it
    /// back. After an error it may still be open.
    async fn commit(&mut self) -> Result<(), Error>;

    /// The error of [`commit`](Self::commit) when the following rollback found no transaction.
    fn map_commit_error(&self, error: Error) -> Error {
        error
    }

    /// Rolls back, and restores what the beginning of the transaction has changed in the session. Returns whether this crate had
    /// started the transaction, as far as the engine can tell. After an error one may still be open.
    async fn roll_back(&mut self) -> Result<bool, diesel::result::Error>;

    /// Whether the error may have ended the transaction. Otherwise a statement has ended it, and may have committed it.
    async fn may_end_transactions(&mut self, _: RetryReason) -> Result<bool, Error> {
        Ok(false)
    }

    /// The transactions that a closure may have left behind by PREPARE TRANSACTION: those of its user in this database.
    async fn prepared_transactions(&mut self) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Stores in the session that all writes are sent to this server. Does nothing on engines that have one writer anyway.
    async fn assume_single_writer(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Ends what a dropped future has started, when `depth` transactions were open before it, and marks the connection as
    /// broken. Outer transactions are rolled back too: they can't be committed without what the future has not done. `undo`: a
    /// statement for what may be committed. Does nothing on connections that block: their futures are never dropped before they
    /// are ready.
    fn abandon(&mut self, depth: u32, undo: Option<&str>);
}

/// The semaphores of an engine.
#[async_trait]
pub trait SemaphoreBackend: Send {
    /// The resolution of the database's clock. The clock that a statement reads may be behind by this time, and its
    /// lease then expires earlier than its holder would expect.
    fn clock_resolution(&self) -> Duration {
        Duration::ZERO
    }

    /// Identifies the database: the same text for all connections to it, and different texts for different databases.
    /// `None` when no other connection can access the database.
    async fn database_id(&mut self) -> Result<Option<String>, Error>;

    /// Makes one attempt to lease a free slot. Never waits for another session's transaction.
    async fn try_lease(
        &mut self,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error>;

    /// Begins a transaction for [`try_hold`](Self::try_hold). Returns `false` on SQLite while another connection writes.
    async fn begin_hold(&mut self) -> Result<bool, Error>;

    /// Makes one attempt to lock a free slot until the open transaction ends.
    async fn try_hold(
        &mut self,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> Result<AttemptOutcome, Error>;

    /// After [`AttemptOutcome::TooManyRows`], returns the slots that may be granted although slots above the number of permits may
    /// be held. Returns `None` instead of waiting while another session has the table locked.
    async fn grantable_slots(&mut self, semaphore: &Semaphore) -> Result<Option<Vec<i32>>, Error>;

    /// Whether another session is adding or removing slots, and may have locked them until its COMMIT. Called outside
    /// a transaction. Returns `false` instead of waiting while another session has a table locked.
    async fn resize_in_progress(&mut self) -> Result<bool, Error>;

    /// Creates the next batch of missing slots in one transaction.
    async fn create_batch(
        &mut self,
        semaphore: &Semaphore,
        block: bool,
    ) -> Result<BatchOutcome, Error>;

    /// Creates the deleted row of `diesel_locks_fences`, with a value not below any fence. Others may do so at the same time.
    async fn create_fence_floor(&mut self) -> Result<(), Error>;

    /// Raises the floor by `by` above all fences.
    async fn raise_fence_floor(&mut self, by: Duration) -> Result<RaiseOutcome, Error>;

    /// Stores the number of permits below which slots are not purged.
    async fn register(&mut self, semaphore: &Semaphore) -> Result<(), Error>;

    /// Sets a new expiry if the token still matches; returns the number of rows updated.
    async fn renew_one(
        &mut self,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> Result<usize, Error>;

    /// Releases the slot, or lets it expire after its minimum hold time, if the token still matches; returns the rows updated.
    async fn release(&mut self, slot: &Slot, expiry: Expiry) -> Result<usize, Error>;

    /// The text of a statement that does as [`release_unused`](Self::release_unused) with any slot that has this token.
    fn release_unused_statement(&self, semaphore: &str, token: &[u8]) -> String;

    /// [`release`](Self::release) of a slot that was not used: also before the end of its minimum hold time.
    async fn release_unused(&mut self, slot: &Slot) -> Result<usize, Error>;

    /// Prevents another grant of the slot until the transaction ends. Returns `false` when the token does not match.
    async fn pin(&mut self, slot: &Slot) -> Result<bool, Error>;

    /// Lists the held slots for one that waits. Returns `None` instead of waiting while another session has the table locked.
    async fn list_held_nowait(&mut self, name: &str) -> Result<Option<Vec<HeldSlot>>, Error>;

    /// Reads the first slot, whether it is held or not. Does not wait while another session has the table locked.
    async fn first_slot_nowait(&mut self, name: &str) -> Result<FirstSlot, Error>;

    async fn list_held(&mut self, request: &ListRequest) -> Result<Vec<(String, HeldRow)>, Error>;

    async fn list_semaphores(&mut self, request: &ListRequest) -> Result<Vec<SemaphoreRow>, Error>;

    /// The database's clock, in microseconds since 1970 UTC.
    async fn now_us(&mut self) -> Result<i64, Error>;

    /// Releases every leased slot; returns how many were held.
    async fn release_all(&mut self, name: &str) -> Result<usize, Error>;

    /// Deletes slots that have been free for `age_us` and are not registered, from the last one down to the first that stays,
    /// so that the numbers have no gaps. Returns how many were deleted.
    async fn purge_unused_slots(&mut self, age_us: i64) -> Result<usize, Error>;

    /// Releases many slots in one statement, which does not wait. Returns the tokens of those that were not released
    /// because another session has locked their rows.
    async fn release_batch(
        &mut self,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> Result<Vec<Vec<u8>>, Error>;

    /// Renews the leases that have not expired, in one statement. Returns the remaining time of each lease whose token still
    /// matches. An expired lease has a time of zero or less, or is left out; its guard is lost.
    async fn renew_batch(&mut self, leases: &[RenewalRequest])
    -> Result<Vec<RenewalResult>, Error>;
}

/// A validated draw.
#[derive(Clone, Copy, Debug)]
pub struct DrawRequest<'a> {
    pub(crate) sequence: &'a Sequence,
    pub(crate) count: i64,
    /// The last number of this draw if it is the sequence's first.
    pub(crate) initial_last: i64,
    /// The largest number drawn last from which this draw does not overflow.
    pub(crate) max_last: i64,
}

/// A sequence: name, key (empty without one) and last number.
pub(crate) type SequenceRow = (String, String, i64);
