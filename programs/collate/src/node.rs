//! A node: a process with one thread that queues and several that collate.
//!
//! It ends on Ctrl-C, and when its standard input ends, which the coordinator closes to stop it. If the coordinator is
//! killed, the node is killed too.

use std::io::{self, BufRead};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};

use crate::database::{Database, with_connection};
use crate::job::Job;
use crate::report::{self, Report};
use crate::store::Store;
use crate::{collator, queuer};

static STOP: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_stopping() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Sends a report to the coordinator. Stops the node when the coordinator has ended.
pub(crate) fn tell(report: &Report) {
    if !report::tell(report) {
        STOP.store(true, Ordering::Relaxed);
    }
}

/// Runs the node from its start to its end.
pub(crate) fn run() -> Result<ExitCode> {
    die_with_parent()?;
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let job: Job = serde_json::from_str(&line).context("a node is started by collate itself")?;
    let engine = Database::from_url(&job.database_url)?.engine;
    thread::spawn(|| {
        let _ = io::stdin().lock().skip_until(0);
        STOP.store(true, Ordering::Relaxed);
    });
    Ok(with_connection!(engine, C => work::<C>(&job)))
}

/// Lets the system kill this process with its parent. A stopped process (SIGSTOP) would not notice the end of its
/// standard input.
fn die_with_parent() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

fn work<C: Store>(job: &Job) -> ExitCode {
    let ended = |result: Result<()>| {
        if let Err(error) = result {
            tell(&Report::Failed(format!("{error:#}").trim_end().to_owned()));
            STOP.store(true, Ordering::Relaxed);
            return false;
        }
        true
    };
    let all_well = thread::scope(|scope| {
        let queuer = scope.spawn(|| ended(queuer::run::<C>(job)));
        let collators = (1..=job.threads)
            .map(|worker| scope.spawn(move || ended(collator::run::<C>(job, worker))));
        let threads: Vec<_> = collators.chain([queuer]).collect();
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
