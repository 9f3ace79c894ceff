//! What the nemesis does.

use serde::{Deserialize, Serialize};

use crate::Moment;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A worker process is killed, and started again.
    Kill,
    /// A worker process is stopped for longer than a lease, and continues.
    Pause,
    /// Connections are reset.
    Reset,
    /// No packet of a worker's connections arrives, in either direction, nor does an acknowledgement.
    BlackHole,
    /// Whatever is sent arrives later.
    Delay,
    /// New connections are refused.
    Refuse,
    /// The server ends sessions.
    Terminate,
    /// The server has no connection left.
    Exhaust,
    /// The server, or a node of a cluster, is killed, and starts again.
    Crash,
    /// A node of a cluster is stopped, and continues.
    Freeze,
    /// A node of a cluster and the others can't reach each other.
    Isolate,
    /// Another node of a cluster becomes the one that takes writes.
    Promote,
    /// The database's clock jumps ahead, and back again after a while.
    ClockAhead,
    /// The database's clock jumps back, and is right again after a while.
    ClockBack,
    /// A session keeps a snapshot open.
    Snapshot,
    /// Somebody takes the right to write and sleeps (SQLite); elsewhere, locks on rows that workers want.
    Hog,
    /// The future of an operation is dropped by its own worker. It excuses nothing but that operation, and has no [`Fault`].
    Drop,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Kill,
        Self::Pause,
        Self::Reset,
        Self::BlackHole,
        Self::Delay,
        Self::Refuse,
        Self::Terminate,
        Self::Exhaust,
        Self::Crash,
        Self::Freeze,
        Self::Isolate,
        Self::Promote,
        Self::ClockAhead,
        Self::ClockBack,
        Self::Snapshot,
        Self::Hog,
        Self::Drop,
    ];

    /// As on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Reset => "reset",
            Self::BlackHole => "black-hole",
            Self::Delay => "delay",
            Self::Refuse => "refuse",
            Self::Terminate => "terminate",
            Self::Exhaust => "exhaust",
            Self::Crash => "crash",
            Self::Freeze => "freeze",
            Self::Isolate => "isolate",
            Self::Promote => "promote",
            Self::ClockAhead => "clock-ahead",
            Self::ClockBack => "clock-back",
            Self::Snapshot => "snapshot",
            Self::Hog => "hog",
            Self::Drop => "drop",
        }
    }

    /// Whether it breaks connections, or prevents new ones.
    pub fn cuts(self) -> bool {
        matches!(
            self,
            Self::Pause
                | Self::Reset
                | Self::BlackHole
                | Self::Delay
                | Self::Refuse
                | Self::Terminate
                | Self::Exhaust
                | Self::Crash
                | Self::Freeze
                | Self::Isolate
                | Self::Promote
        )
    }
}

/// A fault, from when it began until everything was as before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Which kind.
    pub kind: FaultKind,
    /// The worker it was for; none, when it was for all.
    pub worker: Option<u32>,
    /// When it began.
    pub from: Moment,
    /// When it was over.
    pub until: Moment,
    /// When the database's clock jumped ahead, if it did: not before the first moment and not after the second. When the clocks of
    /// nodes differed: from when until when.
    pub ahead: Option<(Moment, Moment)>,
}
