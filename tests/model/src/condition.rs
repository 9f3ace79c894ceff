//! What must be true in every state, and what must be possible in some.

use crate::config::{Config, LEASE};
use crate::database::{Database, Look, Row};
use crate::invariant::Invariant;
use crate::process::{Process, Renewal, Since};
use crate::protocol::Protocol;
use crate::state::{State, WRITTEN};

/// What is asked of a state.
pub type Condition = fn(&Protocol, &State) -> bool;

impl Invariant {
    /// Whether it is kept in this state.
    pub const fn condition(self) -> Condition {
        match self {
            Self::NoGrantBeyondPermits => |model, state| {
                !state.violations.has(Self::NoGrantBeyondPermits)
                    && state.database.held() <= model.config.most_permits()
            },
            Self::OneHolderPerSlot => |_, state| one_holder_per_slot(state),
            Self::HolderImpliesRow => |_, state| holder_implies_row(state),
            Self::LostForEver => |_, state| !state.violations.has(Self::LostForEver),
            Self::FencesGrow => |_, state| !state.violations.has(Self::FencesGrow),
            Self::NoStaleWrite => |_, state| !state.violations.has(Self::NoStaleWrite),
            Self::FreeSlotIsFound => |model, state| {
                model.config.numbers().all(|permits| {
                    let free = state.database.held() < permits;
                    attempt_succeeds(state.database, permits, &model.config) == free
                })
            },
        }
    }
}

fn one_holder_per_slot(state: &State) -> bool {
    let mut numbers = 0_u32;
    let believed = state.processes.iter().filter_map(Process::believes);
    for slot in believed {
        let bit = 1 << slot.number;
        if numbers & bit != 0 {
            return false;
        }
        numbers |= bit;
    }
    true
}

fn holder_implies_row(state: &State) -> bool {
    state.processes.iter().all(|process| match *process {
        Process::Holding { slot, left, .. } if left > 0 => {
            let row = &state.database.rows[slot.number];
            row.is_of(slot.token) && row.left >= left
        }
        _ => true,
    })
}

/// One attempt from its first statement to its answer, while no other process does anything.
fn attempt_succeeds(mut database: Database, permits: usize, config: &Config) -> bool {
    if database.look(permits, config) == Look::Missing {
        database.add(permits, config);
    }
    let number = match database.look(permits, config) {
        Look::Free(free) => free.iter().next(),
        Look::Surplus => {
            let open = database.open(database.slots(), permits, config);
            open.iter().next()
        }
        Look::Missing | Look::Full => None,
    };
    number.is_some_and(|number| {
        let seen = database.rows[number].fence;
        database
            .take(number, seen, database.last_fence(config), config)
            .is_some()
    })
}

/// What must be possible in the model, lest an invariant hold because nothing happens.
pub type Possibility = (&'static str, Condition);

/// All of them.
pub const POSSIBILITIES: [Possibility; 11] = [
    ("all permits are held", |model, state| {
        let believed = state.processes.iter().filter_map(Process::believes);
        believed.count() == model.config.most_permits()
    }),
    (
        "a slot changes hands while its last holder is about to write",
        |_, state| {
            state
                .late
                .is_some_and(|write| taken_over(state, WRITTEN, write.token))
        },
    ),
    ("a stale write is refused", |_, state| {
        state
            .late
            .is_some_and(|write| write.fence < state.resource.fence)
    }),
    (
        "a renewal comes too late: the slot is another's",
        |_, state| {
            state.processes.iter().any(|process| match *process {
                Process::Holding {
                    slot,
                    renewal: Renewal::Refused,
                    ..
                } => taken_over(state, slot.number, slot.token),
                _ => false,
            })
        },
    ),
    (
        "a renewal comes after the end, and nobody else has the slot",
        |_, state| {
            state.processes.iter().any(|process| match *process {
                Process::Holding {
                    slot,
                    renewal: Renewal::Sent(_),
                    ..
                } => {
                    let row = &state.database.rows[slot.number];
                    row.is_of(slot.token) && row.left == 0
                }
                _ => false,
            })
        },
    ),
    (
        "a confirmed renewal is answered after the guard was lost",
        |_, state| {
            state.processes.iter().any(|process| {
                matches!(
                    process,
                    Process::Holding {
                        left: 0,
                        renewal: Renewal::Done(1..),
                        ..
                    }
                )
            })
        },
    ),
    (
        "a grant is answered after its lease has ended",
        |_, state| {
            state
                .processes
                .iter()
                .any(|process| matches!(process, Process::Granted { left: 0, .. }))
        },
    ),
    (
        "a release comes too late: the slot is another's",
        |_, state| {
            state.processes.iter().any(|process| match *process {
                Process::Releasing { number, token } => taken_over(state, number, token),
                _ => false,
            })
        },
    ),
    (
        "the number is lowered while a slot above it is held",
        |model, state| {
            let lowered = model.config.permits[0];
            let above = &state.database.rows[lowered..];
            above.iter().copied().any(Row::is_held)
            && state.processes.iter().any(
                |process| matches!(process, Process::Counting { permits, .. } if *permits == lowered),
            )
        },
    ),
    (
        "a late renewal above a lowered number makes one holder more",
        |model, state| {
            state.processes.iter().any(|process| match *process {
                Process::Taking {
                    permits,
                    number,
                    seen,
                    after,
                    since: Since::LateRenewal,
                    ..
                } => {
                    let mut database = state.database;
                    database.take(number, seen, after, &model.config).is_some()
                        && database.held() > permits
                }
                _ => false,
            })
        },
    ),
    // Only if the clock jumps backwards.
    ("a lease lasts longer than it was to", |_, state| {
        state.database.rows.iter().any(|row| row.left > LEASE)
    }),
];

/// Whether the slot was granted to another process since, which holds it.
fn taken_over(state: &State, number: usize, token: u8) -> bool {
    let row = &state.database.rows[number];
    row.is_held() && row.owned && row.newest > token
}
