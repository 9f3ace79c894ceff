//! A run: starts the writers, collects their reports, and checks the result.

use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::{Context, Result};
use program_support::child_process::send_interrupts;
use program_support::database::Database;
use program_support::progress::Progress;
use program_support::with_connection;

use crate::arguments::{Options, Retention};
use crate::baseline::{all_rows, prepare};
use crate::check::Delivered;
use crate::job::Job;
use crate::outcome::Outcome;
use crate::run_totals::RunTotals;
use crate::schedule;
use crate::source::Source;
use crate::store::Store;
use crate::upsert::Locking;
use crate::writer_processes::{Event, WriterProcess};

/// Runs the program with these options.
pub(crate) fn ingest(options: &Options, database: &Database, source: Source) -> Result<Outcome> {
    let (sender, events) = mpsc::channel();
    send_interrupts(sender.clone())?;
    let job = Job {
        database_url: database.url.clone(),
        source,
        seed: options.seed,
        repeat: options.repeat(),
        locking: match (options.unlocked, options.retention) {
            (true, _) => Locking::Unlocked,
            (false, Retention::Transient) => Locking::Transient,
            (false, Retention::Kept) => Locking::Kept,
        },
        threads: options.threads.get(),
        writers: options.processes.get(),
        writer: 0,
    };
    with_connection!(database.engine, C => run::<C>(options, database, &job, &sender, &events))
}

fn run<C: Store>(
    options: &Options,
    database: &Database,
    job: &Job,
    sender: &Sender<Event>,
    events: &Receiver<Event>,
) -> Result<Outcome> {
    let mut conn = C::establish(&database.url).context("can't connect to the database")?;
    conn.configure_session()?;
    let mut progress = Progress::new(schedule::total(job), "documents", options.output.json);
    if let Source::Files(files) = &job.source
        && files.others > 0
    {
        progress.print(&format!(
            "{} other files than *.xml are left alone",
            files.others
        ));
    }
    let delivered = Delivered::read(&job.source);
    let generated = job.source.is_generated();
    let before = prepare(&mut conn, &delivered, generated, options.fresh, |message| {
        progress.print(message);
    })?;

    let writers = (0..job.writers).map(|writer| {
        let job = Job {
            writer,
            ..job.clone()
        };
        WriterProcess::start(&job, sender.clone())
    });
    let mut writers: Vec<_> = writers.collect::<Result<_>>()?;
    let mut run = RunTotals::of_writers(&mut writers, events, &job.source, &mut progress);

    if run.some_writer_finished() {
        for (index, reason) in delivered.disputed(&run.rejected) {
            let text = format!("stored, but the check can't read it: {reason}");
            run.error(&mut progress, &job.source.name(index), &text);
        }
    }
    progress.end();
    let expected = delivered.expected(&run.rejected, &before);
    let checked = expected.compare(&all_rows(&mut conn)?);
    Ok(Outcome::new(C::NAME, job, &run, &checked))
}
