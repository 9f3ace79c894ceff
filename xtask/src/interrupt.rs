//! Ctrl-C, SIGTERM and their like: they stop the running command, after which the servers are stopped as at any other end.

use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long a command may take to end after a signal before it is killed.
const KILL_DELAY: Duration = Duration::from_secs(10);

static RECEIVED: AtomicI32 = AtomicI32::new(0);
static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

/// The running command, as far as signals are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Current {
    /// It leads a process group of its own, which gets every signal.
    Group(Pid),
    /// It shares the terminal with this process, which sends it Ctrl-C by itself.
    Foreground(Pid),
}

impl Current {
    fn send(self, signal: Signal) {
        // An error means that it has ended by itself.
        let _ = match self {
            Self::Group(pid) => killpg(pid, signal),
            Self::Foreground(_) if signal == Signal::SIGINT => Ok(()),
            Self::Foreground(pid) => kill(pid, signal),
        };
    }
}

/// The error of a command that was stopped by a signal.
#[derive(Debug)]
struct Interrupted(i32);

impl fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "stopped by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Starts handling the signals.
pub(crate) fn watch() -> Result<()> {
    // A shell starts background commands with SIGINT and SIGQUIT ignored. What this process handles is as usual again
    // in the programs that it starts, and SIGQUIT has to be: it stops PostgreSQL.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT])?;
    if !hangup_ignored() {
        signals.add_signal(SIGHUP)?;
    }
    thread::spawn(move || {
        for number in signals.forever() {
            let repeated = RECEIVED.swap(number, Ordering::SeqCst) != 0;
            let Some(current) = current() else { continue };
            if repeated {
                current.send(Signal::SIGKILL);
            } else if let Ok(signal) = Signal::try_from(number) {
                current.send(signal);
                thread::spawn(move || kill_later(current));
            }
        }
    });
    Ok(())
}

/// Whether this process was started by `nohup`, and is to continue without a terminal.
fn hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The mask's first bit is signal 1, which is SIGHUP.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

fn kill_later(stopping: Current) {
    thread::sleep(KILL_DELAY);
    if current() == Some(stopping) {
        stopping.send(Signal::SIGKILL);
    }
}

fn current() -> Option<Current> {
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `start` and remembers the command that it started, unless a signal has come already.
///
/// Both under one lock, so that no signal falls between them.
pub(crate) fn start<T>(start: impl FnOnce() -> Result<(T, Current)>) -> Result<T> {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    check()?;
    let (started, which) = start()?;
    *current = Some(which);
    Ok(started)
}

/// Forgets the command, which has ended.
pub(crate) fn ended() {
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Fails when a signal has come.
pub(crate) fn check() -> Result<()> {
    match RECEIVED.load(Ordering::SeqCst) {
        0 => Ok(()),
        number => bail!(Interrupted(number)),
    }
}

/// The exit code that shells give to a command that a signal has ended, when `error` says so.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    let Interrupted(number) = error.downcast_ref()?;
    u8::try_from(128 + number).ok()
}
