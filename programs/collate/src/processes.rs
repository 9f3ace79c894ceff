//! The nodes, seen from the coordinator.

use std::sync::mpsc::Sender;

use anyhow::{Result, ensure};
use program_support::child_process::{self, ChildProcess};
use rustix::process::{Pid, Signal, kill_process};

use crate::job::Job;
use crate::report::Report;

/// What the coordinator waits for.
pub(crate) type Event = child_process::Event<Report>;

/// A node. Killed when dropped: none outlives the coordinator, which may fail half-way.
pub(crate) struct Process {
    /// The number of the node.
    pub(crate) node: usize,
    child: ChildProcess,
    is_running: bool,
    is_killed: bool,
}

impl Process {
    /// Starts the process with this index, whose reports arrive as events.
    ///
    /// Call it from the main thread, because a node dies with the thread that has started it.
    pub(crate) fn start(index: usize, job: &Job, events: Sender<Event>) -> Result<Self> {
        Ok(Self {
            node: job.node,
            child: ChildProcess::start("node", job, index, events)?,
            is_running: true,
            is_killed: false,
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Whether it is running, and neither killed nor stopped.
    pub(crate) fn is_at_work(&self) -> bool {
        self.is_running && !self.is_killed && self.child.has_input()
    }

    /// Lets it finish its statements.
    pub(crate) fn stop(&mut self) {
        self.resume();
        self.child.close_input();
    }

    pub(crate) fn kill(&mut self) {
        self.is_killed = true;
        self.child.kill();
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // Not after the process was waited for, because another process may have its number.
        if self.is_running {
            let _ = kill_process(Pid::from_child(self.child.child()), signal);
        }
    }

    /// Waits for the end; an error says how it ended if neither well nor by this program.
    pub(crate) fn ended(&mut self) -> Result<()> {
        let was_stopped = !self.child.close_input();
        let status = self.child.wait()?;
        self.is_running = false;
        ensure!(
            self.is_killed || (was_stopped && status.success()),
            "ended early (process {}, {status})",
            self.child.id()
        );
        Ok(())
    }
}
