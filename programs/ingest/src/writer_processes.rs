//! The writers, seen from the coordinator.

use std::sync::mpsc::Sender;

use anyhow::{Result, ensure};
use program_support::child_process::{self, ChildProcess};

use crate::job::Job;
use crate::report::Report;

/// What the coordinator waits for.
pub(crate) type Event = child_process::Event<Report>;

/// A writer. Killed when dropped: none outlives the coordinator, which may fail half-way.
pub(crate) struct WriterProcess(ChildProcess);

impl WriterProcess {
    /// Starts a writer, whose reports arrive as events.
    pub(crate) fn start(job: &Job, events: Sender<Event>) -> Result<Self> {
        Ok(Self(ChildProcess::start(
            "writer", job, job.writer, events,
        )?))
    }

    pub(crate) fn begin(&mut self) {
        self.0.send("begin");
    }

    /// Lets it finish its transactions.
    pub(crate) fn stop(&mut self) {
        self.0.close_input();
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Waits for the end. Returns an error if it did not end successfully.
    pub(crate) fn ended(&mut self) -> Result<()> {
        self.stop();
        let status = self.0.wait()?;
        ensure!(
            status.success(),
            "ended early (process {}, {status})",
            self.0.id()
        );
        Ok(())
    }
}
