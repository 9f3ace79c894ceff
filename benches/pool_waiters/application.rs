//! An application with a pool, whose threads wait for one lock or one slot.

use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::Result;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool, StopToken};

use crate::engine::PooledEngine;
use crate::times::Times;

pub(crate) const ID: &str = "Account:4711";
pub(crate) static ONE: Semaphore = Semaphore::from_static("one", 1);

/// A pause between two uses of the pool by something that waits for no lock.
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// How long a health check waits for a connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ObjectLock,
    Slot,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::ObjectLock, Self::Slot];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::ObjectLock => "object lock",
            Self::Slot => "slot",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// On a connection of the pool.
    Connection,
    /// On a `LockPool`.
    LockPool,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Connection, Self::LockPool];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::LockPool => "LockPool",
        }
    }
}

/// A database of the benchmark's own.
pub(crate) struct Database<C: PooledEngine> {
    pub(crate) conn: C,
    database: C::Database,
}

impl<C: PooledEngine> Database<C> {
    pub(crate) fn new() -> Result<Self> {
        let database = C::create_database()?;
        let mut conn = C::connect_to(&database)?;
        diesel_locks::migrate(&mut conn)?;
        conn.create_tables()?;
        conn.register_semaphores([&ONE])?;
        Ok(Self { conn, database })
    }

    pub(crate) fn version(&mut self) -> Result<String> {
        self.conn.version()
    }

    pub(crate) fn url(&self) -> Result<String> {
        C::url(&self.database)
    }

    pub(crate) fn connect(&self) -> Result<C> {
        C::connect_to(&self.database)
    }

    /// Calls `f` with a new pool. Also returns what the server has counted meanwhile, if it counts.
    pub(crate) fn with_pool<T>(
        &mut self,
        size: u32,
        f: impl FnOnce(&Self, &Pool<ConnectionManager<C>>) -> Result<T>,
    ) -> Result<(T, Option<i64>)> {
        let before = self.conn.counted()?;
        let pool = pool::<C>(&self.url()?, size)?;
        let value = f(self, &pool)?;
        drop(pool);
        let after = self.conn.counted()?;
        let counted = after.zip(before).map(|(after, before)| after - before);
        Ok((value, counted))
    }
}

/// A pool whose connections are open. It does not test them when they are borrowed.
pub(crate) fn pool<C: PooledEngine>(url: &str, size: u32) -> Result<Pool<ConnectionManager<C>>> {
    Ok(Pool::builder()
        .max_size(size)
        .test_on_check_out(false)
        .connection_customizer(Box::new(Prepare::<C>(PhantomData)))
        .build(ConnectionManager::new(url))?)
}

struct Prepare<C>(PhantomData<fn() -> C>);

impl<C> std::fmt::Debug for Prepare<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prepare")
    }
}

impl<C: PooledEngine> CustomizeConnection<C, diesel::r2d2::Error> for Prepare<C> {
    fn on_acquire(&self, conn: &mut C) -> Result<(), diesel::r2d2::Error> {
        conn.prepare().map_err(diesel::r2d2::Error::QueryError)
    }
}

/// What the threads saw in one round.
#[derive(Default)]
pub(crate) struct Seen {
    /// From the end of a closure to the beginning of the next one: COMMIT and the grant.
    pub(crate) hand_overs: Times,
    /// `SELECT 1` with a connection of the same pool.
    pub(crate) probes: Times,
    /// Probes that got no connection.
    pub(crate) refused_probes: u32,
}

/// Runs the threads for a round.
pub(crate) fn run<C: PooledEngine>(
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
    let hand_overs = Mutex::new(Times::default());
    let closure = |conn: &mut C| -> Result<(), Error> {
        let granted = Instant::now();
        let previous = last_end.lock().expect("no thread panics").take();
        let counts = !ended.load(Ordering::SeqCst);
        if let (Some(previous), true) = (previous, counts) {
            let mut hand_overs = hand_overs.lock().expect("no thread panics");
            hand_overs.push(granted.saturating_duration_since(previous));
        }
        if counts {
            conn.read_bond(0)?;
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
    })
}

/// What a health check does.
pub(crate) fn probe<C: PooledEngine>(
    pool: &Pool<ConnectionManager<C>>,
    ended: &AtomicBool,
) -> Result<(Times, u32)> {
    let mut times = Times::default();
    let mut refused = 0;
    while !ended.load(Ordering::SeqCst) {
        let started = Instant::now();
        match pool.get_timeout(PROBE_TIMEOUT) {
            Ok(mut conn) => {
                conn.batch_execute("SELECT 1")?;
                times.push(started.elapsed());
            }
            Err(_) => refused += 1,
        }
        sleep(PROBE_INTERVAL);
    }
    Ok((times, refused))
}
