//! The coordinator's side of the nodes: processes and their pipes.

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
    /// A report of the process with this index.
    Told(usize, Report),
    /// A process's standard output has ended, and the process with it.
    Ended(usize),
    /// Ctrl-C.
    Interrupt,
}

pub(crate) struct Process {
    /// The number of the node.
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
    /// Call it from the main thread, because a node dies with the thread that has started it.
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
            // The end of a process is an event of its own, so a failed write is ignored.
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

    /// Whether it is running, and has been neither killed nor told to end.
    pub(crate) fn is_at_work(&self) -> bool {
        self.is_running && !self.is_killed && self.input.is_some()
    }

    /// Tells it to end after its current statements.
    pub(crate) fn stop(&mut self) {
        self.wake();
        self.input = None;
    }

    pub(crate) fn kill(&mut self) {
        self.is_killed = true;
        // An error means that it has already ended.
        let _ = self.child.kill();
    }

    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn wake(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        // Not after the process was waited for, because another process may have its number.
        if self.is_running {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Waits for the end. Returns an error if the process neither succeeded nor was stopped or killed by the
    /// coordinator.
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
    /// No node outlives the coordinator, which may fail.
    fn drop(&mut self) {
        if self.is_running {
            self.kill();
            let _ = self.child.wait();
        }
    }
}
