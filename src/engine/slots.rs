//! The operations of an engine on semaphores; what an attempt to acquire a slot asks for and gives; which slots are granted,
//! added and removed.

use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use uuid::Uuid;

use crate::engine::tables::Named;
use crate::values::lease::{RenewalRequest, RenewalResult};
use crate::values::list_options::ListRequest;
use crate::values::slot::FirstSlot;
use crate::{Error, Semaphore, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseKind {
    /// It stays unavailable until the end of its minimum hold time.
    Used,
    Unused,
}

/// What is changed of a slot whose token matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Sets a new expiry, not before the end of the minimum hold time.
    Renew {
        lease_us: i64,
    },
    /// Asks the holder to release the slot.
    RequestRelease,
    /// Sets the data of the holder.
    Data(Named<'a>),
    Release(ReleaseKind),
}

#[derive(Debug)]
pub struct LeaseRequest<'a> {
    pub(crate) semaphore: &'a Semaphore,
    pub(crate) token: [u8; 16],
    pub(crate) holder: &'a str,
    pub(crate) lease_us: i64,
    pub(crate) min_hold_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptContext {
    /// Whether a transaction is open, of the application or of this crate.
    pub(crate) in_transaction: bool,
    /// The only slots that may be granted, after [`AttemptOutcome::TooManyRows`].
    pub(crate) candidates: Option<Vec<i32>>,
    pub(crate) preferred: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisteredPermits {
    Number(i32),
    Missing,
    TableLocked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    Complete,
    Partial,
    /// Another session is adding or removing slots, and was not waited for.
    Contended,
    TableLocked,
    /// The row of `diesel_locks_fences` is missing.
    NoFenceFloor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaiseOutcome {
    RaisedTo(i64),
    /// The floor would be later than the year 2100.
    TooLarge,
    NoFenceFloor,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Granted(Grant),
    /// Leased in a statement that was sent after this time, because the attempt first waited for the write lock.
    LeasedSince(Grant, Instant),
    AllLeased,
    /// The transaction was aborted by a conflict, and can be restarted.
    Retry,
    /// A slot is not leased, but locked: for a moment by a session that acquires it, or by a transaction that holds it.
    Locked,
    /// An attempt on MariaDB returns [`Locked`](Self::Locked) in its place, and is made again.
    TableLocked,
    /// There are fewer slots than permits, and none was granted.
    TooFewRows,
    /// There are more slots than permits, and those above may be held.
    TooManyRows,
    /// Only these slots may be granted, because slots above the number of permits may be held.
    Candidates(Vec<i32>),
}

impl AttemptOutcome {
    /// After others were found free.
    pub(crate) fn candidates(unlocked: Vec<i32>) -> Self {
        if unlocked.is_empty() {
            Self::Locked
        } else {
            Self::Candidates(unlocked)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub(crate) number: i32,
    pub(crate) fence: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Unexpired,
    IncludeExpired,
}

/// Number, fence and rest of the lease in microseconds. No texts: a broken client library loses them.
pub(crate) type HeldSlot = (i32, i64, i64);

#[derive(Clone, Debug, PartialEq, Eq, diesel::Queryable)]
pub struct HeldRow {
    pub(crate) number: i32,
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) holder: Option<String>,
    pub(crate) fence: i64,
    pub(crate) acquired_us: i64,
    pub(crate) expires_us: i64,
    pub(crate) remaining_us: i64,
    pub(crate) release_requested_us: i64,
    pub(crate) data: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, diesel::Queryable)]
pub struct SemaphoreRow {
    pub(crate) name: String,
    pub(crate) permits: Option<i32>,
    pub(crate) slots: Option<i32>,
    pub(crate) held: i64,
}

/// For errors.
#[cfg(any(feature = "_postgres", feature = "_mysql"))]
pub(crate) fn all_slots(name: &str) -> String {
    format!("all slots of the semaphore {name:?}")
}

/// Token, rest of the lease, and when its release was requested, or 0.
pub(crate) fn renewed(
    (token, remaining_us, release_requested_us): (Vec<u8>, i64, i64),
) -> RenewalResult {
    RenewalResult {
        token,
        remaining_us,
        release_requested: release_requested_us > 0,
    }
}

/// The semaphores of an engine.
#[async_trait]
pub trait SemaphoreBackend: Send {
    /// The resolution of the database's clock. A statement may read a time that is too early by at most this much. A lease that it
    /// grants then ends too early by as much.
    fn clock_resolution(&self) -> Duration {
        Duration::ZERO
    }

    /// Identifies the database: the same text for all connections to it, and different texts for different databases.
    /// `None` when no other connection can access the database.
    async fn database_id(&mut self) -> Result<Option<String>, Error>;

    /// Reads the stored number of permits, before an acquisition. Does not wait while another session has the table locked.
    async fn registered_permits(&mut self, name: &str) -> Result<RegisteredPermits, Error>;

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

    /// After [`AttemptOutcome::TooManyRows`], returns the [`Candidates`](AttemptOutcome::Candidates), or
    /// [`Locked`](AttemptOutcome::Locked) if there would be some but for locks, or [`TableLocked`](AttemptOutcome::TableLocked).
    async fn find_candidates(&mut self, semaphore: &Semaphore) -> Result<AttemptOutcome, Error>;

    /// Whether another session is adding or removing slots, and may have locked them until its COMMIT. Called outside
    /// a transaction. Returns `false` instead of waiting while another session has a table locked, and on SQLite.
    async fn resize_in_progress(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

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

    /// Stores the number of permits, below which slots are not purged.
    async fn register(&mut self, semaphore: &Semaphore) -> Result<(), Error>;

    /// Changes the slot if the token still matches; returns the number of rows updated.
    async fn change(
        &mut self,
        slot: &Slot,
        change: Change<'_>,
        expiry: Expiry,
    ) -> Result<usize, Error>;

    /// The text of a statement that releases all slots that have these tokens as unused.
    fn release_unused_statement(&self, semaphore: &str, tokens: &[Uuid]) -> String;

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

    /// Moves the times of the held slots of one semaphore earlier; returns how many there are.
    #[cfg(feature = "testing")]
    async fn expire(&mut self, name: &str, by_us: i64) -> Result<usize, Error>;

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

const MAX_CANDIDATES: usize = 1000;

pub(crate) fn classify_refusal(
    slots: Option<i32>,
    permits: i32,
    any_free: bool,
    context: &AttemptContext,
) -> AttemptOutcome {
    let any_free = match &context.candidates {
        Some(candidates) => !candidates.is_empty(),
        None => match slots.unwrap_or(0).cmp(&permits) {
            Ordering::Greater => return AttemptOutcome::TooManyRows,
            Ordering::Less => return AttemptOutcome::TooFewRows,
            Ordering::Equal => any_free,
        },
    };
    if any_free {
        AttemptOutcome::Locked
    } else {
        AttemptOutcome::AllLeased
    }
}

/// Returns the slots that may be granted when `free` of the `slots` are free: the lowest, at most as many as a statement can bind.
///
/// `slots` is counted before `free` is read: slots that were removed in between count as held, those that were added are ignored.
pub(crate) fn lowest_grantable(mut free: Vec<i32>, slots: i64, permits: i32) -> Vec<i32> {
    free.retain(|number| i64::from(*number) <= slots);
    free.sort_unstable();
    let free_slots = i64::try_from(free.len()).unwrap_or(i64::MAX);
    let held = slots - free_slots;
    let grantable = usize::try_from(i64::from(permits) - held).unwrap_or(0);
    let within = free.iter().copied().filter(|number| *number <= permits);
    within.take(grantable.min(MAX_CANDIDATES)).collect()
}

pub(crate) const BATCH_SIZE: i32 = 1000;

pub(crate) fn slots_to_add(last: Option<i32>, permits: i32) -> RangeInclusive<i32> {
    let first = last.unwrap_or(0) + 1;
    first..=permits.min(first + BATCH_SIZE - 1)
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// The slots above this number.
    pub(crate) above: i32,
    /// The largest fence among them and the floor.
    pub(crate) fence: i64,
}

/// Returns the slots to delete at the end of the range that ends with slot `last`. `free` contains numbers and fences
/// of slots that may be deleted, from the largest number down; those below a slot that stays are retained.
pub(crate) fn slots_to_delete(
    last: Option<i32>,
    free: &[(i32, i64)],
    floor: i64,
) -> Option<Deletion> {
    let last = last?;
    let removed = (0..=last)
        .rev()
        .zip(free)
        .take_while(|(next, (number, _))| next == number);
    let fences: Vec<i64> = removed.map(|(_, (_, fence))| *fence).collect();
    let count = i32::try_from(fences.len()).unwrap_or(0);
    (count > 0).then(|| Deletion {
        above: last - count,
        fence: fences.into_iter().fold(floor, i64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn slots_are_added_up_to_the_permits_a_batch_at_a_time() {
        assert_eq!(slots_to_add(None, 10), 1..=10);
        assert_eq!(slots_to_add(Some(4), 10), 5..=10);
        assert_eq!(slots_to_add(Some(1000), 100_000), 1001..=2000);
        assert!(slots_to_add(Some(10), 10).is_empty());
        assert!(slots_to_add(Some(11), 10).is_empty());
    }

    #[test]
    fn slots_are_removed_from_the_last_one_down_to_the_first_that_stays() {
        let free = [(9, 50), (8, 70), (6, 90)];
        let deletion = |above, fence| Some(Deletion { above, fence });
        assert_eq!(slots_to_delete(Some(9), &free, 60), deletion(7, 70));
        assert_eq!(slots_to_delete(Some(9), &free[..1], 60), deletion(8, 60));
        assert_eq!(slots_to_delete(Some(10), &free, 60), None);
        assert_eq!(slots_to_delete(None, &[], 60), None);
    }
}
