//! A node: a process with one thread that queues and several that collate.
//!
//! It ends on Ctrl-C, and when its standard input ends, which the coordinator closes to stop it. If the coordinator is
//! killed, the node is killed too.

use std::io;
use std::process::ExitCode;
use std::thread;

use anyhow::Result;
use program_support::processes::{
    read_job, report, request_stop, stop_at_end_of_input, stop_on_interrupt,
};

use crate::job::{Job, Report};
use crate::{scheduler, worker};

/// Runs the node from its start to its end.
pub(crate) fn run() -> Result<ExitCode> {
    die_with_parent()?;
    stop_on_interrupt()?;
    let job: Job = read_job()?;
    stop_at_end_of_input();
    Ok(work(&job))
}

/// Lets the system kill this process with its parent. A stopped process (SIGSTOP) would not notice the end of its
/// standard input.
fn die_with_parent() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

fn work(job: &Job) -> ExitCode {
    let ended = |result: Result<()>| {
        if let Err(error) = result {
            report(&Report::Failed(format!("{error:#}").trim_end().to_owned()));
            request_stop();
            return false;
        }
        true
    };
    let all_well = thread::scope(|scope| {
        let scheduler = scope.spawn(|| ended(scheduler::run(job)));
        let workers =
            (1..=job.threads).map(|worker| scope.spawn(move || ended(worker::run(job, worker))));
        let threads: Vec<_> = workers.chain([scheduler]).collect();
        let ends: Vec<_> = threads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        ends.into_iter().all(|end| end.unwrap_or(false))
    });
    if all_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
