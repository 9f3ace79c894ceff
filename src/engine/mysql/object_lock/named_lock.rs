//! Inserts the missing row of an object, under the named lock.

use diesel::mysql::Mysql;

use crate::engine::mysql::execute::present;
use crate::engine::mysql::object_lock::{AcquireError, Acquisition, MIN_LIMIT_MS, or_failed};
use crate::engine::mysql::object_lock_sql::{AcquireNamedLock, ReleaseNamedLock};
use crate::error::classify::ErrorClass;
use crate::link::Link;
use crate::link::depth::locked_mode;
use crate::{ObjectId, Wait};

/// The time in seconds for a named lock, per attempt, if other locks may be held: InnoDB detects no deadlocks that involve it.
const NAMED_LOCK_TIMEOUT: i32 = 1;

impl<C: Link<Db = Mysql>> Acquisition<'_, '_, C> {
    pub(super) async fn acquire_with_named_lock(
        &mut self,
        id: &ObjectId,
    ) -> Result<(), AcquireError> {
        loop {
            if self.acquire_named_lock(id).await? {
                // No other session inserts a row of this id.
                let locked = async {
                    while !self.lock_or_insert_row(id).await? {}
                    Ok(())
                };
                let locked = locked.await;
                let released = self.release_named_lock(id).await;
                return locked.and(released);
            }
            // After waiting for a row that was then deleted, this session still has its index record locked, and the holder
            // of the named lock waits for it. If no session has the record locked, two inserts may deadlock, which InnoDB
            // resolves.
            if self.lock_or_insert_row(id).await? {
                return Ok(());
            }
        }
    }

    async fn lock_or_insert_row(&mut self, id: &ObjectId) -> Result<bool, AcquireError> {
        Ok(self.lock_row(id).await?.is_some() || self.insert_row(id).await?)
    }

    /// Acquires the named lock. Returns `false` when the transaction should wait for the row instead.
    async fn acquire_named_lock(&mut self, id: &ObjectId) -> Result<bool, AcquireError> {
        let (request, holds_nothing) = (self.request, self.holds_nothing());
        // Another session may have the named lock and wait for this one.
        let holds_row = locked_mode(self.engine.0.status(), id).is_some();
        let longest = match (holds_nothing, holds_row) {
            (true, _) => i32::MAX,
            (false, true) => 0,
            (false, false) => NAMED_LOCK_TIMEOUT,
        };
        loop {
            let (seconds, limit) = match request.remaining_millis() {
                Some(0) => (0, None),
                left => (longest, left.map(|left| left.max(MIN_LIMIT_MS))),
            };
            let name = id.as_str().as_bytes();
            let take = AcquireNamedLock { id: name, seconds };
            let (row, _) = self.engine.get_within(limit, take).await;
            let taken: Result<(Option<i64>, i64), _> = row.and_then(present);
            let error = match taken {
                Ok((taken, unknown)) => {
                    if let Err(error) = self.engine.ensure_one_writer(unknown == 1).await {
                        if taken == Some(1) {
                            let _ = self.release_named_lock(id).await;
                        }
                        return or_failed(Err(error));
                    }
                    match taken {
                        Some(1) => return Ok(true),
                        _ if holds_row => return Ok(false),
                        _ if request.wait == Wait::No => {
                            return Err(AcquireError::Unavailable { timed_out: false });
                        }
                        // MariaDB ends the wait without an error when the statement's time is up.
                        _ => None,
                    }
                }
                Err(failure) => {
                    let mut released = Ok(());
                    if failure.is_interrupted() {
                        // It may have acquired the named lock.
                        released = self.release_named_lock(id).await;
                    }
                    if failure.class != ErrorClass::StatementTimeout {
                        return or_failed(Err(failure));
                    }
                    released?;
                    Some(failure.error)
                }
            };
            if seconds == 0 || (error.is_some() && request.wait == Wait::Forever) {
                return Err(AcquireError::Failed(request.timed_out(error)));
            }
            // When the time is up, the named lock is requested once more without waiting. Without it, inserting a missing
            // row could wait for another session.
            if !holds_nothing && !request.is_expired() {
                return Ok(false);
            }
        }
    }

    pub(super) async fn release_named_lock(&mut self, id: &ObjectId) -> Result<(), AcquireError> {
        let id = id.as_str().as_bytes();
        or_failed(self.engine.restore(&ReleaseNamedLock { id }).await)
    }
}
