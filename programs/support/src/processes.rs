//! Processes that a program starts of itself. They get a job on standard input and write reports on
//! standard output, both as lines of JSON: so a password in a database URL is in no list of processes.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

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
pub fn send_interrupts<R: Send + 'static>(events: Sender<Event<R>>) -> Result<()> {
    Ok(ctrlc::set_handler(move || {
        let _ = events.send(Event::Interrupted);
    })?)
}

/// A child process. Killed and waited for when dropped: none outlives its parent, which may fail half-way.
pub struct ChildProcess {
    child: Child,
    input: Option<ChildStdin>,
    is_running: bool,
    is_killed: bool,
}

impl ChildProcess {
    /// Starts this program again, with `role` as its only argument, and sends it the job. Its reports arrive
    /// as events.
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
            is_running: true,
            is_killed: false,
        };
        process.send(&serde_json::to_string(job)?);
        Ok(process)
    }

    /// Writes a line to its standard input.
    pub fn send(&mut self, line: &str) {
        // A process that has ended does not read; its end is an event of its own.
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// Whether its end was not seen yet.
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Whether it is running, and neither killed nor asked to end.
    pub fn is_at_work(&self) -> bool {
        self.is_running && !self.is_killed && self.input.is_some()
    }

    /// Requests its end, with what it is doing finished: closes its standard input.
    pub fn stop(&mut self) {
        self.resume();
        self.input = None;
    }

    /// Kills it. Does nothing if it has ended.
    pub fn kill(&mut self) {
        self.is_killed = true;
        let _ = self.child.kill();
    }

    /// Stops it, until it is resumed.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues it after a pause.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // Not after the process was waited for, because another process may have its number.
        if self.is_running {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Waits for the end.
    pub fn ended(&mut self) -> Result<()> {
        self.input = None;
        let status = self.child.wait()?;
        self.is_running = false;
        ensure!(
            self.is_killed || status.success(),
            "ended early (process {}, {status})",
            self.child.id()
        );
        Ok(())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.input = None;
        self.kill();
        let _ = self.child.wait();
    }
}

/// In a child: reads the job.
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
        request_stop();
    }
}

/// The request to end this process soon, with what it is doing finished.
static STOP: AtomicBool = AtomicBool::new(false);

/// Requests the end of this process.
pub fn request_stop() {
    STOP.store(true, Ordering::Relaxed);
}

/// Whether the end of this process was requested.
pub fn is_stop_requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Requests the end of this process on Ctrl-C (SIGINT) and SIGTERM.
pub fn stop_on_interrupt() -> Result<()> {
    Ok(ctrlc::set_handler(request_stop)?)
}

/// Requests the end of this process when standard input ends, which the parent closes. Returns at once: a thread reads.
pub fn stop_at_end_of_input() {
    thread::spawn(|| {
        let _ = io::stdin().lock().skip_until(0);
        request_stop();
    });
}
