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
use std::time::Duration;

use anyhow::{Context, Result};
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use program_support::child_process::{read_job, report};
use program_support::database::Database;
use program_support::{stop, with_connection};

use crate::document::Document;
use crate::job::Job;
use crate::report::{Report, Totals};
use crate::schedule;
use crate::source::Elements;
use crate::store::Store;
use crate::upsert::upsert;

/// The interval between two reports of progress.
const REPORTING: Duration = Duration::from_millis(100);

/// Runs the writer from its start to its end.
pub(crate) fn run() -> Result<ExitCode> {
    stop::on_interrupt()?;
    let job: Job = read_job()?;
    let engine = Database::from_url(&job.database_url)?.engine;
    with_connection!(engine, C => write::<C>(&job))?;
    Ok(ExitCode::SUCCESS)
}

fn write<C: Store>(job: &Job) -> Result<()> {
    let size = u32::try_from(job.threads)?;
    let pool = Pool::builder()
        .max_size(size)
        // A test before each document would take a round trip. Without it, a broken connection fails its document.
        .test_on_check_out(false)
        .connection_customizer(Box::new(SetUp))
        .build(ConnectionManager::<C>::new(&job.database_url))
        .context("can't connect to the database")?;
    let work = Work {
        job,
        pool,
        elements: job.source.elements(),
        deliveries: schedule::deliveries(job),
        next: AtomicUsize::new(0),
        totals: Mutex::default(),
    };
    report(&Report::Ready);
    if io::stdin().read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    stop::at_end_of_input();
    let (working, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        for _ in 0..job.threads {
            let working = working.clone();
            scope.spawn(|| {
                let _working = working;
                work.run();
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

struct Work<'a, C: Store> {
    job: &'a Job,
    pool: Pool<ConnectionManager<C>>,
    elements: Elements,
    deliveries: Vec<usize>,
    next: AtomicUsize,
    totals: Mutex<Totals>,
}

impl<C: Store> Work<'_, C> {
    fn run(&self) {
        while !stop::is_requested() {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(index) = self.deliveries.get(next) else {
                break;
            };
            self.handle(*index);
        }
    }

    fn handle(&self, index: usize) {
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
        // A connection per document, as a request handler uses one per request.
        let upserted = self
            .pool
            .get()
            .map_err(anyhow::Error::from)
            .and_then(|mut conn| {
                let generated = source.is_generated();
                Ok(upsert(&mut *conn, &document, generated, self.job.locking)?)
            });
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

#[derive(Debug)]
struct SetUp;

impl<C: Store> CustomizeConnection<C, diesel::r2d2::Error> for SetUp {
    fn on_acquire(&self, conn: &mut C) -> Result<(), diesel::r2d2::Error> {
        conn.configure_session()
            .map_err(diesel::r2d2::Error::QueryError)
    }
}
