//! Calls at a time, on a thread of this process.
//!
//! The waiters of a queue sleep until they are called. Which of them queries next changes thousands of times per second; if
//! each watched its own time, each change would wake one of them, and one that is a future may be left alone by its
//! application.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::rt::lock;

/// `None` if the thread could not be started.
static ALARMS: LazyLock<Option<&'static Alarms>> = LazyLock::new(|| {
    let alarms: &'static Alarms = Box::leak(Box::default());
    let builder = thread::Builder::new().name("diesel-locks-alarm".to_owned());
    match builder.spawn(|| alarms.run()) {
        Ok(_) => Some(alarms),
        Err(error) => {
            tracing::warn!(%error, "no thread for the time of waits: they poll a database less often");
            None
        }
    }
});

/// Calls this at the time, once, from another thread. Never, if that thread could not be started.
pub(crate) fn call_at(time: Instant, call: impl FnOnce() + Send + 'static) {
    if let Some(alarms) = &*ALARMS {
        alarms.add(time, Box::new(call));
    }
}

type Call = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Alarms {
    pending: Mutex<BTreeMap<Instant, Vec<Call>>>,
    /// The first time of them is another one than before.
    changed: Condvar,
}

impl Alarms {
    fn add(&self, time: Instant, call: Call) {
        let mut pending = lock(&self.pending);
        let first = pending.first_key_value();
        let is_first = first.is_none_or(|(first, _)| time < *first);
        pending.entry(time).or_default().push(call);
        drop(pending);
        if is_first {
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        let mut pending = lock(&self.pending);
        loop {
            let now = Instant::now();
            let first = pending.first_key_value();
            let left = first.map(|(time, _)| time.saturating_duration_since(now));
            pending = match left {
                None => self
                    .changed
                    .wait(pending)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) if !left.is_zero() => {
                    let waited = self.changed.wait_timeout(pending, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let due = pending.pop_first();
                    drop(pending);
                    for call in due.into_iter().flat_map(|(_, calls)| calls) {
                        // The hook for panics has reported it.
                        let _ = catch_unwind(AssertUnwindSafe(call));
                    }
                    lock(&self.pending)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn calls_come_in_the_order_of_their_times() {
        let (calls, called) = channel();
        let now = Instant::now();
        for millis in [60, 20, 40] {
            let calls = calls.clone();
            let time = now + Duration::from_millis(millis);
            call_at(time, move || {
                calls
                    .send((millis, Instant::now() >= time))
                    .expect("the test waits");
            });
        }
        call_at(now, || panic!("the thread goes on"));
        let order: Vec<_> = called.iter().take(3).collect();
        assert_eq!(order, [(20, true), (40, true), (60, true)]);
    }
}
