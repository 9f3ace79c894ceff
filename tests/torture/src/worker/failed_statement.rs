//! The statement that failed on a connection of this thread, for errors of lost connections: whether it waited for its
//! answer, or found that the connection was lost while it was idle.

use std::cell::RefCell;
use std::time::Instant;

use diesel::connection::{Instrumentation, InstrumentationEvent};

thread_local! {
    /// The first that has failed since one has succeeded.
    static FAILED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The statement that failed last, and the times before its begin and its end.
pub(super) fn failed_statement() -> Option<String> {
    FAILED.with_borrow(Clone::clone)
}

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
                FAILED.with_borrow_mut(|failed| {
                    if error.is_none() {
                        *failed = None;
                    } else if failed.is_none() {
                        *failed = Some(format!("{query} (took {took:?}, idle {idle:?} before)"));
                    }
                });
            }
            _ => {}
        }
    }
}
