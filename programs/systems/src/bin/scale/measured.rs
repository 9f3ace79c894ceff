//! Processes that wait for the semaphore, on a database.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use diesel::connection::{Connection, InstrumentationEvent};
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::processes::{ChildProcess, Event, read_job, report};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{Counts, Scenario};

/// How often a process reports what it has sent: it is killed while it waits.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

const LEASE: Duration = Duration::from_secs(3600);

#[derive(Deserialize, Serialize)]
struct Job {
    database: Database,
    scenario: Scenario,
}

/// Times are of the monotonic clock, which all processes of the machine share.
#[derive(Debug, Deserialize, Serialize)]
enum Report {
    Granted(Duration),
    Released(Duration),
    Sent(u64),
    Failed(String),
}

fn semaphore(scenario: &Scenario) -> Semaphore {
    Semaphore::new("scale", scenario.permits)
}

pub(crate) fn run(scenario: &Scenario, database: &Database) -> Result<Counts> {
    let mut conn = AnyConnection::open(database)?;
    diesel_locks::migrate(&mut conn)?;
    conn.register_semaphores(&[semaphore(scenario)])?;
    conn.force_release_all(semaphore(scenario).name())?;
    let job = Job {
        database: database.clone(),
        scenario: scenario.clone(),
    };
    let (sender, events) = channel();
    let mut processes = (0..scenario.processes.get())
        .map(|index| ChildProcess::start("waiter", &job, index, sender.clone()))
        .collect::<Result<Vec<_>>>()?;
    let end = Instant::now() + Duration::from_secs(scenario.seconds);
    let (mut granted, mut released) = (Vec::new(), Vec::new());
    let mut sent = vec![0; processes.len()];
    while Instant::now() < end {
        match events.recv_timeout(Duration::from_millis(50)) {
            Ok(Event::Reported(_, Report::Granted(at))) => granted.push(at),
            Ok(Event::Reported(_, Report::Released(at))) => released.push(at),
            Ok(Event::Reported(index, Report::Sent(statements))) => sent[index] = statements,
            Ok(Event::Reported(_, Report::Failed(error))) => bail!(error),
            Ok(Event::Ended(index)) => processes[index].ended()?,
            Ok(Event::Interrupted) | Err(_) => {}
        }
    }
    // A wait without limit ends with its process.
    processes.iter_mut().for_each(ChildProcess::kill);
    granted.sort_unstable();
    released.sort_unstable();
    let mut released = VecDeque::from(released);
    let mut counts = Counts {
        statements: sent.iter().sum(),
        handovers: Vec::new(),
    };
    // Each grant, but for the first ones, follows the earliest release that none has followed.
    for at in granted {
        let earliest = released.front().copied();
        if let Some(handover) = earliest.and_then(|released| at.checked_sub(released)) {
            released.pop_front();
            counts.handovers.push(handover);
        }
    }
    Ok(counts)
}

/// In a child: waits, holds and releases until it is killed.
pub(crate) fn wait_in_turn() -> Result<ExitCode> {
    die_with_parent()?;
    let job: Job = read_job()?;
    let Err(error) = take_turns(&job);
    report(&Report::Failed(format!("{error:#}")));
    Ok(ExitCode::FAILURE)
}

fn take_turns(job: &Job) -> Result<Infallible> {
    let mut conn = AnyConnection::open(&job.database)?;
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { .. } = event {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    thread::spawn(move || {
        loop {
            report(&Report::Sent(sent.load(Ordering::Relaxed)));
            thread::sleep(REPORT_INTERVAL);
        }
    });
    let semaphore = semaphore(&job.scenario);
    // The work with the slot, and the rest after it.
    let hold = Duration::from_millis(job.scenario.hold_ms);
    loop {
        let slot = conn.acquire_slot(&semaphore, LeaseOptions::new(LEASE), Wait::Forever)?;
        report(&Report::Granted(now()));
        thread::sleep(hold);
        report(&Report::Released(now()));
        conn.release_slot(slot)?;
        thread::sleep(hold);
    }
}

fn now() -> Duration {
    // The clock is not negative, so the conversion can't fail.
    clock_gettime(ClockId::Monotonic)
        .try_into()
        .unwrap_or_default()
}

/// Lets the system kill this process with its parent.
fn die_with_parent() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}
