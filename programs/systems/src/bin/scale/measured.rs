//! Processes that wait for the semaphore, on a database.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use diesel::connection::{Connection, InstrumentationEvent};
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::processes::{Children, Event, die_with_parent, now, read_job, report};
use serde::{Deserialize, Serialize};

use crate::{Counts, Options};

/// How often a process reports what it has sent: it is killed while it waits.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

const LEASE: Duration = Duration::from_secs(3600);

/// Times are those of [`now`].
#[derive(Debug, Deserialize, Serialize)]
enum Report {
    Granted(Duration),
    Released(Duration),
    Sent(u64),
    Failed(String),
}

const SEMAPHORE: Semaphore = Semaphore::from_static("scale", 1);

pub(crate) fn run(options: &Options, database: &Database) -> Result<Counts> {
    let mut conn = AnyConnection::open(database)?;
    diesel_locks::migrate(&mut conn)?;
    conn.register_semaphores(&[SEMAPHORE])?;
    conn.force_release_all(&SEMAPHORE)?;
    let mut children = Children::new()?;
    for _ in 0..options.processes.get() {
        children.start(database)?;
    }
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let (mut granted, mut released) = (Vec::new(), Vec::new());
    let mut sent = vec![0; options.processes.get()];
    while Instant::now() < end {
        ensure!(!children.interrupted, "interrupted");
        match children.next(Duration::from_millis(50)) {
            Some(Event::Reported(_, Report::Granted(at))) => granted.push(at),
            Some(Event::Reported(_, Report::Released(at))) => released.push(at),
            Some(Event::Reported(index, Report::Sent(statements))) => sent[index] = statements,
            Some(Event::Reported(_, Report::Failed(error))) => bail!(error),
            Some(Event::Ended(_, ended)) => ended?,
            None => {}
        }
    }
    // A wait without limit ends with its process.
    children.kill();
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
pub(crate) fn wait_in_turn(options: &Options) -> Result<ExitCode> {
    die_with_parent()?;
    let database: Database = read_job()?;
    let Err(error) = take_turns(options, &database);
    report(&Report::Failed(format!("{error:#}")));
    Ok(ExitCode::FAILURE)
}

fn take_turns(options: &Options, database: &Database) -> Result<Infallible> {
    let mut conn = AnyConnection::open(database)?;
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
    // The work with the slot, and the rest after it.
    let hold = Duration::from_millis(options.hold_ms);
    loop {
        let slot = conn.acquire_slot(&SEMAPHORE, LeaseOptions::new(LEASE), Wait::Forever)?;
        report(&Report::Granted(now()));
        thread::sleep(hold);
        report(&Report::Released(now()));
        conn.release_slot(slot)?;
        thread::sleep(hold);
    }
}
