//! What the threads did, and when.

use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::lanes::Lane;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Requests,
    Acquired,
    Commits,
    /// The commit has returned.
    Done,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests the lock",
            Self::Acquired => "acquired",
            Self::Commits => "commits",
            Self::Done => "done",
        })
    }
}

/// Events with their thread, from 1, and the time since the start.
pub(crate) struct Log {
    start: Instant,
    events: Mutex<Vec<(Duration, usize, Event)>>,
}

impl Log {
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
            events: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, thread: usize, event: Event) {
        let at = self.start.elapsed();
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push((at, thread, event));
    }

    fn sorted(&self) -> Vec<(Duration, usize, Event)> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = events.clone();
        events.sort_by_key(|(at, ..)| *at);
        events
    }

    /// A header, then one line for each event, in columns separated by tabs.
    pub(crate) fn events(&self) -> String {
        let mut text = "ms\tthread\tevent\n".to_owned();
        for (at, thread, event) in self.sorted() {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{}\t{thread}\t{event}", at.as_millis());
        }
        text
    }

    /// The lanes of the threads 1 to `threads`. Their time begins with the first event.
    pub(crate) fn lanes(&self, threads: usize) -> Result<Vec<Lane>> {
        let events = self.sorted();
        let first = events.first().map_or(Duration::ZERO, |(at, ..)| *at);
        let find = |thread: usize, event: Event| {
            let mut events = events.iter();
            let found = events.find(|(_, other, what)| (*other, *what) == (thread, event));
            let (at, ..) = found.with_context(|| format!("thread {thread}: no event '{event}'"))?;
            anyhow::Ok(at.saturating_sub(first))
        };
        (1..=threads)
            .map(|thread| {
                Ok(Lane {
                    requested: find(thread, Event::Requests)?,
                    acquired: find(thread, Event::Acquired)?,
                    // The database releases the lock between `Commits` and `Done`.
                    released: find(thread, Event::Commits)?,
                })
            })
            .collect()
    }
}
