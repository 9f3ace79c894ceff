//! A run: starts the writers, collects their reports, and checks the result.

use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::{Context, Result};

use crate::arguments::{Options, Retention};
use crate::check::Delivered;
use crate::database::{Database, Place, with_connection};
use crate::gathered::Gathered;
use crate::job::Job;
use crate::outcome::Outcome;
use crate::registration::Locking;
use crate::schedule;
use crate::screen::Screen;
use crate::source::Source;
use crate::starting_point::{all_rows, prepare};
use crate::store::Store;
use crate::writers::{Event, Writer};

/// Runs the program with these options.
pub(crate) fn ingest(options: &Options, place: &Place, source: Source) -> Result<Outcome> {
    let (sender, events) = mpsc::channel();
    let interrupts = sender.clone();
    ctrlc::set_handler(move || {
        let _ = interrupts.send(Event::Interrupt);
    })?;
    let database = place.database();
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
    conn.set_up()?;
    let mut screen = Screen::new(schedule::total(job), "documents", options.json);
    if let Source::Files(files) = &job.source
        && files.others > 0
    {
        screen.say(&format!(
            "{} other files than *.xml are left alone",
            files.others
        ));
    }
    let delivered = Delivered::read(&job.source);
    let generated = job.source.is_generated();
    let before = prepare(&mut conn, &delivered, generated, options.fresh, |message| {
        screen.say(message);
    })?;

    let writers = (0..job.writers).map(|writer| {
        let job = Job {
            writer,
            ..job.clone()
        };
        Writer::start(&job, sender.clone())
    });
    let mut writers: Vec<_> = writers.collect::<Result<_>>()?;
    let mut gathered = Gathered::from_writers(&mut writers, events, &job.source, &mut screen);

    if gathered.some_writer_finished() {
        for (index, reason) in delivered.disputed(&gathered.rejected) {
            let name = job.source.name(index);
            gathered.error(
                &mut screen,
                &format!("{name}: taken, but the check can't read it: {reason}"),
            );
        }
    }
    screen.end();
    let expected = delivered.expected(&gathered.rejected, &before);
    let verdict = expected.compare(&all_rows(&mut conn)?);
    Ok(Outcome::new(C::NAME, job, &gathered, &verdict))
}
