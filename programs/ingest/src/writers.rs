//! The coordinator's side of the writers: processes and their pipes.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result};

use crate::job::Job;
use crate::report::Report;

/// What the coordinator waits for.
pub(crate) enum Event {
    /// A report of a writer.
    Told(usize, Report),
    /// A writer's standard output has ended, and the writer with it.
    Ended(usize),
    /// Ctrl-C.
    Interrupt,
}

pub(crate) struct Writer {
    child: Child,
    /// Closed to stop the writer.
    input: Option<ChildStdin>,
}

impl Writer {
    /// Starts a writer, whose reports arrive as events.
    pub(crate) fn start(job: &Job, events: Sender<Event>) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg("writer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("can't start a writer")?;
        let output = child.stdout.take().context("a writer has no output")?;
        let index = job.writer;
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The last line of a killed writer may be cut off.
                if let Ok(report) = serde_json::from_str(&line) {
                    let _ = events.send(Event::Told(index, report));
                }
            }
            let _ = events.send(Event::Ended(index));
        });
        let mut writer = Self {
            input: child.stdin.take(),
            child,
        };
        writer.say(&serde_json::to_string(job)?);
        Ok(writer)
    }

    pub(crate) fn begin(&mut self) {
        self.say("begin");
    }

    /// Tells it to end after its open transactions.
    pub(crate) fn stop(&mut self) {
        self.input = None;
    }

    pub(crate) fn kill(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
    }

    /// Waits for the end. Returns an error if it did not end successfully.
    pub(crate) fn ended(&mut self) -> Result<()> {
        self.stop();
        let pid = self.child.id();
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "ended early (process {pid}, {status})");
        Ok(())
    }

    fn say(&mut self, line: &str) {
        // The end of a process is an event of its own, so a failed write is ignored.
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }
}

impl Drop for Writer {
    /// No writer outlives the coordinator, which may fail.
    fn drop(&mut self) {
        self.stop();
        self.kill();
        let _ = self.child.wait();
    }
}
