//! What can be broken in the workers, to show that the check finds it.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use torture_history::{Task, workload_spec};

use crate::cluster::Cluster;

/// What is broken in the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Sabotage {
    /// Counters are changed, or only read, without their locks.
    NoLock,
    /// Counters that are only read are read without their locks.
    NoSharedLock,
    /// Resources take every fence.
    NoFence,
    /// Slots are leased, or held by transactions, as if there were one permit more. SQLite has one writer, so there
    /// only leases show it.
    OverCapacity,
    /// Numbers are drawn in a transaction of their own.
    LeakySequence,
    /// Of several permits one is leased.
    PartialPermits,
    /// The number of permits in the database is ignored.
    IgnoredLimit,
    /// Counters are read before they are locked.
    StaleRead,
    /// Leases that are to be renewed are not.
    NoRenewal,
    /// A transaction that the database has given up is taken for committed.
    LossAsSuccess,
    /// After a panic only the innermost transaction is rolled back.
    LockAfterPanic,
    /// A future that is dropped leaves its transaction open, as that of diesel-async's `transaction` does.
    NoRollbackOnDrop,
    /// Fences grow within each slot, and not from slot to slot, as if the clock had jumped backwards between them.
    FencePerSlot,
    /// Slots of transactions are of another semaphore than the leases of the same name.
    SlotIgnoresLeases,
    /// A slot is pinned in a transaction of its own, before the one that relies on it.
    UnlockedPin,
    /// Guards that have lost their slots do not report it.
    SilentGuard,
    /// Holders that hang report progress.
    FalseProgress,
    /// A node of a cluster in which all take writes is taken for the only one.
    NoDetection,
    /// A primary confirms a COMMIT before a standby has received it.
    Asynchronous,
    /// A timer's slot is released by force after each tick, which is run again.
    RepeatedTick,
    /// Slots are released as another process does, so that nobody in this one learns of it.
    NoHandOver,
}

impl Sabotage {
    /// An error unless it breaks something here.
    pub(crate) fn check(self, cluster: Option<Cluster>) -> Result<()> {
        let needed = match self {
            Self::NoDetection => Cluster::Galera,
            Self::Asynchronous => Cluster::Patroni,
            _ => return Ok(()),
        };
        ensure!(
            cluster == Some(needed),
            "the sabotage {self:?} needs a cluster of {needed:?}"
        );
        Ok(())
    }
    /// Whether this task shows it.
    pub(crate) fn breaks(self, task: &Task) -> bool {
        match self {
            Self::NoLock | Self::NoSharedLock | Self::StaleRead | Self::NoRollbackOnDrop => {
                matches!(task, Task::Lock(_))
            }
            Self::NoFence => matches!(task, Task::Lease { renewed: false, .. }),
            Self::NoRenewal => matches!(task, Task::Lease { renewed: true, .. }),
            Self::FencePerSlot => matches!(task, Task::Lease { .. }),
            Self::OverCapacity | Self::SlotIgnoresLeases => {
                matches!(task, Task::Lease { .. } | Task::Slot { .. })
            }
            Self::PartialPermits => matches!(
                task,
                Task::Lease { permits: 2, .. } | Task::Slot { permits: 2, .. }
            ),
            Self::IgnoredLimit => match task {
                Task::Lease { semaphore, .. } => semaphore == workload_spec::LIMITED.name,
                task => matches!(task, Task::SetPermits { .. }),
            },
            Self::LeakySequence => matches!(task, Task::Pass { .. }),
            Self::LossAsSuccess => matches!(task, Task::IgnoreFault { .. }),
            Self::LockAfterPanic => matches!(task, Task::Panic { .. }),
            Self::UnlockedPin => matches!(task, Task::Pinned { .. }),
            Self::SilentGuard => matches!(task, Task::Revoked { .. }),
            Self::FalseProgress => matches!(task, Task::Stuck { .. }),
            Self::RepeatedTick => matches!(task, Task::Tick { .. }),
            Self::NoHandOver => matches!(task, Task::HandOver),
            Self::NoDetection | Self::Asynchronous => true,
        }
    }
}
