//! A writer: a process with several threads that stores the documents of its job.
//!
//! It ends after its last document, on Ctrl-C, and when its standard input ends, which the coordinator closes to stop
//! it, or which ends with the coordinator. It finishes open transactions first.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::processes::{
    is_stop_requested, read_job, report, stop_at_end_of_input, stop_on_interrupt,
};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::Options;
use crate::document::Document;
use crate::source::Source;
use crate::store;

/// A writer's job.
#[derive(Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) database: Database,
    /// The index of the writer.
    pub(crate) writer: usize,
}

/// How often each file is delivered to each writer.
pub(crate) const REPEAT: usize = 10;

/// The indexes of the documents for a writer, in order of arrival.
///
/// Generated documents go to the writers in turn, so that successive documents are processed at the same time. Files all
/// go to every writer, shuffled each time.
fn deliveries(source: &Source, options: &Options, writer: usize) -> Vec<usize> {
    let all = 0..source.len();
    if let Source::Generated(_) = source {
        return all.skip(writer).step_by(options.processes.get()).collect();
    }
    let mut chance = StdRng::seed_from_u64(options.seed.wrapping_add(writer as u64));
    let mut deliveries = Vec::new();
    for _ in 0..REPEAT {
        let mut pass: Vec<_> = all.clone().collect();
        pass.shuffle(&mut chance);
        deliveries.extend(pass);
    }
    deliveries
}

/// What happened to a delivered document.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    Upserted(Upserted),
    /// It can't be read.
    Rejected,
    /// Storing the document with this index failed.
    Failed {
        index: usize,
        error: String,
    },
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Fate {
    Inserted,
    Updated,
    Dropped,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Upserted {
    pub(crate) fate: Fate,
    /// The time from the request to the acquired lock.
    pub(crate) waited: Duration,
    pub(crate) retries: u32,
}

/// Runs the writer from its start to its end.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    stop_on_interrupt()?;
    let Job { database, writer } = read_job()?;
    stop_at_end_of_input();
    let threads = options.threads.get();
    let connections = (0..threads).map(|_| AnyConnection::open(&database));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    let source = options.source()?;
    let deliveries = deliveries(&source, options, writer);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for mut conn in connections {
            let (database, source, deliveries, next) = (&database, &source, &deliveries, &next);
            scope.spawn(move || {
                while !is_stop_requested()
                    && let Some(&index) = deliveries.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let handled = handle(source, index, &mut conn, options.unlocked);
                    report(&handled);
                    // In place of one that may be lost, as a pool does.
                    if let Report::Failed { .. } = handled
                        && let Ok(new) = AnyConnection::open(database)
                    {
                        conn = new;
                    }
                }
            });
        }
    });
    Ok(ExitCode::SUCCESS)
}

fn handle(source: &Source, index: usize, conn: &mut AnyConnection, unlocked: bool) -> Report {
    let body = source.read(index);
    let Ok(document) = body.and_then(|body| Document::read(body, &source.elements())) else {
        return Report::Rejected;
    };
    match upsert(conn, &document, unlocked) {
        Ok(upserted) => Report::Upserted(upserted),
        Err(error) => {
            let error = error.to_string().trim_end().to_owned();
            Report::Failed { index, error }
        }
    }
}

/// The number of retries of a transaction that the database aborted.
const RETRIES: u32 = 5;

/// Inserts the document, replaces the stored version, or drops the document.
fn upsert(
    conn: &mut AnyConnection,
    document: &Document,
    unlocked: bool,
) -> Result<Upserted, diesel_locks::Error> {
    let mut retries = 0;
    loop {
        let asked = Instant::now();
        let mut waited = Duration::ZERO;
        let result = if unlocked {
            conn.transaction(|conn| store_if_newer(conn, document))
        } else {
            conn.with_object_lock(&document.id, |conn| {
                waited = asked.elapsed();
                store_if_newer(conn, document)
            })
        };
        match result {
            Ok(fate) => {
                return Ok(Upserted {
                    fate,
                    waited,
                    retries,
                });
            }
            Err(error) if error.is_retryable() && retries < RETRIES => {
                retries += 1;
                thread::sleep(Duration::from_millis(1) * retries);
            }
            Err(error) => return Err(error),
        }
    }
}

fn store_if_newer(
    conn: &mut AnyConnection,
    document: &Document,
) -> Result<Fate, diesel_locks::Error> {
    match store::registered(conn, &document.id)? {
        None => {
            store::insert(conn, document)?;
            Ok(Fate::Inserted)
        }
        Some((seq, version)) if document.version > version => {
            store::update(conn, seq, document)?;
            Ok(Fate::Updated)
        }
        Some(_) => Ok(Fate::Dropped),
    }
}
