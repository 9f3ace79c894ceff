//! The processes of a run, without programs that are not on every machine, such as `ps`.

use rustix::process::{Pid as Number, Signal, kill_process};
use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System};

/// Sends a signal to a process.
///
/// # Panics
///
/// If the process does not run.
pub fn signal(process: u32, signal: Signal) {
    let number = Number::from_raw(process.cast_signed());
    kill_process(number.expect("not 0"), signal).expect("it runs");
}

/// The child processes of a process.
pub fn children(parent: u32) -> Vec<u32> {
    let parent = Pid::from_u32(parent);
    listed(ProcessesToUpdate::All, |process| {
        process.parent() == Some(parent)
    })
}

/// The processes among these that a signal has stopped.
pub fn stopped(processes: &[u32]) -> Vec<u32> {
    among(processes, |process| process.status() == ProcessStatus::Stop)
}

/// The processes among these that have not ended.
pub fn alive(processes: &[u32]) -> Vec<u32> {
    // A process that has ended is listed until its parent has waited for it.
    among(processes, |process| {
        process.status() != ProcessStatus::Zombie
    })
}

fn among(processes: &[u32], wanted: impl Fn(&Process) -> bool) -> Vec<u32> {
    let processes: Vec<_> = processes.iter().copied().map(Pid::from_u32).collect();
    listed(ProcessesToUpdate::Some(&processes), wanted)
}

fn listed(which: ProcessesToUpdate<'_>, wanted: impl Fn(&Process) -> bool) -> Vec<u32> {
    let mut system = System::new();
    let known = ProcessRefreshKind::nothing().without_tasks();
    system.refresh_processes_specifics(which, true, known);
    let listed = system.processes().values();
    let mut found: Vec<_> = listed
        .filter(|process| wanted(process))
        .map(|process| process.pid().as_u32())
        .collect();
    found.sort_unstable();
    found
}
