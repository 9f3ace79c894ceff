//! A path in words.

use crate::action::{Action, Step};
use crate::config::{Config, MOST_PROCESSES};
use crate::effect::next;
use crate::process::Process;
use crate::state::State;

/// The steps one by one, and how it stands after the last. Processes are named as they come in: A, B, C.
pub fn describe(config: &Config, path: &[Action]) -> Vec<String> {
    let mut state = State::initial(config);
    let mut names = [None; MOST_PROCESSES];
    let mut lines = Vec::new();
    for &action in path {
        if let Action::Of(index, _) = action {
            let came = names.iter().flatten().count();
            names[index].get_or_insert_with(|| ["A", "B", "C"][came]);
        }
        let Some(after) = next(config, &state, action) else {
            continue;
        };
        lines.push(match action {
            Action::Of(index, step) => {
                let name = names[index].unwrap_or_default();
                format!(
                    "{name}{}",
                    of(&state.processes[index], &after.processes[index], step)
                )
            }
            other => describe_global(other),
        });
        let (canonical, order) = after.canonical(config);
        state = canonical;
        names = order.map(|index| names[index]);
    }
    lines.push(format!("=> {}", describe_state(&state, names)));
    lines
}

fn describe_global(action: Action) -> String {
    match action {
        Action::Tick => "-- a tick".to_owned(),
        Action::SetForward => {
            "-- the database's clock is set forward: all leases have ended".to_owned()
        }
        Action::SetBack { ended_go_on: false } => {
            "-- the database's clock is set back by a tick".to_owned()
        }
        Action::SetBack { ended_go_on: true } => {
            "-- the database's clock is set back by a tick, and leases that had ended go on"
                .to_owned()
        }
        Action::Add { permits } => format!("-- slots are added: now {permits}"),
        Action::Purge => "-- the last slot is free and is purged".to_owned(),
        Action::LateWrite => "-- the late write arrives".to_owned(),
        Action::Of(..) => String::new(),
    }
}

fn of(before: &Process, after: &Process, step: Step) -> String {
    let mine = match *before {
        Process::Open { number, .. }
        | Process::Taking { number, .. }
        | Process::Releasing { number, .. } => number + 1,
        Process::Granted { slot, .. } | Process::Holding { slot, .. } => slot.number + 1,
        Process::Absent | Process::Idle | Process::Counting { .. } => 0,
    };
    let idle = *after == Process::Idle;
    match step {
        Step::Look { permits, number } => format!(
            " (permits: {permits}) sees slot {} free and sends the statement that takes it",
            number + 1
        ),
        Step::Count { permits } => {
            format!(" (permits: {permits}) sees more slots than permits and counts the slots")
        }
        Step::Open { number } => format!(" counts the free slots: slot {} is open", number + 1),
        Step::NoneOpen => " counts the free slots: none is open".to_owned(),
        Step::LookAgain if idle => format!(" sees that slot {mine} is not free any more"),
        Step::LookAgain => format!(" sees slot {mine} free and sends the statement that takes it"),
        Step::Take if idle => format!(" is refused slot {mine}"),
        Step::Take => format!(" is granted slot {mine}; the answer is on its way"),
        Step::Granted => format!(" has the answer and a guard of slot {mine}"),
        Step::Renew => format!(" sends a renewal of slot {mine}"),
        Step::Renewed => format!("'s renewal of slot {mine} is executed; the answer is on its way"),
        Step::RenewSkipped => {
            format!("'s renewal skips slot {mine}, which is locked; the answer is on its way")
        }
        Step::Confirm => format!("'s guard of slot {mine} has the answer"),
        Step::ConfirmSlot => format!(" (without a guard) has the answer: slot {mine} is renewed"),
        Step::Write => " asks its guard and writes".to_owned(),
        Step::WriteLate => " asks its guard, and its write is late".to_owned(),
        Step::Release => format!(" ends its guard of slot {mine} and sends the release"),
        Step::Released => format!("'s release of slot {mine} is executed"),
        Step::GiveUp => " crashes and begins anew".to_owned(),
    }
}

fn describe_state(state: &State, names: [Option<&str>; MOST_PROCESSES]) -> String {
    let mut parts = Vec::new();
    for (index, row) in state.database.rows.iter().enumerate() {
        if row.is_held() {
            parts.push(format!("slot {} is leased", index + 1));
        } else if row.present {
            parts.push(format!("the lease of slot {} has ended", index + 1));
        }
    }
    for (process, name) in state.processes.iter().zip(names) {
        if let (Some(slot), Some(name)) = (process.believes(), name) {
            parts.push(format!(
                "{name} holds slot {}, it believes",
                slot.number + 1
            ));
        }
    }
    parts.join("; ")
}
