//! What the writers of a run have reported.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use program_support::progress::Progress;

use crate::report::{Report, Totals};
use crate::source::Source;
use crate::writer_processes::{Event, WriterProcess};

/// How long writers may take to finish their transactions before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct RunTotals {
    /// By writer.
    writers: Vec<Totals>,
    /// Why each document was rejected, by index.
    pub(crate) rejected: BTreeMap<usize, String>,
    /// Errors other than those of documents: writers that died, documents that the check can't read.
    pub(crate) other_errors: usize,
    pub(crate) died: usize,
    pub(crate) interrupted: bool,
    /// The time from the start to the last document.
    pub(crate) took: Duration,
}

impl RunTotals {
    /// Starts the work when all writers are connected, and returns when all have ended.
    pub(crate) fn of_writers(
        writers: &mut [WriterProcess],
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
                        WriterProcess::stop
                    } else {
                        WriterProcess::kill
                    };
                    writers.iter_mut().for_each(end);
                    deadline = Some(Instant::now() + PATIENCE);
                }
            }
            if began.is_none() && !starting.contains(&true) {
                began = Some(Instant::now());
                progress.begin();
                writers.iter_mut().for_each(WriterProcess::begin);
            }
        }
        run
    }

    pub(crate) fn error(&mut self, progress: &mut Progress, subject: &str, text: &str) {
        self.other_errors += 1;
        progress.print_error(subject, text);
    }

    /// A writer that has read all files of an input has reported all rejections.
    pub(crate) fn some_writer_finished(&self) -> bool {
        !self.interrupted && self.died < self.writers.len()
    }

    pub(crate) fn total(&self) -> Totals {
        let mut total = Totals::default();
        self.writers.iter().for_each(|totals| total.add(totals));
        total
    }
}
