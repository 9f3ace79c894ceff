//! One step of anybody, and which may be next.

use crate::config::{Clock, Config, MOST_PROCESSES, Mutant};
use crate::database::{Look, Number};
use crate::process::{Process, Renewal};
use crate::state::{State, WRITTEN};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A tick of all clocks.
    Tick,
    /// The database's clock is set forward, beyond the end of all leases.
    SetForward,
    /// It jumps backwards by a tick: an expired lease may become unexpired.
    SetBack {
        /// Whether they do.
        ended_go_on: bool,
    },
    /// A session creates the missing slots up to this number of permits.
    Add {
        /// The number.
        permits: usize,
    },
    /// A session removes the last slot.
    Purge,
    /// The write that is late arrives.
    LateWrite,
    /// A step of a process.
    Of(usize, Step),
}

/// A step of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Looks, and sends the statement that takes this slot.
    Look {
        /// The process's number of permits.
        permits: usize,
        /// The free slot that it chose.
        number: Number,
    },
    /// Looks, finds more slots than permits, and counts the slots.
    Count {
        /// The process's number of permits.
        permits: usize,
    },
    /// Looks which slots are free, and chooses this one of those that are open.
    Open {
        /// The slot.
        number: Number,
    },
    /// Looks which slots are free; none is open.
    NoneOpen,
    /// Looks at the open slot, and sends the statement that takes it, or gives up.
    LookAgain,
    /// The statement that takes is executed.
    Take,
    /// Its answer arrives.
    Granted,
    /// Sends a renewal.
    Renew,
    /// It is executed.
    Renewed,
    /// It is executed while another session has the row locked.
    RenewSkipped,
    /// Its answer arrives at the guard.
    Confirm,
    /// Its answer arrives at a `Slot` without a guard, which may be renewed after its end.
    ConfirmSlot,
    /// Asks the guard whether it is held, and writes.
    Write,
    /// Asks the guard whether it is held, and sends a write, or is paused before.
    WriteLate,
    /// Ends the guard and sends the release.
    Release,
    /// It is executed.
    Released,
    /// Forgets all, and begins anew: a crash, or an answer that is never had.
    GiveUp,
}

/// The steps that may follow.
pub fn steps(config: &Config, state: &State, actions: &mut Vec<Action>) {
    actions.push(Action::Tick);
    match config.clock {
        Clock::Steady => {}
        Clock::SetForward => actions.push(Action::SetForward),
        Clock::SetBack => {
            actions.extend([false, true].map(|ended_go_on| Action::SetBack { ended_go_on }));
        }
    }
    actions.push(Action::Purge);
    if state.late.is_some() {
        actions.push(Action::LateWrite);
    }
    actions.extend(config.numbers().map(|permits| Action::Add { permits }));
    for index in 0..MOST_PROCESSES {
        // Two that are in the same place do the same.
        if index > 0 && state.processes[index] == state.processes[index - 1] {
            continue;
        }
        steps_of(config, state, index, |step| {
            actions.push(Action::Of(index, step));
        });
    }
}

fn steps_of(config: &Config, state: &State, index: usize, mut step: impl FnMut(Step)) {
    let database = &state.database;
    match state.processes[index] {
        Process::Absent => return,
        Process::Idle => {
            for permits in config.numbers() {
                match database.look(permits, config) {
                    Look::Free(free) => {
                        for number in free.iter() {
                            step(Step::Look { permits, number });
                        }
                    }
                    Look::Surplus => step(Step::Count { permits }),
                    Look::Missing | Look::Full => {}
                }
            }
            return;
        }
        Process::Counting { permits, slots, .. } => {
            let open = database.open(slots, permits, config);
            for number in open.iter() {
                step(Step::Open { number });
            }
            if open.is_empty() {
                step(Step::NoneOpen);
            }
        }
        Process::Open { .. } => step(Step::LookAgain),
        Process::Taking { .. } => step(Step::Take),
        Process::Granted { .. } => step(Step::Granted),
        Process::Holding {
            slot,
            left,
            renewal,
        } => {
            match renewal {
                // A guard that is lost is not renewed; a `Slot` without a guard may be renewed late. The mutant
                // is about guards.
                Renewal::None if left == 0 && config.is(Mutant::LostGuardRevived) => {}
                Renewal::None => step(Step::Renew),
                Renewal::Sent(_) => {
                    step(Step::Renewed);
                    step(Step::RenewSkipped);
                }
                Renewal::Done(_) | Renewal::Refused => step(Step::Confirm),
            }
            if left == 0 && matches!(renewal, Renewal::Done(1..)) {
                step(Step::ConfirmSlot);
            }
            if config.writes && left > 0 && slot.number == WRITTEN {
                step(Step::Write);
                if state.late.is_none() {
                    step(Step::WriteLate);
                }
            }
            step(Step::Release);
        }
        Process::Releasing { .. } => step(Step::Released),
    }
    step(Step::GiveUp);
}
