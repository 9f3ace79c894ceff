//! What a command fails with, and the exit codes.

use std::error::Error as StdError;
use std::fmt::Display;
use std::io;

use diesel::ConnectionError;
use diesel_locks::Error;
use diesel_locks::migrations::WriteError;

/// The end of `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    not done: the slot is not held or has another fence, there is no such semaphore,
       `doctor` found a problem, `serve` can't listen, a file or standard output can't be written
  2    invalid arguments
  69   the database can't be reached, or returned an error
  75   `run`: no slot in time
  76   `run`: the lease was lost while the command ran
  126  `run`: the command can't be executed
  127  `run`: there is no such command
Otherwise `run` exits with the code of the command, or 128 + n if the signal n ended the command,
the wait for a slot, `watch` or `serve`.";

/// The code of `run` when the lease was lost while the command ran.
pub(crate) const LEASE_LOST: u8 = 76;

/// Why a command was not done: one line that says what failed, and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    NotDone(String),
    #[error("{0}")]
    Usage(String),
    #[error("can't connect to the database: {0}")]
    Connection(#[from] ConnectionError),
    #[error("{}", described(.0))]
    Locks(#[from] Error),
    #[error("{}", described(.0))]
    Write(#[from] WriteError),
    #[error("can't {action}: {source}")]
    System {
        action: &'static str,
        source: io::Error,
    },
    #[error("can't run {command:?}: {source}")]
    NotRun { command: String, source: io::Error },
    #[error(
        "{}; `diesel-locks list slots` shows by whom they are held, `list semaphores` whether it is paused (0 permits)",
        described(.0)
    )]
    NoSlot(Error),
    #[error("ended by signal {0} before the slot was acquired")]
    Stopped(i32),
}

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::NotDone(_) | Self::Write(_) | Self::System { .. } => 1,
            Self::Usage(_) => 2,
            Self::Connection(_) => 69,
            Self::Locks(error) => code_of(error),
            Self::NoSlot(_) => 75,
            Self::NotRun { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::NotRun { .. } => 126,
            Self::Stopped(signal) => code_of_signal(*signal),
        }
    }

    /// The text without line breaks, which messages of a server have.
    pub(crate) fn line(&self) -> String {
        one_line(self)
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        // An argument that a method has refused.
        Error::InvalidName(_)
        | Error::InvalidPermits { .. }
        | Error::InvalidLease { .. }
        | Error::InvalidWait { .. }
        | Error::FencesTooLarge { .. } => 2,
        Error::UnknownSemaphore { .. } => 1,
        _ => 69,
    }
}

/// The exit code that a shell reports for a process that a signal has ended.
pub(crate) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The text of an error with those of its causes, for an operator of this program: the crate's hints name its methods.
pub(crate) fn described(error: &(dyn StdError + 'static)) -> String {
    let mut text = match error.downcast_ref() {
        Some(Error::MissingTables { .. }) => {
            "the tables of diesel-locks are missing: run `diesel-locks migrate` (if they exist on PostgreSQL: add their \
             schema to the search_path, and grant the user USAGE on it)"
                .to_owned()
        }
        Some(Error::UnknownSemaphore { semaphore }) => {
            format!("there is no semaphore {semaphore:?}: `diesel-locks list semaphores` shows them")
        }
        Some(Error::StatementTimeout { .. }) => {
            "another session has locked a table for longer than this program waits, or a time-out of the session has ended \
             the statement"
                .to_owned()
        }
        _ => error.to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    one_line(text)
}

fn one_line(text: impl Display) -> String {
    let text = text.to_string();
    let lines = text.split(['\n', '\r']).map(str::trim);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}
