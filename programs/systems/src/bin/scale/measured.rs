//! Processes that wait for the semaphore, on a database.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use diesel::connection::{Connection, InstrumentationEvent, SimpleConnection};
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error as R2d2Error, Pool};
use diesel_locks::prelude::*;
use diesel_locks::{Error, SlotRenewer};
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};
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

/// What a child has sent.
static SENT: AtomicU64 = AtomicU64::new(0);

/// One slot for all processes, or one for each.
fn semaphore(options: &Options) -> Result<Semaphore> {
    if options.renewing_s.is_some() {
        let permits = u32::try_from(options.processes.get())?;
        return Ok(Semaphore::new("scale renewals", permits));
    }
    Ok(Semaphore::new("scale", 1))
}

pub(crate) fn run(options: &Options, database: &Database) -> Result<Counts> {
    let mut conn = AnyConnection::open(database)?;
    diesel_locks::migrate(&mut conn)?;
    let semaphore = semaphore(options)?;
    conn.register_semaphores([&semaphore])?;
    conn.force_release_all(&semaphore)?;
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

/// In a child: takes part until it is killed.
pub(crate) fn run_child(options: &Options) -> Result<ExitCode> {
    die_with_parent()?;
    let database: Database = read_job()?;
    let semaphore = semaphore(options)?;
    let Err(error) = match options.renewing_s {
        Some(seconds) => renew(&semaphore, Duration::from_secs(seconds), &database),
        None => take_turns(&semaphore, options, &database),
    };
    report(&Report::Failed(format!("{error:#}")));
    Ok(ExitCode::FAILURE)
}

fn take_turns(semaphore: &Semaphore, options: &Options, database: &Database) -> Result<Infallible> {
    let mut conn = AnyConnection::open(database)?;
    // A session's first request and release take longer: the server plans their statements.
    let own = Semaphore::new(format!("scale {}", process::id()), 1);
    let slot = conn.acquire_slot(&own, LeaseOptions::new(LEASE), Wait::Forever)?;
    conn.release_slot(slot)?;
    count_statements(&mut conn);
    thread::spawn(|| {
        loop {
            report_sent();
        }
    });
    // The work with the slot, and the rest after it.
    let hold = Duration::from_millis(options.hold_ms);
    let limit = options.at_most_s.map(Duration::from_secs);
    let wait = limit.map_or(Wait::Forever, Wait::AtMost);
    loop {
        let slot = match conn.acquire_slot(semaphore, LeaseOptions::new(LEASE), wait) {
            Err(Error::LockTimeout { .. }) => continue,
            slot => slot?,
        };
        report(&Report::Granted(now()));
        thread::sleep(hold);
        report(&Report::Released(now()));
        conn.release_slot(slot)?;
        thread::sleep(hold);
    }
}

fn renew(semaphore: &Semaphore, lease: Duration, database: &Database) -> Result<Infallible> {
    let pool = Pool::builder()
        .max_size(1)
        .connection_customizer(Box::new(Counted))
        .build(ConnectionManager::<AnyConnection>::new(&database.url))?;
    let guard =
        SlotRenewer::new(pool).acquire(semaphore, LeaseOptions::new(lease), Wait::Forever)?;
    // Renewals only.
    SENT.store(0, Ordering::Relaxed);
    loop {
        report_sent();
        guard.ensure_held()?;
    }
}

#[derive(Debug)]
struct Counted;

impl CustomizeConnection<AnyConnection, R2d2Error> for Counted {
    fn on_acquire(&self, conn: &mut AnyConnection) -> Result<(), R2d2Error> {
        if conn.engine() == Engine::Sqlite {
            conn.batch_execute("PRAGMA busy_timeout = 60000")
                .map_err(R2d2Error::QueryError)?;
        }
        count_statements(conn);
        Ok(())
    }
}

fn count_statements(conn: &mut AnyConnection) {
    conn.set_instrumentation(|event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { .. } = event {
            SENT.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Reports once per interval.
fn report_sent() {
    report(&Report::Sent(SENT.load(Ordering::Relaxed)));
    thread::sleep(REPORT_INTERVAL);
}
