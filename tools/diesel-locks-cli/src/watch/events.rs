//! What this process waits for while it shows a picture.

use std::io::{self, IsTerminal, Read};
use std::sync::mpsc::Sender;
use std::thread;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::watch::reader::Reading;

pub(super) enum Event {
    /// What the database has returned, or why it has not.
    Read(Result<Reading, String>),
    /// A byte that was typed.
    Key(u8),
    Signal(i32),
}

/// Sends an event for each signal, and for each key if standard input is a terminal. Ctrl-C is a signal.
pub(super) fn receive(events: &Sender<Event>) -> io::Result<()> {
    let signals = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH];
    let mut signals = Signals::new(signals)?;
    let sender = events.clone();
    let named = |name: &str| thread::Builder::new().name(name.to_owned());
    named("signals").spawn(move || {
        for signal in &mut signals {
            let _ = sender.send(Event::Signal(signal));
        }
    })?;
    if io::stdin().is_terminal() {
        let sender = events.clone();
        named("keys").spawn(move || {
            // An error when the terminal is gone, which SIGHUP tells.
            for key in io::stdin().lock().bytes().map_while(Result::ok) {
                let _ = sender.send(Event::Key(key));
            }
        })?;
    }
    Ok(())
}
