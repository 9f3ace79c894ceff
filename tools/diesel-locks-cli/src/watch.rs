//! `watch`: what `list` shows, read again and again, in a terminal.

mod events;
mod picture;
mod reader;
mod terminal;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCONT, SIGTSTP, SIGWINCH};
use signal_hook::low_level::emulate_default_handler;

use crate::arguments::Watch;
use crate::database::Database;
use crate::failure::{Failure, code_of_signal};
use crate::watch::events::Event;
use crate::watch::picture::Picture;
use crate::watch::reader::Reader;
use crate::watch::terminal::Terminal;

/// How often the time is drawn for which the database has not answered.
const TICK: Duration = Duration::from_secs(1);

/// Returns the exit code.
pub(crate) fn watch(database: &Database, options: Watch, as_json: bool) -> Result<u8, Failure> {
    if as_json || !io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "`watch` draws in a terminal, and standard output is none, or --json is set: use `diesel-locks list --json`"
                .to_owned(),
        ));
    }
    let interval = options.interval;
    let mut reader = Reader::new(database.clone(), options.list);
    // What fails at once is printed, and not drawn.
    let mut picture = Picture::new(reader.read()?, interval);
    let (sender, received) = mpsc::channel();
    let system = |action| move |source| Failure::System { action, source };
    // Before the terminal is changed: no signal leaves it so.
    events::receive(&sender).map_err(system("receive signals and keys"))?;
    reader
        .start(interval, sender)
        .map_err(system("start a thread"))?;
    let draw = system("draw in the terminal");
    let terminal = Terminal::open().map_err(draw)?;
    loop {
        terminal::draw(&picture).map_err(draw)?;
        match received.recv_timeout(TICK) {
            Ok(Event::Read(Ok(reading))) => picture = Picture::new(reading, interval),
            Ok(Event::Read(Err(error))) => {
                picture.problem = Some(error);
                picture.answered = Instant::now();
            }
            Ok(Event::Key(b'q' | b'Q')) => return Ok(0),
            Ok(Event::Signal(SIGTSTP)) => {
                terminal.leave().map_err(draw)?;
                emulate_default_handler(SIGTSTP).map_err(system("stop this process"))?;
                terminal.enter().map_err(draw)?;
            }
            // SIGSTOP can't be handled, so the terminal is set up again when the process continues.
            Ok(Event::Signal(SIGCONT)) => terminal.enter().map_err(draw)?,
            Ok(Event::Signal(SIGWINCH) | Event::Key(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Signal(signal)) => return Ok(code_of_signal(signal)),
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("the thread of the signals has a sender")
            }
        }
    }
}
