//! A run: starts the writers, collects their reports, and checks the result.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use diesel::QueryResult;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::processes::{self, ChildProcess, send_interrupts};
use program_support::progress::Progress;

use crate::check::Delivered;
use crate::job::{Job, Locking, Report, Totals, total};
use crate::outcome::Outcome;
use crate::source::Source;
use crate::store::{self, Row};
use crate::{Options, Retention};

/// What the coordinator waits for.
type Event = processes::Event<Report>;

/// Runs the program with these options.
pub(crate) fn ingest(options: &Options, database: &Database, source: Source) -> Result<Outcome> {
    let (sender, events) = mpsc::channel();
    send_interrupts(sender.clone())?;
    let job = Job {
        database: database.clone(),
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
    let mut conn = AnyConnection::open(database)?;
    let mut progress = Progress::new(total(&job), "documents", options.output.json);
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
        ChildProcess::start("writer", &job, writer, sender.clone())
    });
    let mut writers: Vec<_> = writers.collect::<Result<_>>()?;
    let run = RunTotals::of_writers(&mut writers, &events, &job.source, &mut progress);

    progress.end();
    let expected = delivered.expected(&run.rejected, &before);
    let checked = expected.compare(&all_rows(&mut conn)?);
    Ok(Outcome::new(&job, &run, checked))
}

/// The number of rows that are read at a time.
const PAGE: i64 = 1000;

/// Creates the tables, deletes rows if necessary, and returns the rows with which the run starts.
///
/// Generated documents start with an empty table, unless the rows are those of an earlier run with the same documents
/// that was stopped. Rows from files are kept, unless the table is to be emptied.
fn prepare(
    conn: &mut AnyConnection,
    delivered: &Delivered,
    generated: bool,
    fresh: bool,
    say: impl Fn(&str),
) -> Result<Vec<Row>> {
    diesel_locks::migrate(conn)?;
    conn.create_tables(store::TABLES)?;
    let mut rows = all_rows(conn)?;
    if fresh {
        store::delete_all(conn)?;
        rows.clear();
    } else if generated {
        let (earlier, real): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.generated);
        rows = real;
        if delivered.were_begun(&earlier) {
            say(&format!(
                "continuing a run that has stored {} documents",
                earlier.len()
            ));
            rows.extend(earlier);
        } else if !earlier.is_empty() {
            store::delete_generated(conn)?;
            say(&format!(
                "deleted the {} generated documents of an earlier run",
                earlier.len()
            ));
        }
    }
    let duplicates = delivered
        .expected(&BTreeMap::new(), &[])
        .compare(&rows)
        .duplicates;
    ensure!(
        duplicates == 0,
        "the table has {duplicates} duplicates already, from a run with --unlocked; --fresh empties it"
    );
    Ok(rows)
}

fn all_rows(conn: &mut AnyConnection) -> QueryResult<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let last = rows.last().map_or(0, |row| row.seq);
        let page = store::rows_after(conn, last, PAGE)?;
        if page.is_empty() {
            return Ok(rows);
        }
        rows.extend(page);
    }
}

/// How long writers may take to finish their transactions before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct RunTotals {
    /// By writer.
    writers: Vec<Totals>,
    /// Why each document was rejected, by index.
    pub(crate) rejected: BTreeMap<usize, String>,
    /// Errors other than those of documents, as of a writer that died.
    pub(crate) other_errors: usize,
    pub(crate) died: usize,
    pub(crate) interrupted: bool,
    /// The time from the start to the last document.
    pub(crate) took: Duration,
}

impl RunTotals {
    /// Starts the work when all writers are connected, and returns when all have ended.
    pub(crate) fn of_writers(
        writers: &mut [ChildProcess],
        events: &Receiver<Event>,
        source: &Source,
        progress: &mut Progress,
    ) -> Self {
        let mut run = Self {
            writers: vec![Totals::default(); writers.len()],
            rejected: BTreeMap::new(),
            other_errors: 0,
            died: 0,
            interrupted: false,
            took: Duration::ZERO,
        };
        let mut running = writers.len();
        let mut starting = vec![true; writers.len()];
        let mut began = None;
        let mut deadline: Option<Instant> = None;
        while running > 0 {
            let event = match deadline {
                None => events.recv().ok(),
                Some(deadline) => events
                    .recv_timeout(deadline.saturating_duration_since(Instant::now()))
                    .ok(),
            };
            match event.unwrap_or(Event::Interrupted) {
                Event::Reported(writer, Report::Ready) => starting[writer] = false,
                Event::Reported(writer, Report::Progress(totals)) => {
                    run.writers[writer] = totals;
                    run.took = began.map_or(Duration::ZERO, |began: Instant| began.elapsed());
                    progress.set(run.total().handled);
                }
                Event::Reported(_, Report::Rejected { index, reason }) => {
                    // Every writer rejects it, each time that it is delivered.
                    run.rejected.entry(index).or_insert_with(|| {
                        progress.print(&format!("rejected: {}: {reason}", source.name(index)));
                        reason
                    });
                }
                Event::Reported(_, Report::Failed { index, error }) => {
                    progress.print_error(&source.name(index), &error);
                }
                Event::Ended(writer) => {
                    running -= 1;
                    starting[writer] = false;
                    if let Err(error) = writers[writer].ended() {
                        run.died += 1;
                        let subject = format!("writer {}", writer + 1);
                        run.error(progress, &subject, &format!("{error:#}"));
                    }
                }
                Event::Interrupted => {
                    run.interrupted = true;
                    let end = if deadline.is_none() {
                        ChildProcess::stop
                    } else {
                        ChildProcess::kill
                    };
                    writers.iter_mut().for_each(end);
                    deadline = Some(Instant::now() + PATIENCE);
                }
            }
            if began.is_none() && !starting.contains(&true) {
                began = Some(Instant::now());
                progress.begin();
                for writer in &mut *writers {
                    writer.send("begin");
                }
            }
        }
        run
    }

    fn error(&mut self, progress: &mut Progress, subject: &str, text: &str) {
        self.other_errors += 1;
        progress.print_error(subject, text);
    }

    pub(crate) fn total(&self) -> Totals {
        let mut total = Totals::default();
        self.writers.iter().for_each(|totals| total.add(totals));
        total
    }
}
