//! An application with a pool, whose threads wait for one lock or one slot.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, StopToken};

use crate::harness::{Backend, Engine, Samples, read_bond, statements};

pub(crate) const ID: &str = "Account:4711";
pub(crate) static ONE: Semaphore = Semaphore::from_static("one", 1);

/// A pause between two uses of the pool by something that waits for no lock.
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// How long a health check waits for a connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    ObjectLock,
    Slot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// On a connection of the pool.
    Connection,
    /// On a `LockPool`.
    LockPool,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Connection, Self::LockPool];
}

/// A pool whose connections are open. It does not test them when they are borrowed.
pub(crate) fn pool<C: Backend>(url: &str, size: u32) -> Result<Pool<ConnectionManager<C>>> {
    Ok(Pool::builder()
        .max_size(size)
        .test_on_check_out(false)
        .connection_customizer(Box::new(Prepare))
        .build(ConnectionManager::new(url))?)
}

#[derive(Debug)]
struct Prepare;

impl<C: Backend> CustomizeConnection<C, diesel::r2d2::Error> for Prepare {
    fn on_acquire(&self, conn: &mut C) -> Result<(), diesel::r2d2::Error> {
        if C::ENGINE != Engine::Sqlite {
            return Ok(());
        }
        conn.batch_execute("PRAGMA busy_timeout = 5000; PRAGMA synchronous = NORMAL")
            .map_err(diesel::r2d2::Error::QueryError)
    }
}

/// What the threads saw. Times are in ms.
#[derive(Default)]
pub(crate) struct Seen {
    /// From the end of a closure to the beginning of the next one: COMMIT and the grant.
    pub(crate) hand_overs: Samples,
    /// `SELECT 1` with a connection of the same pool.
    pub(crate) probes: Samples,
    /// Probes that got no connection.
    pub(crate) refused_probes: u32,
    /// What the server counted meanwhile, if it counts.
    pub(crate) counted: Option<i64>,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.hand_overs.append(other.hand_overs);
        self.probes.append(other.probes);
        self.refused_probes += other.refused_probes;
        if let Some(counted) = other.counted {
            *self.counted.get_or_insert(0) += counted;
        }
    }
}

/// Runs the threads for a round.
pub(crate) fn run<C: Backend>(
    pool: &Pool<ConnectionManager<C>>,
    kind: Kind,
    way: Way,
    threads: usize,
    round: Duration,
) -> Result<Seen> {
    let locks = LockPool::new(pool.clone());
    let stop = StopToken::new();
    let locks = locks.stopped_by(&stop);
    let ended = AtomicBool::new(false);
    let last_end = Mutex::new(None::<Instant>);
    let hand_overs = Mutex::new(Samples::default());
    let closure = |conn: &mut C| -> Result<(), Error> {
        let granted = Instant::now();
        let previous = last_end.lock().expect("no thread panics").take();
        let counts = !ended.load(Ordering::SeqCst);
        if let (Some(previous), true) = (previous, counts) {
            let mut hand_overs = hand_overs.lock().expect("no thread panics");
            hand_overs.push_time(granted.saturating_duration_since(previous));
        }
        if counts {
            read_bond(conn, 0)?;
            *last_end.lock().expect("no thread panics") = Some(Instant::now());
        }
        Ok(())
    };
    let attempt = || match (way, kind) {
        (Way::LockPool, Kind::ObjectLock) => {
            locks.with_object_lock(LockRequest::new(ID).wait(Wait::Forever), closure)
        }
        (Way::LockPool, Kind::Slot) => locks.with_slot(&ONE, Wait::Forever, closure),
        (Way::Connection, kind) => {
            let mut conn = pool.get()?;
            match kind {
                _ if ended.load(Ordering::SeqCst) => Ok(()),
                Kind::ObjectLock => conn.with_object_lock(ID, closure),
                Kind::Slot => conn.with_slot(&ONE, Wait::Forever, closure),
            }
        }
    };
    let (probes, refused_probes) = thread::scope(|scope| -> Result<_> {
        let (ended, attempt, stop) = (&ended, &attempt, &stop);
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || -> Result<(), Error> {
                    while !ended.load(Ordering::SeqCst) {
                        match attempt() {
                            Err(Error::Stopped { .. }) | Ok(()) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let probe = scope.spawn(move || probe(pool, ended));
        sleep(round);
        ended.store(true, Ordering::SeqCst);
        stop.stop();
        for worker in workers {
            worker.join().expect("the thread has not panicked")?;
        }
        probe.join().expect("the thread has not panicked")
    })?;
    Ok(Seen {
        hand_overs: hand_overs.into_inner().expect("no thread panics"),
        probes,
        refused_probes,
        counted: None,
    })
}

/// What a health check does.
fn probe<C: Backend>(
    pool: &Pool<ConnectionManager<C>>,
    ended: &AtomicBool,
) -> Result<(Samples, u32)> {
    let mut times = Samples::default();
    let mut refused = 0;
    while !ended.load(Ordering::SeqCst) {
        let started = Instant::now();
        match pool.get_timeout(PROBE_TIMEOUT) {
            Ok(mut conn) => {
                conn.batch_execute("SELECT 1")?;
                times.push_time(started.elapsed());
            }
            Err(_) => refused += 1,
        }
        sleep(PROBE_INTERVAL);
    }
    Ok((times, refused))
}

statements! {
    OtherSessions = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid()";
    Transactions = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
}

/// Reads the server's counter: of transactions on PostgreSQL, of statements on MySQL and MariaDB. `None` on SQLite.
pub(crate) fn counted<C: Backend>(conn: &mut C) -> Result<Option<i64>> {
    match C::ENGINE {
        Engine::Postgres => {
            // Sessions report what they did a while later, or when they end.
            let started = Instant::now();
            while conn.number::<OtherSessions>(&[])? > Some(0) {
                if started.elapsed() > Duration::from_secs(10) {
                    bail!("sessions of the pool do not end");
                }
                sleep(Duration::from_millis(10));
            }
            Ok(conn.number::<Transactions>(&[])?)
        }
        Engine::Mysql => {
            let schema = match conn.version()? {
                version if version.starts_with("MariaDB") => "information_schema",
                _ => "performance_schema",
            };
            let questions = conn.text(&format!(
                "SELECT variable_value FROM {schema}.global_status WHERE variable_name = 'Questions'"
            ))?;
            Ok(Some(questions.parse().context("a number of statements")?))
        }
        Engine::Sqlite => Ok(None),
    }
}
