//! The totals of a run, from the reports of its writers.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::report::{Report, Totals};
use crate::screen::Screen;
use crate::source::Source;
use crate::writers::{Event, Writer};

/// The time that writers have to finish their transactions before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Gathered {
    /// By writer.
    totals: Vec<Totals>,
    /// Why each document was rejected, by index.
    pub(crate) rejected: BTreeMap<usize, String>,
    /// Errors that belong to no document's transaction: writers that died, documents that only one side can read.
    pub(crate) other_errors: usize,
    pub(crate) died: usize,
    pub(crate) interrupted: bool,
    /// The time from the start to the last document.
    pub(crate) took: Duration,
}

impl Gathered {
    /// Starts the work when all writers are connected, and returns when all have ended.
    pub(crate) fn from_writers(
        writers: &mut [Writer],
        events: &Receiver<Event>,
        source: &Source,
        screen: &mut Screen,
    ) -> Self {
        let mut gathered = Self {
            totals: vec![Totals::default(); writers.len()],
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
            match event.unwrap_or(Event::Interrupt) {
                Event::Told(writer, Report::Ready) => starting[writer] = false,
                Event::Told(writer, Report::Progress(totals)) => {
                    gathered.totals[writer] = totals;
                    gathered.took = began.map_or(Duration::ZERO, |began: Instant| began.elapsed());
                    screen.progress(gathered.total().handled);
                }
                Event::Told(_, Report::Rejected { index, reason }) => {
                    // Every writer rejects it, each time that it is delivered.
                    gathered.rejected.entry(index).or_insert_with(|| {
                        screen.say(&format!("rejected: {}: {reason}", source.name(index)));
                        reason
                    });
                }
                Event::Told(_, Report::Failed { index, error }) => {
                    screen.error(&format!("{}: {error}", source.name(index)));
                }
                Event::Ended(writer) => {
                    running -= 1;
                    starting[writer] = false;
                    if let Err(error) = writers[writer].ended() {
                        gathered.died += 1;
                        gathered.error(screen, &format!("writer {}: {error:#}", writer + 1));
                    }
                }
                Event::Interrupt => {
                    gathered.interrupted = true;
                    let end = if deadline.is_none() {
                        Writer::stop
                    } else {
                        Writer::kill
                    };
                    writers.iter_mut().for_each(end);
                    deadline = Some(Instant::now() + PATIENCE);
                }
            }
            if began.is_none() && !starting.contains(&true) {
                began = Some(Instant::now());
                screen.begin();
                writers.iter_mut().for_each(Writer::begin);
            }
        }
        gathered
    }

    pub(crate) fn error(&mut self, screen: &mut Screen, message: &str) {
        self.other_errors += 1;
        screen.error(message);
    }

    /// Whether a writer has read all files of the input, and so reported all rejections.
    pub(crate) fn some_writer_finished(&self) -> bool {
        !self.interrupted && self.died < self.totals.len()
    }

    pub(crate) fn total(&self) -> Totals {
        let mut total = Totals::default();
        self.totals.iter().for_each(|totals| total.add(totals));
        total
    }
}
