//! What a step does.

use crate::action::{Action, Step};
use crate::config::{Config, LEASE, Mutant};
use crate::invariant::Invariant;
use crate::process::{Process, Renewal, Since, Slot};
use crate::state::{State, Write};

/// The state after a step, with its processes in their places; `None` when nothing changes.
pub fn next(config: &Config, last: &State, action: Action) -> Option<State> {
    let mut state = *last;
    match action {
        Action::Tick => {
            state.database.tick();
            for process in &mut state.processes {
                process.tick(LEASE, !config.is(Mutant::DeadlineAfterReply));
            }
        }
        Action::SetForward => state.database.set_forward(),
        Action::SetBack { ended_go_on } => {
            if state.database.set_back(ended_go_on) {
                note(&mut state, Since::LateRenewal, config.most_permits());
            }
        }
        Action::Add { permits } => state.database.add(permits, config),
        Action::Purge => {
            state.database.purge(config);
        }
        Action::LateWrite => {
            if let Some(late) = state.late.take() {
                write(config, &mut state, late);
            }
        }
        Action::Of(index, step) => step_of(config, &mut state, index, step),
    }
    (state != *last).then_some(state)
}

fn note(state: &mut State, what: Since, largest: usize) {
    for process in &mut state.processes {
        process.note(what, largest);
    }
}

fn step_of(config: &Config, state: &mut State, index: usize, step: Step) {
    let now = match (state.processes[index], step) {
        (Process::Idle, Step::Look { permits, number }) => Process::Taking {
            permits,
            number,
            seen: state.database.rows[number].fence,
            after: state.database.last_fence(config),
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
        ) if state.database.is_free(number, config) => Process::Taking {
            permits,
            number,
            seen: state.database.rows[number].fence,
            after: state.database.last_fence(config),
            age: 0,
            since,
        },
        (Process::Taking { .. }, Step::Take) => take(config, state, index),
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
            state.database.release(number, token, config);
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
            holding.step(config, state, step);
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

/// `acquire` in `acts/slot_attempts.rs`, from the time that the statement is executed.
fn take(config: &Config, state: &mut State, index: usize) -> Process {
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
    let Some(grant) = state.database.take(number, seen, after, config) else {
        return Process::Idle;
    };
    if !grant.grew {
        state.violations.record(Invariant::FencesGrow);
    }
    if state.database.held() > permits && since == Since::Nothing {
        state.violations.record(Invariant::NoGrantBeyondPermits);
    }
    note(state, Since::LargerNumber, permits);
    Process::Granted {
        slot: Slot {
            number,
            token: grant.token,
            fence: grant.fence,
        },
        left: LEASE - counted(config, age),
    }
}

/// How much of a lease has passed when the answer comes, as its holder counts.
fn counted(config: &Config, age: u8) -> u8 {
    if config.is(Mutant::DeadlineAfterReply) {
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
    fn step(&mut self, config: &Config, state: &mut State, step: Step) {
        match (step, self.renewal) {
            (Step::Renew, _) => self.renewal = Renewal::Sent(0),
            (Step::Renewed, Renewal::Sent(age)) => self.renewed(config, state, age),
            (Step::RenewSkipped, Renewal::Sent(age)) => {
                let left = state.database.left_of(self.slot.number, self.slot.token);
                self.answered(config, left, age);
            }
            (Step::Confirm, renewal) => self.confirm(config, state, renewal),
            (Step::ConfirmSlot, Renewal::Done(left)) => {
                self.left = left;
                self.renewal = Renewal::None;
            }
            (Step::Write, _) => write(config, state, self.write()),
            (Step::WriteLate, _) => state.late = Some(self.write()),
            _ => {}
        }
    }

    fn renewed(&mut self, config: &Config, state: &mut State, age: u8) {
        let had_ended = !state.database.rows[self.slot.number].is_held();
        let left = state
            .database
            .extend(self.slot.number, self.slot.token, config);
        if had_ended && left.is_some() {
            note(state, Since::LateRenewal, config.most_permits());
        }
        self.answered(config, left, age);
    }

    /// `jobs/renewer/renewals.rs`: the remaining time is counted from before the statement was sent.
    fn answered(&mut self, config: &Config, left: Option<u8>, age: u8) {
        self.renewal = match left {
            Some(left) => Renewal::Done(left.saturating_sub(counted(config, age))),
            None => Renewal::Refused,
        };
    }

    /// `confirm` in `jobs/guard.rs`.
    fn confirm(&mut self, config: &Config, state: &mut State, renewal: Renewal) {
        let lost = self.left == 0;
        match renewal {
            Renewal::Done(left) if !lost || config.is(Mutant::LostGuardRevived) => self.left = left,
            Renewal::Refused => self.left = 0,
            _ => {}
        }
        if lost && self.left > 0 {
            state.violations.record(Invariant::LostForEver);
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
fn write(config: &Config, state: &mut State, write: Write) {
    let resource = &mut state.resource;
    if write.fence < resource.fence && !config.is(Mutant::NoFenceCheck) {
        return;
    }
    resource.fence = resource.fence.max(write.fence);
    if write.token < resource.newest {
        state.violations.record(Invariant::NoStaleWrite);
    }
    resource.newest = resource.newest.max(write.token);
}
