//! The signals that this process gets.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use diesel_locks::StopToken;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use crate::run::Event;

/// Sends an event for each signal. The first that is to end this process stops the wait for a slot.
pub(super) fn receive(events: Sender<Event>, stop: StopToken) -> io::Result<()> {
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD])?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for origin in &mut signals {
                let event = match origin.signal {
                    SIGCHLD => Event::Child,
                    signal => Event::Signal {
                        signal,
                        by_kernel: matches!(origin.cause, Cause::Kernel),
                    },
                };
                let ends = matches!(event, Event::Signal { .. });
                // Before the stop, after which it is looked for.
                let _ = events.send(event);
                if ends {
                    stop.stop();
                }
            }
        })?;
    Ok(())
}
