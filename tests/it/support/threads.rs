//! Sessions that act at the same time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diesel::connection::{Connection, TransactionManager};
use diesel_locks::SlotGuard;
use diesel_locks::prelude::*;

use super::Backend;

/// Nothing that is to happen takes longer.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// No transaction is retried for longer, however many conflict.
pub(crate) const LONGEST_RETRIES: Duration = Duration::from_secs(300);

/// Receives when the guard is lost, and is disconnected when it is released.
pub(crate) fn loss_of(guard: &SlotGuard) -> Receiver<()> {
    let (lost, is_lost) = channel();
    guard.on_lost(move || {
        let _ = lost.send(());
    });
    is_lost
}

pub(crate) fn begin<C: Connection>(conn: &mut C) {
    C::TransactionManager::begin_transaction(conn).expect("begin");
}

pub(crate) fn commit<C: Connection>(conn: &mut C) {
    C::TransactionManager::commit_transaction(conn).expect("commit");
}

pub(crate) fn roll_back<C: Connection>(conn: &mut C) {
    C::TransactionManager::rollback_transaction(conn).expect("rollback");
}

/// A thread that holds a lock until [`release`](Self::release) is called.
pub(crate) struct Holder {
    release: Sender<()>,
    thread: JoinHandle<()>,
}

impl Holder {
    /// Returns when the lock is held.
    pub(crate) fn acquire<B: Backend>(database: &Arc<B>, lock: impl Into<HeldLock>) -> Self {
        Self::with_outcome::<B>(database, lock, Ok(()))
    }

    /// [`acquire`](Self::acquire) with the outcome of the closure.
    pub(crate) fn with_outcome<B: Backend>(
        database: &Arc<B>,
        lock: impl Into<HeldLock>,
        outcome: Result<(), diesel::result::Error>,
    ) -> Self {
        let (release, released) = channel::<()>();
        let (held, is_held) = channel();
        let database = Arc::clone(database);
        let HeldLock(lock) = lock.into();
        let thread = std::thread::spawn(move || {
            let mut conn = database.connect();
            let rolled_back = outcome.is_err();
            let result = conn.with_object_lock(lock, |_| {
                held.send(()).expect("the test waits for it");
                released.recv().expect("the test says when");
                outcome
            });
            assert_eq!(result.is_err(), rolled_back, "{result:?}");
        });
        is_held.recv_timeout(LONG).expect("the lock is free");
        Self { release, thread }
    }

    /// Ends the transaction, and returns when it has ended.
    pub(crate) fn release(self) {
        self.release.send(()).expect("the holder waits for it");
        self.thread.join().expect("the holder ends well");
    }
}

pub(crate) struct HeldLock(LockRequest);

impl From<&str> for HeldLock {
    fn from(id: &str) -> Self {
        Self(LockRequest::new(id))
    }
}

impl From<LockRequest> for HeldLock {
    fn from(lock: LockRequest) -> Self {
        Self(lock)
    }
}

/// Runs `work` on a thread; the receiver gets its result.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        // The test may have failed and gone.
        let _ = sender.send(work());
    });
    receiver
}

pub(crate) fn result_of<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(LONG).expect("it comes to an end")
}

/// Waits until the condition is true.
pub(crate) fn until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LONG, "it does not become true");
        std::thread::sleep(Duration::from_millis(1));
    }
}
