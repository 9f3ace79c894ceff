//! One thread of the process that marks guards as lost when their leases end, also while a renewal hangs in
//! a statement.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::state::State;

struct Watched {
    guards: Vec<Weak<State>>,
    thread_running: bool,
}

static WATCHED: Mutex<Watched> = Mutex::new(Watched {
    guards: Vec::new(),
    thread_running: false,
});
static CHANGED: Condvar = Condvar::new();

/// Watches the guard until it is lost, released or dropped.
pub(super) fn watch(state: &Arc<State>) {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    watched.guards.push(Arc::downgrade(state));
    if !watched.thread_running {
        let started = thread::Builder::new()
            .name("diesel-locks expiry watcher".to_owned())
            .spawn(run);
        // Without the thread `is_held` is still right; callbacks wait for the renewer's thread.
        watched.thread_running = started.is_ok();
    }
    CHANGED.notify_one();
}

fn run() {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let mut next = None::<Instant>;
        let mut expired = Vec::new();
        watched.guards.retain(|state| {
            let Some(state) = state.upgrade() else {
                return false;
            };
            let Some(deadline) = state.deadline() else {
                return false;
            };
            if deadline <= Instant::now() {
                expired.push(state);
            } else {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
            true
        });
        if !expired.is_empty() {
            drop(watched);
            for state in expired {
                state.is_held();
            }
            watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let Some(next) = next else {
            watched.thread_running = false;
            return;
        };
        // Guards that are dropped meanwhile are removed after this pause.
        let pause = next.saturating_duration_since(Instant::now());
        let waited = CHANGED.wait_timeout(watched, pause.min(Duration::from_secs(60)));
        watched = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}
