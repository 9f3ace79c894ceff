//! Three threads and one object lock: when each requests, acquires and releases it.

use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use diesel::prelude::*;
use diesel_locks::prelude::*;

use database::{Database, Engine, Place};

// Shared by the programs: database URLs, and building the program with support for a database.
#[path = "../../ingest/src/database.rs"]
mod database;

const THREADS: usize = 3;
const HELD: Duration = Duration::from_millis(250);

/// Three threads, each with its own connection, request one object lock at the same time and hold it for 250 ms.
///
/// Prints milliseconds since the start, thread (0 is the main thread) and event, after all threads have ended, so that
/// printing does not delay them.
#[derive(Parser)]
#[command(name = "timeline", version)]
struct Arguments {
    /// postgres://.., mysql://.. or the path of an SQLite file [default: a temporary SQLite file]
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let place = Place::of(arguments.database_url.as_deref())?;
    let database = place.database();
    database.require_support()?;
    let log = Log::start();
    match database.engine {
        Engine::Sqlite => run::<SqliteConnection>(database, &log)?,
        #[cfg(feature = "postgres")]
        Engine::Postgres => run::<PgConnection>(database, &log)?,
        #[cfg(feature = "mysql")]
        Engine::Mysql => run::<MysqlConnection>(database, &log)?,
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        _ => anyhow::bail!("this program was built without support for that database"),
    }
    log.print();
    Ok(())
}

fn run<C: ObjectLockExt>(database: &Database, log: &Log) -> Result<()> {
    log.add(0, "started");
    let connect = || C::establish(&database.url).context("can't connect to the database");
    diesel_locks::migrate(&mut connect()?)?;
    let mut connections = (0..THREADS)
        .map(|_| connect())
        .collect::<Result<Vec<_>>>()?;
    log.add(0, "connected");

    let bond = ObjectId::new("BondBO", "DK0015966592");
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(&mut connections)
            .map(|(thread, conn)| {
                let (bond, barrier) = (&bond, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    work(thread, conn, bond, log)
                })
            })
            .collect();
        log.add(0, "threads started");
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        ended.collect::<Result<(), diesel_locks::Error>>()
    })?;
    log.add(0, "done");
    Ok(())
}

fn work<C: ObjectLockExt>(
    thread: usize,
    conn: &mut C,
    bond: &ObjectId,
    log: &Log,
) -> Result<(), diesel_locks::Error> {
    log.add(thread, "asks for the lock");
    conn.with_object_lock(bond, |_| {
        log.add(thread, "acquired");
        log.add(thread, "working");
        thread::sleep(HELD);
        log.add(thread, "committing");
        Ok::<_, diesel_locks::Error>(())
    })?;
    log.add(thread, "commit done");
    Ok(())
}

/// Events with their threads and times.
struct Log {
    start: Instant,
    events: Mutex<Vec<(Duration, usize, &'static str)>>,
}

impl Log {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            events: Mutex::default(),
        }
    }

    fn add(&self, thread: usize, event: &'static str) {
        let at = self.start.elapsed();
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push((at, thread, event));
    }

    fn print(self) {
        let mut events = self
            .events
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        events.sort_by_key(|(at, ..)| *at);
        for (at, thread, event) in events {
            println!("{}\t{thread}\t{event}", at.as_millis());
        }
    }
}
