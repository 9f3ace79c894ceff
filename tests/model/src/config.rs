//! How large the model is, and what is wrong with it.

/// The largest number of slots.
pub const MOST_SLOTS: usize = 2;

/// The largest number of processes. Each has one connection and one guard.
pub const MOST_PROCESSES: usize = 3;

/// A lease in ticks of the clock. With one tick a renewal in time would change nothing.
pub const LEASE: u8 = 2;

/// What is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of permits after a lowering and before it. Every attempt at a slot uses one of them: both
    /// versions of the program run, at any time and in any order.
    pub permits: [usize; 2],
    /// How many processes there are.
    pub processes: usize,
    /// Holders write, with their fences.
    pub writes: bool,
    /// Compares the fences of different slots, with a clock that may have jumped backwards before each grant. Otherwise
    /// only the fences of one slot are compared, which do not depend on other slots.
    pub fences: bool,
    /// What the database's clock does beside running.
    pub clock: Clock,
    /// `None`: the protocol as it is.
    pub mutant: Option<Mutant>,
}

impl Config {
    /// Two permits, lowered to one and raised again.
    pub const SLOTS: Self = Self {
        permits: [1, 2],
        processes: MOST_PROCESSES,
        writes: false,
        fences: false,
        clock: Clock::Steady,
        mutant: None,
    };

    /// One permit, whose holders write. What is written with the fences of one slot looks at no other slot, and
    /// nothing looks at what is written: so this is all there is to see of writes.
    pub const WRITES: Self = Self {
        permits: [1, 1],
        writes: true,
        ..Self::SLOTS
    };

    /// The slots, and fences across them.
    pub const FENCES: Self = Self {
        processes: 2,
        fences: true,
        ..Self::SLOTS
    };

    /// This configuration with a deliberate mistake.
    #[must_use]
    pub const fn with(self, mutant: Mutant) -> Self {
        Self {
            mutant: Some(mutant),
            ..self
        }
    }

    /// This configuration with another clock and number of processes.
    #[must_use]
    pub const fn at(self, clock: Clock, processes: usize) -> Self {
        Self {
            processes,
            clock,
            ..self
        }
    }

    /// The number before the lowering.
    pub const fn most_permits(&self) -> usize {
        self.permits[1]
    }

    /// The numbers that an attempt may use.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        let [few, most] = self.permits;
        std::iter::once(few).chain((most > few).then_some(most))
    }

    /// Whether this is done wrong.
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// The database's clock beside the processes' monotonic clocks, which all run at the same rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    /// It runs as the others do.
    Steady,
    /// It is also set forward, beyond the end of all leases, as often as you like.
    SetForward,
    /// It also jumps backwards, by a tick, any number of times.
    SetBack,
}

/// One deliberate mistake. The table in `docs/lease-model.md` names the place in `src/` that does it right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutant {
    /// The resource accepts every write. (The application's part: the statement in `docs/guide.md`.)
    NoFenceCheck,
    /// A renewal does not compare the token.
    RenewWithoutToken,
    /// A release does not compare the token.
    ReleaseWithoutToken,
    /// The deadline is counted from the answer.
    DeadlineAfterReply,
    /// Counts the holders, and if there are too few, claims any free slot.
    CountBeforeLock,
    /// Holders above the number of permits do not count.
    HoldersAboveIgnored,
    /// Claims the row even if it has changed.
    TakeWithoutCompare,
    /// Requires that the row is free, and not the fence that the search read.
    TakeWithoutFence,
    /// A confirmed renewal does not check whether the guard was lost meanwhile.
    LostGuardRevived,
    /// The processes' clocks decide whether a lease has expired, and one is a tick ahead.
    ProcessClock,
    /// The next fence is the clock alone.
    FenceByClock,
    /// The next fence is one more than the slot's own, or the clock, which has jumped backwards.
    FenceOfOwnSlot,
    /// Deleted rows leave no fence behind, and the clock jumps backwards.
    PurgeForgetsFences,
    /// Every `expires_us <= now`: a slot is free only after its release, even if its lease has expired.
    ExpiryIgnored,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::NoFenceCheck,
        Self::RenewWithoutToken,
        Self::ReleaseWithoutToken,
        Self::DeadlineAfterReply,
        Self::CountBeforeLock,
        Self::HoldersAboveIgnored,
        Self::TakeWithoutCompare,
        Self::TakeWithoutFence,
        Self::LostGuardRevived,
        Self::ProcessClock,
        Self::FenceByClock,
        Self::FenceOfOwnSlot,
        Self::PurgeForgetsFences,
        Self::ExpiryIgnored,
    ];
}
