//! One thread of the process that notices when a lease ends, though renewal hangs in a statement.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::state::State;

struct Watch {
    watched: Vec<Weak<State>>,
    running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    watched: Vec::new(),
    running: false,
});
static CHANGED: Condvar = Condvar::new();

/// Watches the guard until it is lost or gone.
pub(super) fn over(state: &Arc<State>) {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    watch.watched.push(Arc::downgrade(state));
    if !watch.running {
        let started = thread::Builder::new()
            .name("diesel-locks watch".to_owned())
            .spawn(run);
        // Without it `is_held` is right all the same; callbacks wait for the renewing thread.
        watch.running = started.is_ok();
    }
    CHANGED.notify_one();
}

fn run() {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let mut next = None::<Instant>;
        let mut due = Vec::new();
        watch.watched.retain(|state| {
            let Some(state) = state.upgrade() else {
                return false;
            };
            let Some(deadline) = state.deadline() else {
                return false;
            };
            if deadline <= Instant::now() {
                due.push(state);
            } else {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
            true
        });
        if !due.is_empty() {
            drop(watch);
            for state in due {
                state.is_held();
            }
            watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let Some(next) = next else {
            watch.running = false;
            return;
        };
        // A guard that goes is found at the next of these looks.
        let pause = next.saturating_duration_since(Instant::now());
        let waited = CHANGED.wait_timeout(watch, pause.min(Duration::from_secs(60)));
        watch = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}
