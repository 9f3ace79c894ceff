//! The invariants of the protocol, and which of them a step or a mutant breaks. What they ask of a state is in
//! [`condition`](crate::condition).

use crate::config::{Config, Mutant};

/// The invariants of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// A grant makes no more holders than the acquirer's number of permits.
    NoGrantBeyondPermits,
    /// No two processes hold the same slot by their deadlines.
    OneHolderPerSlot,
    /// A process that holds a slot by its deadline has it in the database, for at least as long.
    HolderImpliesRow,
    /// A guard that was lost is never held again.
    LostForEver,
    /// The fence of a grant is larger than all earlier ones of the slot, and than those of all grants of other
    /// slots that were finished before it looked.
    FencesGrow,
    /// No write of an earlier grant is taken after one of a later grant.
    NoStaleWrite,
    /// An attempt that no other process disturbs is granted exactly when fewer slots are held than it has permits.
    FreeSlotIsFound,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NoGrantBeyondPermits,
        Self::OneHolderPerSlot,
        Self::HolderImpliesRow,
        Self::LostForEver,
        Self::FencesGrow,
        Self::NoStaleWrite,
        Self::FreeSlotIsFound,
    ];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoGrantBeyondPermits => "no grant beyond the permits",
            Self::OneHolderPerSlot => "one holder per slot",
            Self::HolderImpliesRow => "a holder implies a row",
            Self::LostForEver => "lost for ever",
            Self::FencesGrow => "fences grow",
            Self::NoStaleWrite => "no stale write",
            Self::FreeSlotIsFound => "a free slot is found",
        }
    }
}

impl Mutant {
    /// Where the mutant shows, and which invariant it breaks.
    pub const fn breaks(self) -> (Config, Invariant) {
        let (config, invariant) = match self {
            Self::NoFenceCheck => (Config::WRITES, Invariant::NoStaleWrite),
            Self::FenceByClock => (Config::WRITES, Invariant::FencesGrow),
            Self::FenceOfOwnSlot => (Config::FENCES, Invariant::FencesGrow),
            Self::TakeWithoutFence | Self::PurgeForgetsFences => {
                (Config::SLOTS, Invariant::FencesGrow)
            }
            Self::RenewWithoutToken
            | Self::ReleaseWithoutToken
            | Self::DeadlineAfterReply
            | Self::TakeWithoutCompare
            | Self::ProcessClock => (Config::SLOTS, Invariant::OneHolderPerSlot),
            Self::CountBeforeLock | Self::HoldersAboveIgnored => {
                (Config::SLOTS, Invariant::NoGrantBeyondPermits)
            }
            Self::LostGuardRevived => (Config::SLOTS, Invariant::LostForEver),
            Self::ExpiryIgnored => (Config::SLOTS, Invariant::FreeSlotIsFound),
        };
        (config.with(self), invariant)
    }
}

/// The invariants that a step has broken, where the state after it does not show that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Violations(u8);

impl Violations {
    /// Notes it.
    pub(crate) fn record(&mut self, invariant: Invariant) {
        self.0 |= 1 << invariant as u8;
    }

    pub(crate) fn has(self, invariant: Invariant) -> bool {
        self.0 & 1 << invariant as u8 != 0
    }
}
