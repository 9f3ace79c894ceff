//! `run`: a command that holds a slot.

pub(crate) mod child;
mod signals;
mod slot;

use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{io, os::unix::process::ExitStatusExt};

use diesel_locks::{Error, SlotGuard, StopToken};
use rustix::process::Signal;

use crate::arguments::Run;
use crate::database::Database;
use crate::failure::{Failure, LEASE_LOST, code_of_signal, described};
use crate::output::{name, print_error};
use crate::run::child::Child;

/// What this process waits for while the command runs.
enum Event {
    /// This process got a signal. One of the kernel, which a terminal sends to all its processes, is marked.
    Signal { signal: i32, by_kernel: bool },
    /// A child has ended or was stopped.
    Child,
    /// The lease is lost.
    Lost,
}

/// How often this process looks whether an operator has requested the release, which sends no event.
const LOOK: Duration = Duration::from_millis(500);

/// Returns the exit code.
pub(crate) fn run(database: &Database, options: &Run, as_json: bool) -> Result<u8, Failure> {
    // First: a pool would try for as long as its time-out, and a signal ends this process while it connects.
    let semaphore = slot::semaphore(&mut database.open()?, options)?;
    let (events, received) = mpsc::channel();
    let stop = StopToken::new();
    signals::receive(events.clone(), stop.clone()).map_err(|source| Failure::System {
        action: "receive signals",
        source,
    })?;
    let guard = match slot::acquire(database, &semaphore, options, &stop) {
        Err(Failure::Locks(Error::Stopped { .. })) => return Err(stopped(&received)),
        Err(Failure::Locks(error @ (Error::LockTimeout { .. } | Error::Unavailable { .. }))) => {
            return Err(Failure::NoSlot(error));
        }
        acquired => acquired?,
    };
    // Warnings of the renewer, which say why a lease was lost.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        // It would panic if standard error can't be written.
        .log_internal_errors(false)
        .init();
    guard.on_lost(move || drop(events.send(Event::Lost)));
    let mut child = Child::start(&options.command, &guard, as_json)?;
    let (status, is_lost) =
        watch(&mut child, &guard, &received, options.kill_after).map_err(|source| {
            Failure::System {
                action: "wait for the command",
                source,
            }
        })?;
    let code = code(status);
    if is_lost || !guard.is_held() {
        return Ok(LEASE_LOST);
    }
    match guard.release() {
        Ok(_) => Ok(code),
        Err(Error::SlotLost { .. }) => {
            say(&format!(
                "the slot of {} was lost before the command ended",
                name(&options.semaphore)
            ));
            Ok(LEASE_LOST)
        }
        Err(error) => {
            say(&format!(
                "the slot was not released, and is free when its lease ends: {}",
                described(&error)
            ));
            Ok(code)
        }
    }
}

/// The signal that has ended the wait for a slot.
fn stopped(received: &Receiver<Event>) -> Failure {
    let signal = received.try_iter().find_map(|event| match event {
        Event::Signal { signal, .. } => Some(signal),
        Event::Child | Event::Lost => None,
    });
    Failure::Stopped(signal.unwrap_or_default())
}

/// Waits for the end of the command, and after a signal also for that of the processes that it has left. Returns whether the
/// lease was lost before.
fn watch(
    child: &mut Child,
    guard: &SlotGuard,
    received: &Receiver<Event>,
    kill_after: Duration,
) -> io::Result<(ExitStatus, bool)> {
    let semaphore = name(guard.slot().semaphore());
    let (mut is_lost, mut kill_at) = (false, None::<Instant>);
    let mut is_requested = false;
    loop {
        let until_kill = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        match received.recv_timeout(until_kill.map_or(LOOK, |left| left.min(LOOK))) {
            Ok(Event::Signal { signal, by_kernel }) => child.pass_on(signal, by_kernel),
            Ok(Event::Lost) => {
                say(&format!(
                    "the lease of {semaphore} is lost: the command gets SIGTERM"
                ));
                (is_lost, kill_at) = (true, Instant::now().checked_add(kill_after));
                child.end(Signal::TERM);
            }
            Ok(Event::Child) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("the thread of the signals has a sender")
            }
        }
        if let Some(status) = child.try_wait()? {
            return Ok((status, is_lost));
        }
        if kill_at.is_some_and(|at| at <= Instant::now()) {
            say("the command has not ended: it gets SIGKILL");
            child.end(Signal::KILL);
            kill_at = None;
        }
        if !is_requested && guard.release_requested() {
            say(&format!(
                "an operator requests the slot of {semaphore}: the command gets SIGTERM"
            ));
            is_requested = true;
            child.end(Signal::TERM);
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .map(|code| u8::try_from(code).unwrap_or(u8::MAX));
    let of_signal = || status.signal().map(code_of_signal);
    code.or_else(of_signal).unwrap_or(u8::MAX)
}

fn say(text: &str) {
    print_error(format_args!("diesel-locks: {text}"));
}
