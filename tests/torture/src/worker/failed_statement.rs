//! The statements that failed on connections of this thread, for errors that nothing explains: whether one waited for its
//! answer, or found that the connection was lost while it was idle.

use std::cell::RefCell;
use std::time::Instant;

use diesel::connection::{Instrumentation, InstrumentationEvent};

thread_local! {
    static FAILED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The first statements that have failed since the last call, and the times before the begin and the end of each.
pub(super) fn failed_statements() -> Vec<String> {
    FAILED.take()
}

/// More of them say nothing new.
const MOST: usize = 3;

/// Observes the statements of a connection.
pub(super) struct Statements {
    started: Instant,
    ended: Instant,
}

impl Statements {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            ended: now,
        }
    }
}

impl Instrumentation for Statements {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { .. } => self.started = Instant::now(),
            InstrumentationEvent::FinishQuery { query, error, .. } => {
                let (idle, now) = (self.started - self.ended, Instant::now());
                let took = now - self.started;
                self.ended = now;
                if let Some(error) = error {
                    FAILED.with_borrow_mut(|failed| {
                        if failed.len() < MOST {
                            failed.push(format!(
                                "{query} (took {took:?}, idle {idle:?} before): {error}"
                            ));
                        }
                    });
                }
            }
            _ => {}
        }
    }
}
