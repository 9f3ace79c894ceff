//! What an engine implements for semaphores.
//!
//! A slot is a row. It is free when its lease has expired and no transaction has locked the row. A slot is acquired by
//! an update that skips locked rows, so that acquirers do not wait for each other.

use std::time::{Duration, Instant};

use crate::inspect::list_options::ListRequest;
use crate::semaphore::renewal::{RenewalRequest, RenewalResult};
use crate::semaphore::slot_times::FirstSlot;
use crate::{Error, Semaphore, Slot};

/// The semaphores of an engine. Sealed, as [`HasEngine`](crate::engine::HasEngine) is.
pub trait SemaphoreBackend<C: Send> {
    /// The resolution of the database's clock. The clock that a statement reads may be behind by this time, and its
    /// lease then expires earlier than its holder would expect.
    fn clock_resolution(_: &mut C) -> Duration {
        Duration::ZERO
    }

    /// Identifies the database: the same text for all connections to it, and different texts for different databases.
    /// `None` when no other connection can access the database.
    fn database_id(conn: &mut C) -> impl Future<Output = Result<Option<String>, Error>> + Send;

    /// Makes one attempt to lease a free slot. Never waits for another session's transaction.
    fn try_lease(
        conn: &mut C,
        request: &LeaseRequest<'_>,
        context: &AttemptContext,
    ) -> impl Future<Output = Result<AttemptOutcome, Error>> + Send;

    /// Begins a transaction for [`try_hold`](Self::try_hold). Returns `false` when another connection writes and the
    /// engine allows one writer.
    fn begin_hold(conn: &mut C) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Makes one attempt to lock a free slot until the open transaction ends.
    fn try_hold(
        conn: &mut C,
        semaphore: &Semaphore,
        context: &AttemptContext,
    ) -> impl Future<Output = Result<AttemptOutcome, Error>> + Send;

    /// After [`AttemptOutcome::TooManyRows`], returns the slots that may be granted although slots above the number of
    /// permits may be held.
    ///
    /// Each held slot, whatever its number, reduces them by one. Only the lowest free slots may be granted, so that two
    /// sessions that count at the same time compete for the same slots.
    ///
    /// Returns `None` instead of waiting while another session has the table locked.
    fn grantable_slots(
        conn: &mut C,
        semaphore: &Semaphore,
    ) -> impl Future<Output = Result<Option<Vec<i32>>, Error>> + Send;

    /// Whether another session is adding or removing slots, and may have locked them until its COMMIT. Called outside
    /// a transaction. Returns `false` instead of waiting while another session has a table locked.
    fn resize_in_progress(conn: &mut C) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Creates the missing slots up to the number of permits, in transactions of its own. When another session is
    /// adding or removing slots, or has a table locked, waits for it if `block` is set, and otherwise returns
    /// [`Contended`](BatchOutcome::Contended) or [`TableLocked`](BatchOutcome::TableLocked).
    fn create_slots(
        conn: &mut C,
        semaphore: &Semaphore,
        block: bool,
    ) -> impl Future<Output = Result<BatchOutcome, Error>> + Send {
        async move {
            loop {
                match Self::create_batch(conn, semaphore, block).await? {
                    BatchOutcome::Partial => {}
                    BatchOutcome::NoFenceFloor => Self::create_fence_floor(conn).await?,
                    ended => return Ok(ended),
                }
            }
        }
    }

    /// Creates the next batch of missing slots in one transaction.
    fn create_batch(
        conn: &mut C,
        semaphore: &Semaphore,
        block: bool,
    ) -> impl Future<Output = Result<BatchOutcome, Error>> + Send;

    /// Creates the row of `diesel_locks_fences` after it was deleted, with a value not below any existing fence. Other
    /// sessions may create it at the same time.
    fn create_fence_floor(conn: &mut C) -> impl Future<Output = Result<(), Error>> + Send;

    /// Raises the floor by `by` above all fences.
    fn raise_fence_floor(
        conn: &mut C,
        by: Duration,
    ) -> impl Future<Output = Result<RaiseOutcome, Error>> + Send;

    /// Stores the number of permits below which slots are not purged.
    fn register(
        conn: &mut C,
        semaphore: &Semaphore,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Sets a new expiry if the token still matches; returns the number of rows updated.
    fn renew_one(
        conn: &mut C,
        slot: &Slot,
        lease_us: i64,
        expiry: Expiry,
    ) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Releases the slot, or lets it expire after its minimum hold time, if the token still matches; returns the
    /// number of rows updated.
    fn release(
        conn: &mut C,
        slot: &Slot,
        expiry: Expiry,
    ) -> impl Future<Output = Result<usize, Error>> + Send;

    /// The text of a statement that does as [`release_unused`](Self::release_unused) with any slot that has this token.
    fn release_unused_statement(_semaphore: &str, _token: &[u8]) -> String {
        String::new()
    }

    /// Releases a slot that was not used, also before the end of its minimum hold time, if the token still matches;
    /// returns the number of rows updated.
    fn release_unused(
        conn: &mut C,
        slot: &Slot,
    ) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Prevents the slot from being granted to another holder until the transaction ends. Returns `false` when the
    /// token does not match.
    fn pin(conn: &mut C, slot: &Slot) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Lists the held slots of a semaphore for one that waits. Returns `None` instead of waiting while another session has the
    /// table locked.
    fn list_held_nowait(
        conn: &mut C,
        name: &str,
    ) -> impl Future<Output = Result<Option<Vec<HeldSlot>>, Error>> + Send;

    /// Reads the first slot, whether it is held or not. Does not wait while another session has the table locked.
    fn first_slot_nowait(
        conn: &mut C,
        name: &str,
    ) -> impl Future<Output = Result<FirstSlot, Error>> + Send;

    /// Lists the held slots, with the semaphores' names.
    fn list_held(
        conn: &mut C,
        request: &ListRequest,
    ) -> impl Future<Output = Result<Vec<(String, HeldRow)>, Error>> + Send;

    /// Lists the semaphores that have slots.
    fn list_semaphores(
        conn: &mut C,
        request: &ListRequest,
    ) -> impl Future<Output = Result<Vec<SemaphoreRow>, Error>> + Send;

    /// The database's clock, in microseconds since 1970 UTC.
    fn now_us(conn: &mut C) -> impl Future<Output = Result<i64, Error>> + Send;

    /// Releases every leased slot; returns how many were held.
    fn release_all(conn: &mut C, name: &str) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Deletes slots that have been free for `age_us` and are not registered; returns how many were deleted.
    fn purge_unused_slots(
        conn: &mut C,
        age_us: i64,
    ) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Releases many slots in one statement, which does not wait. Returns the tokens of those that were not released
    /// because another session has locked their rows.
    fn release_batch(
        conn: &mut C,
        leases: &[RenewalRequest],
        kind: ReleaseKind,
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, Error>> + Send;

    /// Renews the leases that have not expired, in one statement. Returns the remaining time of each lease whose token still
    /// matches. An expired lease has a time of zero or less, or is left out; its guard is lost.
    fn renew_batch(
        conn: &mut C,
        leases: &[RenewalRequest],
    ) -> impl Future<Output = Result<Vec<RenewalResult>, Error>> + Send;
}

/// How a slot is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseKind {
    /// It stays unavailable until the end of its minimum hold time.
    Used,
    /// It was not used, and is free at once.
    Unused,
}

/// A validated request for a lease.
#[derive(Debug)]
pub struct LeaseRequest<'a> {
    pub(crate) semaphore: &'a Semaphore,
    pub(crate) token: [u8; 16],
    pub(crate) holder: Option<&'a str>,
    pub(crate) lease_us: i64,
    pub(crate) min_hold_us: i64,
}

/// What an attempt depends on besides its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptContext {
    /// Whether a transaction is open, of the application or of this crate.
    pub(crate) in_transaction: bool,
    /// The only slots that may be granted, after [`AttemptOutcome::TooManyRows`].
    pub(crate) candidates: Option<Vec<i32>>,
    /// A slot that was just released.
    pub(crate) preferred: Option<i32>,
}

/// The outcome of creating a batch of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// All slots exist.
    Complete,
    /// More slots are missing.
    Partial,
    /// Another session is adding or removing slots, and was not waited for.
    Contended,
    /// Another session has locked a table, and was not waited for.
    #[allow(dead_code, reason = "not without an engine that locks tables")]
    TableLocked,
    /// The row of `diesel_locks_fences` is missing.
    NoFenceFloor,
}

/// The outcome of raising the floor of all fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaiseOutcome {
    RaisedTo(i64),
    /// The floor would be later than the year 2100.
    TooLarge,
    /// The row of `diesel_locks_fences` is missing.
    NoFenceFloor,
}

/// The outcome of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Granted(Grant),
    /// Leased in a statement that was sent after this time, because the attempt first waited for the write lock.
    #[cfg_attr(not(feature = "_sqlite"), allow(dead_code, reason = "of SQLite"))]
    LeasedSince(Grant, Instant),
    /// All slots are leased.
    AllLeased,
    /// The transaction was aborted by a conflict, and can be restarted.
    Retry,
    /// A slot is not leased, but locked by another session: for a moment by one that acquires it, or until its end by
    /// a transaction that holds it.
    Locked,
    /// Another session has locked the whole table.
    #[allow(dead_code, reason = "not without an engine that locks tables")]
    TableLocked,
    /// There are fewer slots than permits, and none was granted.
    TooFewRows,
    /// There are more slots than permits, and those above may be held.
    TooManyRows,
}

/// A granted slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub(crate) number: i32,
    pub(crate) fence: i64,
}

/// Whether a statement also affects expired leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Unexpired,
    IncludeExpired,
}

/// Number, fence and rest of the lease in microseconds. No texts: a broken client library loses them.
pub(crate) type HeldSlot = (i32, i64, i64);

/// The row of a held slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    any(feature = "_postgres", feature = "_sqlite"),
    derive(diesel::Queryable)
)]
pub struct HeldRow {
    pub(crate) number: i32,
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) holder: Option<String>,
    pub(crate) fence: i64,
    pub(crate) acquired_us: i64,
    pub(crate) expires_us: i64,
    pub(crate) remaining_us: i64,
}

/// A semaphore that has slots.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    any(feature = "_postgres", feature = "_sqlite"),
    derive(diesel::Queryable)
)]
pub struct SemaphoreRow {
    pub(crate) name: String,
    /// The registered number of permits.
    pub(crate) permits: Option<i32>,
    /// The number of the last slot.
    pub(crate) slots: Option<i32>,
    /// How many leases have not expired.
    pub(crate) held: i64,
}

/// The most slots that one statement names.
const MAX_CANDIDATES: usize = 1000;

/// Classifies an attempt that was not granted, by the number of the last slot and whether any slot is free.
pub(crate) fn classify_refusal(
    slots: Option<i32>,
    permits: i32,
    any_free: bool,
    context: &AttemptContext,
) -> AttemptOutcome {
    let slots = slots.unwrap_or(0);
    if let Some(candidates) = &context.candidates {
        if candidates.is_empty() {
            AttemptOutcome::AllLeased
        } else {
            AttemptOutcome::Locked
        }
    } else if slots > permits {
        AttemptOutcome::TooManyRows
    } else if slots < permits {
        AttemptOutcome::TooFewRows
    } else if any_free {
        AttemptOutcome::Locked
    } else {
        AttemptOutcome::AllLeased
    }
}

/// Returns the slots that may be granted when `free` of the `slots` are free.
///
/// `slots` is counted before `free` is read: slots that were removed in between count as held, those that were added
/// are ignored.
///
/// Returns at most as many as a statement can bind; the lowest suffice.
pub(crate) fn lowest_grantable(mut free: Vec<i32>, slots: i64, permits: i32) -> Vec<i32> {
    free.retain(|number| i64::from(*number) <= slots);
    free.sort_unstable();
    let free_slots = i64::try_from(free.len()).unwrap_or(i64::MAX);
    let held = slots - free_slots;
    let grantable = usize::try_from(i64::from(permits) - held).unwrap_or(0);
    let within = free.iter().copied().filter(|number| *number <= permits);
    within.take(grantable.min(MAX_CANDIDATES)).collect()
}

#[cfg(test)]
mod tests {
    use super::lowest_grantable;

    #[test]
    fn holders_above_the_permits_reduce_grantable_slots() {
        assert_eq!(lowest_grantable(vec![5, 4, 3, 2, 1], 5, 3), [1, 2, 3]);
        assert_eq!(lowest_grantable(vec![1, 2, 3], 5, 3), [1]);
        assert_eq!(lowest_grantable(vec![1, 3, 5], 5, 3), [1]);
        assert_eq!(lowest_grantable(vec![2, 5], 5, 3), [0; 0]);
        assert_eq!(lowest_grantable(vec![4, 5], 5, 3), [0; 0]);
    }

    #[test]
    fn slots_added_or_removed_between_reads_are_not_grantable() {
        let most_of_a_hundred: Vec<i32> = (3..50).chain(51..=100).collect();
        assert_eq!(lowest_grantable(most_of_a_hundred, 50, 3), [0; 0]);
        assert_eq!(lowest_grantable(vec![3, 4, 5, 6], 3, 3), [3]);
    }
}
