//! The request to end this process soon, with what it is doing finished.

use std::io::{self, BufRead};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Requests the end.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Whether the end was requested.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Requests the end on Ctrl-C (SIGINT) and SIGTERM.
///
/// # Errors
///
/// If the process has a handler already.
pub fn on_interrupt() -> Result<()> {
    Ok(ctrlc::set_handler(request)?)
}

/// Requests the end when standard input ends, which the parent process closes. Returns at once: a thread
/// reads.
pub fn at_end_of_input() {
    thread::spawn(|| {
        let _ = io::stdin().lock().skip_until(0);
        request();
    });
}
