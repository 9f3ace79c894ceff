//! The signals that this process gets.

use std::sync::mpsc::Sender;
use std::{fs, io, thread};

use diesel_locks::StopToken;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use crate::run::Event;

/// Sends an event for each signal. The first that is to end this process stops the wait for a slot. One that was ignored at the
/// start stays so, for the command too: SIGHUP by `nohup`.
pub(super) fn receive(events: Sender<Event>, stop: StopToken) -> io::Result<()> {
    let ignored = ignored();
    let to_end = [SIGTERM, SIGINT, SIGHUP].into_iter();
    let to_end = to_end.filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(to_end.chain([SIGCHLD]))?;
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

/// The ignored signals, each a bit. On other systems than Linux they are not known, and taken for none.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
