//! Processes that a program starts of itself. They get a job on standard input and write reports on
//! standard output, both as lines of JSON: so a password in a database URL is in no list of processes.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::stop;

/// What the parent waits for.
#[derive(Debug)]
pub enum Event<R> {
    /// The child with this index wrote a report.
    Reported(usize, R),
    /// The standard output of the child with this index has ended, and the child with it.
    Ended(usize),
    /// Ctrl-C, or SIGTERM.
    Interrupted,
}

/// Sends [`Event::Interrupted`] on Ctrl-C (SIGINT) and SIGTERM.
///
/// # Errors
///
/// If the process has a handler already.
pub fn send_interrupts<R: Send + 'static>(events: Sender<Event<R>>) -> Result<()> {
    Ok(ctrlc::set_handler(move || {
        let _ = events.send(Event::Interrupted);
    })?)
}

/// A child process. Killed and waited for when dropped.
pub struct ChildProcess {
    child: Child,
    input: Option<ChildStdin>,
}

impl ChildProcess {
    /// Starts this program again, with `role` as its only argument, and sends it the job. Its reports arrive
    /// as events.
    ///
    /// # Errors
    ///
    /// If the process can't be started.
    pub fn start<J, R>(role: &str, job: &J, index: usize, events: Sender<Event<R>>) -> Result<Self>
    where
        J: Serialize,
        R: DeserializeOwned + Send + 'static,
    {
        let mut child = Command::new(env::current_exe()?)
            .arg(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't start a process ({role})"))?;
        let output = child.stdout.take().context("the process has no output")?;
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The last line of a killed process may be cut off.
                if let Ok(report) = serde_json::from_str(&line) {
                    let _ = events.send(Event::Reported(index, report));
                }
            }
            let _ = events.send(Event::Ended(index));
        });
        let mut process = Self {
            input: child.stdin.take(),
            child,
        };
        process.send(&serde_json::to_string(job)?);
        Ok(process)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process, for signals.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Writes a line to its standard input.
    pub fn send(&mut self, line: &str) {
        // A process that has ended does not read; its end is an event of its own.
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// Closes its standard input, which requests its end. Returns whether the input was open.
    pub fn close_input(&mut self) -> bool {
        self.input.take().is_some()
    }

    /// Whether its end was not requested yet.
    pub fn has_input(&self) -> bool {
        self.input.is_some()
    }

    /// Kills the process. Does nothing if it has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    ///
    /// If the system call fails.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.close_input();
        self.kill();
        let _ = self.wait();
    }
}

/// In a child: reads the job.
///
/// # Errors
///
/// If standard input has no job.
pub fn read_job<J: DeserializeOwned>() -> Result<J> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    serde_json::from_str(&line).context("the program itself starts this process")
}

/// In a child: writes a report. Requests the end of this process if no process reads it.
pub fn report<R: Serialize>(report: &R) {
    let written = serde_json::to_string(report)
        .map_err(io::Error::from)
        .and_then(|line| writeln!(io::stdout(), "{line}"));
    if written.is_err() {
        stop::request();
    }
}
