//! The kinds of violations.

use serde::Serialize;

/// What must not happen, whatever fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// A counter, or the version of a resource, was set to the same number twice, or skipped one, or is not what was
    /// written last; or money came from nowhere.
    LostUpdates,
    /// What the database had confirmed is not there, or a part of a transaction only.
    LostCommits,
    /// A write that was refused, or has failed for certain, is there; or a write that no operation began.
    GhostCommits,
    /// A transaction that had ended, or was aborted, was reported as committed, or was granted a lock or a number; or a
    /// guard did not report the loss of its slot, or not in time.
    UnreportedLosses,
    /// Two held one object's lock at the same time, which not both shared, or one pinned slot.
    OverlappingHolders,
    /// One ended before another began, and has the larger number.
    Disorder,
    /// More than there are permits held a slot of a semaphore at the same time, or two held the same slot.
    OverCapacity,
    /// A resource accepted a write with a smaller fence than one before, or with the fence of another operation.
    StaleWrites,
    /// A fence that is not larger than that of an earlier grant of any slot of the semaphore, or was granted twice.
    Fences,
    /// A tick of a timer was run that had been run before, or one that was due before it; or none was due then.
    RepeatedTicks,
    /// A lease that nothing could end was lost, or was believed in beyond its end.
    LostLeases,
    /// A number of a sequence was lost.
    SequenceGaps,
    /// A number of a sequence was drawn twice, or is going to be.
    SequenceRepeats,
    /// Slots that were released while the process waited for them were granted to it late, most of the time.
    LateHandOvers,
    /// A row of a lock that is not kept, or the lock of a closure that has panicked.
    LeftLocks,
    /// A slot is still taken.
    LeftSlots,
    /// An operation did not come back, or not in time.
    Hung,
    /// A kind of task, or a client, of which nothing was done in a run that was long enough; or no request of a client
    /// that waits without a connection has waited so; or no two have held a shared lock at the same time.
    NothingDone,
    /// A wait that ended before the time that was asked for.
    EarlyTimeouts,
    /// A wait that ended long after it, though nothing had failed.
    LateTimeouts,
    /// An error that nothing explains.
    UnexpectedErrors,
}

impl Violation {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::LostUpdates,
        Self::LostCommits,
        Self::GhostCommits,
        Self::UnreportedLosses,
        Self::OverlappingHolders,
        Self::Disorder,
        Self::OverCapacity,
        Self::StaleWrites,
        Self::Fences,
        Self::RepeatedTicks,
        Self::LostLeases,
        Self::SequenceGaps,
        Self::SequenceRepeats,
        Self::LateHandOvers,
        Self::LeftLocks,
        Self::LeftSlots,
        Self::Hung,
        Self::NothingDone,
        Self::EarlyTimeouts,
        Self::LateTimeouts,
        Self::UnexpectedErrors,
    ];

    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::LostUpdates => "lost_updates",
            Self::LostCommits => "lost_commits",
            Self::GhostCommits => "ghost_commits",
            Self::UnreportedLosses => "unreported_losses",
            Self::OverlappingHolders => "overlapping_holders",
            Self::Disorder => "disorder",
            Self::OverCapacity => "over_capacity",
            Self::StaleWrites => "stale_writes",
            Self::Fences => "fences",
            Self::RepeatedTicks => "repeated_ticks",
            Self::LostLeases => "lost_leases",
            Self::SequenceGaps => "sequence_gaps",
            Self::SequenceRepeats => "sequence_repeats",
            Self::LateHandOvers => "late_hand_overs",
            Self::LeftLocks => "left_locks",
            Self::LeftSlots => "left_slots",
            Self::Hung => "hung",
            Self::NothingDone => "nothing_done",
            Self::EarlyTimeouts => "early_timeouts",
            Self::LateTimeouts => "late_timeouts",
            Self::UnexpectedErrors => "unexpected_errors",
        }
    }
}
