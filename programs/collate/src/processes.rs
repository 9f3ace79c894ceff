//! The nodes, seen from the coordinator: processes and the pipes to them.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::job::Job;
use crate::report::Report;

/// What the coordinator waits for.
pub(crate) enum Event {
    /// A process, by its index, told something.
    Told(usize, Report),
    /// A process's standard output has ended, and the process with it.
    Ended(usize),
    /// Ctrl-C.
    Interrupt,
}

pub(crate) struct Process {
    /// Which node it is.
    pub(crate) node: usize,
    child: Child,
    /// Closed to stop the process.
    input: Option<ChildStdin>,
    is_running: bool,
    is_killed: bool,
}

impl Process {
    /// Starts the process with this index, whose reports arrive as events.
    ///
    /// To be called by the main thread: a node dies with the thread that has started it.
    pub(crate) fn start(index: usize, job: &Job, events: Sender<Event>) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg("node")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start a node")?;
        let output = child.stdout.take().context("a node has no output")?;
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The last line of a killed process may be cut off.
                if let Ok(report) = serde_json::from_str(&line) {
                    let _ = events.send(Event::Told(index, report));
                }
            }
            let _ = events.send(Event::Ended(index));
        });
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            // One that has ended can't hear; its end is an event of its own.
            let _ = writeln!(input, "{}", serde_json::to_string(job)?);
        }
        Ok(Self {
            node: job.node,
            child,
            input,
            is_running: true,
            is_killed: false,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Whether it is there and to stay.
    pub(crate) fn is_at_work(&self) -> bool {
        self.is_running && !self.is_killed && self.input.is_some()
    }

    /// Lets it finish the statements it is at.
    pub(crate) fn stop(&mut self) {
        self.wake();
        self.input = None;
    }

    pub(crate) fn kill(&mut self) {
        self.is_killed = true;
        // An error means that it has ended by itself.
        let _ = self.child.kill();
    }

    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn wake(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        // Not to a process that has been waited for: another may have its number.
        if self.is_running {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Waits for the end; an error says how it ended if neither well nor by our hand.
    pub(crate) fn ended(&mut self) -> Result<()> {
        let was_stopped = self.input.take().is_none();
        let status = self.child.wait()?;
        self.is_running = false;
        ensure!(
            self.is_killed || (was_stopped && status.success()),
            "node {} ended early (process {}, {status})",
            self.node,
            self.id()
        );
        Ok(())
    }
}

impl Drop for Process {
    /// None outlives the coordinator, which may fail half-way.
    fn drop(&mut self) {
        if self.is_running {
            self.kill();
            let _ = self.child.wait();
        }
    }
}
