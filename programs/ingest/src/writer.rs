//! A writer: a process with several threads that stores the documents of its job.
//!
//! It ends after its last document, on Ctrl-C, and when its standard input ends, which the coordinator closes to stop
//! it, or which ends with the coordinator. It finishes open transactions first.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use diesel::prelude::*;
use diesel_locks::Retention;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::processes::{
    is_stop_requested, read_job, report, stop_at_end_of_input, stop_on_interrupt,
};

use crate::document::Document;
use crate::job::{Job, Locking, Report, Totals, deliveries};
use crate::source::Elements;
use crate::store;

/// The interval between two reports of progress.
const REPORTING: Duration = Duration::from_millis(100);

/// Runs the writer from its start to its end.
pub(crate) fn run() -> Result<ExitCode> {
    stop_on_interrupt()?;
    let job: Job = read_job()?;
    let connections = (0..job.threads).map(|_| AnyConnection::open(&job.database));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    write(&job, connections)?;
    Ok(ExitCode::SUCCESS)
}

fn write(job: &Job, connections: Vec<AnyConnection>) -> Result<()> {
    let work = Work {
        job,
        elements: job.source.elements(),
        deliveries: deliveries(job),
        next: AtomicUsize::new(0),
        totals: Mutex::default(),
    };
    report(&Report::Ready);
    if io::stdin().read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    stop_at_end_of_input();
    let (working, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        for mut conn in connections {
            let (work, working) = (&work, working.clone());
            scope.spawn(move || {
                let _working = working;
                work.run(&mut conn);
            });
        }
        drop(working);
        while ended.recv_timeout(REPORTING) == Err(RecvTimeoutError::Timeout) {
            work.report_progress();
        }
    });
    work.report_progress();
    Ok(())
}

struct Work<'a> {
    job: &'a Job,
    elements: Elements,
    deliveries: Vec<usize>,
    next: AtomicUsize,
    totals: Mutex<Totals>,
}

impl Work<'_> {
    fn run(&self, conn: &mut AnyConnection) {
        while !is_stop_requested() {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(index) = self.deliveries.get(next) else {
                break;
            };
            self.handle(conn, *index);
        }
    }

    fn handle(&self, conn: &mut AnyConnection, index: usize) {
        let source = &self.job.source;
        let document = source
            .read(index)
            .and_then(|body| Document::read(body, &self.elements));
        let document = match document {
            Ok(document) => document,
            Err(reason) => {
                report(&Report::Rejected {
                    index,
                    reason: format!("{reason:#}"),
                });
                self.count(|totals| totals.handled += 1);
                return;
            }
        };
        let upserted = upsert(conn, &document, source.is_generated(), self.job.locking);
        match upserted {
            Ok(upserted) => self.count(|totals| totals.add_upserted(&upserted)),
            Err(error) => {
                report(&Report::Failed {
                    index,
                    error: error.to_string().trim_end().to_owned(),
                });
                self.count(|totals| {
                    totals.handled += 1;
                    totals.errors += 1;
                });
                // In place of one that may be lost, as a pool does.
                if let Ok(new) = AnyConnection::open(&self.job.database) {
                    *conn = new;
                }
            }
        }
    }

    fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.totals.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn report_progress(&self) {
        let mut totals = Totals::default();
        self.count(|counted| totals = *counted);
        report(&Report::Progress(totals));
    }
}

/// The number of retries of a transaction that the database aborted.
const RETRIES: u32 = 5;

/// What happened to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Inserted,
    Updated,
    Dropped,
}

pub(crate) struct Upserted {
    pub(crate) fate: Fate,
    /// The time from the request to the acquired lock.
    pub(crate) waited: Duration,
    pub(crate) retries: u32,
}

/// Inserts the document, replaces the stored version, or drops the document.
fn upsert(
    conn: &mut AnyConnection,
    document: &Document,
    generated: bool,
    locking: Locking,
) -> Result<Upserted, diesel_locks::Error> {
    let mut retries = 0;
    loop {
        let asked = Instant::now();
        let mut waited = Duration::ZERO;
        let work = |conn: &mut AnyConnection| store_if_newer(conn, document, generated);
        let lock = |retention| LockRequest::new(&document.id).retention(retention);
        let mut locked = |retention| {
            conn.with_object_lock(lock(retention), |conn| {
                waited = asked.elapsed();
                work(conn)
            })
        };
        let result = match locking {
            Locking::Transient => locked(Retention::Transient),
            Locking::Kept => locked(Retention::Kept),
            Locking::Unlocked => conn.transaction(work),
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
    generated: bool,
) -> Result<Fate, diesel_locks::Error> {
    match store::registered(conn, &document.id)? {
        None => {
            store::insert(conn, document, generated)?;
            Ok(Fate::Inserted)
        }
        Some(registered) if document.version > registered.version => {
            store::update(conn, registered.seq, document)?;
            Ok(Fate::Updated)
        }
        Some(_) => Ok(Fate::Dropped),
    }
}
