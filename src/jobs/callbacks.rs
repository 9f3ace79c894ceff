//! The callbacks of lost guards, which one thread of the process calls, one after the other.
//!
//! Not the thread that notices a loss: what the application does in a callback would delay the renewals of other guards, and one
//! that drops a guard would wait for the thread that it runs on.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use crate::rt::lock;

pub(crate) type Callback = Box<dyn FnOnce() + Send>;

struct Queue {
    callbacks: VecDeque<Callback>,
    thread_running: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    callbacks: VecDeque::new(),
    thread_running: false,
});

thread_local! {
    static WAITS_FOR_RELEASES: Cell<bool> = const { Cell::new(true) };
}

/// This thread waits for no release from now on: others wait for it.
pub(crate) fn never_wait() {
    WAITS_FOR_RELEASES.set(false);
}

pub(crate) fn may_wait() -> bool {
    WAITS_FOR_RELEASES.get()
}

pub(crate) fn call_all(callbacks: Vec<Callback>) {
    if callbacks.is_empty() {
        return;
    }
    let mut queue = lock(&QUEUE);
    queue.callbacks.extend(callbacks);
    if queue.thread_running {
        return;
    }
    let started = thread::Builder::new()
        .name("diesel-locks callbacks".to_owned())
        .spawn(call_queued);
    match started {
        Ok(_) => queue.thread_running = true,
        Err(error) => {
            let callbacks = std::mem::take(&mut queue.callbacks);
            drop(queue);
            callbacks.into_iter().for_each(call);
            tracing::warn!(%error, "no thread for the callbacks of lost slots: the thread that noticed the loss calls them");
        }
    }
}

pub(crate) fn call(callback: Callback) {
    // The hook for panics has reported it. A subscriber that panics too would end the thread.
    let _ = catch_unwind(AssertUnwindSafe(callback));
}

fn call_queued() {
    never_wait();
    loop {
        let mut queue = lock(&QUEUE);
        let Some(callback) = queue.callbacks.pop_front() else {
            queue.thread_running = false;
            return;
        };
        drop(queue);
        call(callback);
    }
}
