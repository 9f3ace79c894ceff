//! Processes that a program starts of itself, with its own arguments. They get a job on standard input and write reports
//! on standard output, both as lines of JSON.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What the parent waits for.
#[derive(Debug)]
pub enum Event<R> {
    /// The child with this index wrote a report.
    Reported(usize, R),
    /// The child with this index has ended, with an error unless it was killed.
    Ended(usize, Result<()>),
}

/// What a thread or a signal sends to the parent.
enum Message<R> {
    Reported(usize, R),
    /// The standard output of the child with this index has ended, and the child with it.
    OutputEnded(usize),
    /// Ctrl-C, or SIGTERM.
    Interrupted,
}

/// The time that children have to finish what they are doing before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Child processes, and what they report.
pub struct Children<R> {
    /// By index.
    pub processes: Vec<ChildProcess>,
    sender: Sender<Message<R>>,
    messages: Receiver<Message<R>>,
    /// When those that are still running are killed.
    deadline: Option<Instant>,
    /// Whether Ctrl-C (SIGINT) or SIGTERM has stopped them.
    pub interrupted: bool,
}

impl<R: DeserializeOwned + Send + 'static> Children<R> {
    /// No children yet. From now on Ctrl-C stops those that there are, and not this process.
    pub fn new() -> Result<Self> {
        let (sender, messages) = mpsc::channel();
        let interrupts = sender.clone();
        ctrlc::set_handler(move || {
            let _ = interrupts.send(Message::Interrupted);
        })?;
        Ok(Self {
            processes: Vec::new(),
            sender,
            messages,
            deadline: None,
            interrupted: false,
        })
    }

    /// Starts this program again as a child, and sends it the job. Its index is the next one.
    pub fn start(&mut self, job: &impl Serialize) -> Result<()> {
        let process = ChildProcess::start(job, self.processes.len(), self.sender.clone())?;
        self.processes.push(process);
        Ok(())
    }

    /// Whether one of them has not ended.
    pub fn are_running(&self) -> bool {
        self.processes.iter().any(|process| process.is_running)
    }

    /// Whether they were asked to end.
    pub fn are_stopping(&self) -> bool {
        self.deadline.is_some()
    }

    /// The next event, if there is one within this time.
    pub fn next(&mut self, time: Duration) -> Option<Event<R>> {
        let message = match self.messages.recv_timeout(time) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("this value keeps a sender"),
        };
        if self.deadline.is_some_and(|end| Instant::now() > end) {
            self.kill();
        }
        match message? {
            Message::Reported(index, report) => Some(Event::Reported(index, report)),
            Message::OutputEnded(index) => Some(Event::Ended(index, self.processes[index].ended())),
            Message::Interrupted => {
                if self.interrupted {
                    self.kill();
                }
                self.interrupted = true;
                self.stop();
                None
            }
        }
    }

    /// Requests the end of all, with what they are doing finished.
    pub fn stop(&mut self) {
        self.deadline.get_or_insert(Instant::now() + PATIENCE);
        self.processes.iter_mut().for_each(ChildProcess::stop);
    }

    /// Kills all.
    pub fn kill(&mut self) {
        self.processes.iter_mut().for_each(ChildProcess::kill);
    }
}

/// Distinguishes a process that a program starts of itself.
#[derive(Args)]
pub struct ChildArguments {
    /// A process started by this program
    #[arg(long = "child-of-this-program", hide = true)]
    pub is_child: bool,
}

/// A child process. Killed and waited for when dropped: none outlives its parent, which may fail half-way.
pub struct ChildProcess {
    child: Child,
    input: Option<ChildStdin>,
    is_running: bool,
    is_killed: bool,
}

impl ChildProcess {
    fn start<R>(job: &impl Serialize, index: usize, messages: Sender<Message<R>>) -> Result<Self>
    where
        R: DeserializeOwned + Send + 'static,
    {
        let job = serde_json::to_string(job)?;
        let mut child = Command::new(env::current_exe()?)
            .args(env::args_os().skip(1))
            .arg("--child-of-this-program")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start a process")?;
        let output = child.stdout.take().context("the process has no output")?;
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The last line of a killed process may be cut off.
                if let Ok(report) = serde_json::from_str(&line) {
                    let _ = messages.send(Message::Reported(index, report));
                }
            }
            let _ = messages.send(Message::OutputEnded(index));
        });
        // A process that has ended does not read; its end is an event of its own.
        let mut input = child.stdin.take().context("the process has no input")?;
        let _ = writeln!(input, "{job}");
        Ok(Self {
            child,
            input: Some(input),
            is_running: true,
            is_killed: false,
        })
    }

    /// Whether it is running, and neither killed nor asked to end.
    pub fn is_at_work(&self) -> bool {
        self.is_running && !self.is_killed && self.input.is_some()
    }

    /// Requests its end: closes its standard input.
    fn stop(&mut self) {
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
    fn ended(&mut self) -> Result<()> {
        self.input = None;
        self.is_running = false;
        let status = self.child.wait()?;
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

/// In a child: lets the system kill this process with the thread that has started it. A stopped process (SIGSTOP) would not notice
/// the end of its standard input.
pub fn die_with_parent() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// The time of the monotonic clock, which all processes of the machine share, unlike Rust's `Instant`.
pub fn now() -> Duration {
    // The clock is not negative, so the conversion can't fail.
    clock_gettime(ClockId::Monotonic)
        .try_into()
        .unwrap_or_default()
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
