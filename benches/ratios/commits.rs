//! The time that connections spend in COMMIT.
//!
//! A transaction that writes waits there for the disk, with a lock or without, for milliseconds that vary by more
//! than a lock takes. What the lock adds to a writing closure shows in the rest of the cycle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use diesel::connection::InstrumentationEvent;

use crate::support::backend::Backend;
use crate::support::connections::Connections;

/// That of all connections of a connections together, in nanoseconds.
#[derive(Clone, Default)]
pub(crate) struct Commits(Arc<AtomicU64>);

impl Commits {
    pub(crate) fn watch<C: Backend>(connections: &mut Connections<C>) -> Result<Self> {
        let commits = Self::default();
        connections.measure(
            |_, _| true,
            |conn, _| {
                conn.set_instrumentation(commits.clone().instrumentation());
                Ok(())
            },
        )?;
        Ok(commits)
    }

    /// The time since this was last asked.
    pub(crate) fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }

    fn instrumentation(self) -> impl FnMut(InstrumentationEvent<'_>) + Send + 'static {
        let mut begun = None;
        move |event| match event {
            InstrumentationEvent::CommitTransaction { .. } => begun = Some(Instant::now()),
            // The crate's own COMMIT is a query.
            InstrumentationEvent::StartQuery { query, .. }
                if begun.is_none() && query.to_string().contains("COMMIT") =>
            {
                begun = Some(Instant::now());
            }
            InstrumentationEvent::FinishQuery { .. } => {
                if let Some(begun) = begun.take() {
                    let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    self.0.fetch_add(nanos, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }
}
