//! What a step does.

use crate::action::{Action, Step};
use crate::process::{Process, Renewal, Since, Slot};
use crate::promise::Promise;
use crate::setup::{LEASE, Mutant, Setup};
use crate::state::{State, Write};

/// The state after a step, with its processes in their places; `None` when nothing changes.
pub fn next(setup: &Setup, last: &State, action: Action) -> Option<State> {
    let mut state = *last;
    match action {
        Action::Tick => {
            state.database.tick();
            for process in &mut state.processes {
                process.tick(LEASE, !setup.is(Mutant::DeadlineAfterReply));
            }
        }
        Action::SetForward => state.database.set_forward(),
        Action::SetBack { ended_go_on } => {
            if state.database.set_back(ended_go_on) {
                note(&mut state, Since::LateRefresh, setup.most_permits());
            }
        }
        Action::Add { permits } => state.database.add(permits, setup),
        Action::Purge => {
            state.database.purge(setup);
        }
        Action::LateWrite => {
            if let Some(late) = state.late.take() {
                write(setup, &mut state, late);
            }
        }
        Action::Of(index, step) => step_of(setup, &mut state, index, step),
    }
    (state != *last).then_some(state)
}

fn note(state: &mut State, what: Since, largest: usize) {
    for process in &mut state.processes {
        process.note(what, largest);
    }
}

fn step_of(setup: &Setup, state: &mut State, index: usize, step: Step) {
    let now = match (state.processes[index], step) {
        (Process::Idle, Step::Look { permits, number }) => Process::Taking {
            permits,
            number,
            seen: state.database.rows[number].fence,
            after: state.database.last_fence(setup),
            age: 0,
            since: Since::Nothing,
        },
        (Process::Idle, Step::Count { permits }) => Process::Counting {
            permits,
            slots: state.database.slots(),
            since: Since::Nothing,
        },
        (Process::Counting { permits, since, .. }, Step::Open { number }) => Process::Open {
            permits,
            number,
            since,
        },
        (
            Process::Open {
                permits,
                number,
                since,
            },
            Step::LookAgain,
        ) if state.database.is_free(number, setup) => Process::Taking {
            permits,
            number,
            seen: state.database.rows[number].fence,
            after: state.database.last_fence(setup),
            age: 0,
            since,
        },
        (Process::Taking { .. }, Step::Take) => take(setup, state, index),
        (Process::Granted { slot, left }, Step::Granted) => Process::Holding {
            slot,
            left,
            renewal: Renewal::None,
        },
        (Process::Holding { slot, .. }, Step::Release) => Process::Releasing {
            number: slot.number,
            token: slot.token,
        },
        (Process::Releasing { number, token }, Step::Released) => {
            state.database.give_back(number, token, setup);
            Process::Idle
        }
        (
            Process::Holding {
                slot,
                left,
                renewal,
            },
            step,
        ) if step != Step::GiveUp => {
            let mut holding = Holding {
                slot,
                left,
                renewal,
            };
            holding.step(setup, state, step);
            Process::Holding {
                slot,
                left: holding.left,
                renewal: holding.renewal,
            }
        }
        _ => Process::Idle,
    };
    state.processes[index] = now;
}

/// `slots.rs`, `lease`, from the moment that the statement is executed.
fn take(setup: &Setup, state: &mut State, index: usize) -> Process {
    let Process::Taking {
        permits,
        number,
        seen,
        after,
        age,
        since,
    } = state.processes[index]
    else {
        return Process::Idle;
    };
    let Some(grant) = state.database.take(number, seen, after, setup) else {
        return Process::Idle;
    };
    if !grant.grew {
        state.broken.note(Promise::FencesGrow);
    }
    if state.database.held() > permits && since == Since::Nothing {
        state.broken.note(Promise::NoGrantBeyondPermits);
    }
    note(state, Since::LargerNumber, permits);
    Process::Granted {
        slot: Slot {
            number,
            token: grant.token,
            fence: grant.fence,
        },
        left: LEASE - counted(setup, age),
    }
}

/// How much of a lease has passed when the answer comes, as its holder counts.
fn counted(setup: &Setup, age: u8) -> u8 {
    if setup.is(Mutant::DeadlineAfterReply) {
        0
    } else {
        age
    }
}

/// A guard, and what it has under way.
struct Holding {
    slot: Slot,
    left: u8,
    renewal: Renewal,
}

impl Holding {
    fn step(&mut self, setup: &Setup, state: &mut State, step: Step) {
        match (step, self.renewal) {
            (Step::Renew, _) => self.renewal = Renewal::Sent(0),
            (Step::Renewed, Renewal::Sent(age)) => self.renewed(setup, state, age),
            (Step::RenewSkipped, Renewal::Sent(age)) => {
                let left = state.database.left_of(self.slot.number, self.slot.token);
                self.answered(setup, left, age);
            }
            (Step::Confirm, renewal) => self.confirm(setup, state, renewal),
            (Step::ConfirmSlot, Renewal::Done(left)) => {
                self.left = left;
                self.renewal = Renewal::None;
            }
            (Step::Write, _) => write(setup, state, self.write()),
            (Step::WriteLate, _) => state.late = Some(self.write()),
            _ => {}
        }
    }

    fn renewed(&mut self, setup: &Setup, state: &mut State, age: u8) {
        let had_ended = !state.database.rows[self.slot.number].is_held();
        let left = state
            .database
            .extend(self.slot.number, self.slot.token, setup);
        if had_ended && left.is_some() {
            note(state, Since::LateRefresh, setup.most_permits());
        }
        self.answered(setup, left, age);
    }

    /// `renewer/renew.rs`, `renew`: what is left is counted from before the statement was sent.
    fn answered(&mut self, setup: &Setup, left: Option<u8>, age: u8) {
        self.renewal = match left {
            Some(left) => Renewal::Done(left.saturating_sub(counted(setup, age))),
            None => Renewal::Refused,
        };
    }

    /// `guard/state.rs`, `confirm` and `take_away`.
    fn confirm(&mut self, setup: &Setup, state: &mut State, renewal: Renewal) {
        let lost = self.left == 0;
        match renewal {
            Renewal::Done(left) if !lost || setup.is(Mutant::LostGuardRevived) => self.left = left,
            Renewal::Refused => self.left = 0,
            _ => {}
        }
        if lost && self.left > 0 {
            state.broken.note(Promise::LostForEver);
        }
        self.renewal = Renewal::None;
    }

    fn write(&self) -> Write {
        Write {
            fence: self.slot.fence,
            token: self.slot.token,
        }
    }
}

/// A write arrives.
fn write(setup: &Setup, state: &mut State, write: Write) {
    let resource = &mut state.resource;
    if write.fence < resource.fence && !setup.is(Mutant::NoFenceCheck) {
        return;
    }
    resource.fence = resource.fence.max(write.fence);
    if write.token < resource.newest {
        state.broken.note(Promise::NoStaleWrite);
    }
    resource.newest = resource.newest.max(write.token);
}
