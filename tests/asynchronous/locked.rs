//! What is waited for on a `LockPool`: an object lock or a slot of a transaction.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Async, Error, LockPool, Pool};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

use crate::support::dropped::LONG;
use crate::support::engine::BoxFuture;
use crate::support::urls::fresh_name;
use crate::support::watch::Held;

pub(crate) const WAIT: Wait = Wait::AtMost(LONG);

const ID: &str = "Account:4711";

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    Object,
    /// Of this semaphore. The queues of slots belong to the process: each test has a name of its own.
    Slot(&'static str),
    /// As `Object` and `Slot`, by the methods that do not wait.
    FreeObject,
    FreeSlot(&'static str),
}

/// What is done in the transaction.
pub(crate) type Work<C> =
    Box<dyn for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(), Error>> + Send>;

impl Locked {
    pub(crate) fn all() -> [Self; 2] {
        [Self::Object, Self::Slot(fresh_name().leak())]
    }

    /// With what is not waited for.
    pub(crate) fn with_free() -> [Self; 4] {
        let [object, slot] = Self::all();
        let free = Self::FreeSlot(fresh_name().leak());
        [object, slot, Self::FreeObject, free]
    }

    pub(crate) fn held(self) -> Held {
        match self {
            Self::Object | Self::FreeObject => Held::Object(ID),
            Self::Slot(name) | Self::FreeSlot(name) => Held::Slot(name),
        }
    }

    /// In errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object | Self::FreeObject => ID,
            Self::Slot(name) | Self::FreeSlot(name) => name,
        }
    }

    /// Does the work in a transaction that has it.
    pub(crate) fn with<P: Pool<Style = Async>>(
        self,
        locks: &LockPool<P>,
        wait: Wait,
        work: Work<P::Connection>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        let locks = locks.clone();
        Box::pin(async move {
            let work = async move |conn: &mut P::Connection| work(conn).await;
            match self {
                Self::Object => {
                    let request = LockRequest::new(ID).wait(wait);
                    locks.with_object_lock(request, work).await
                }
                Self::Slot(name) => locks.with_slot(&Semaphore::new(name, 1), wait, work).await,
                Self::FreeObject => {
                    let done = locks.try_with_object_lock(ID, work).await?;
                    done.expect("a free object");
                    Ok(())
                }
                Self::FreeSlot(name) => {
                    let done = locks.try_with_slot(&Semaphore::new(name, 1), work).await?;
                    done.expect("a free slot");
                    Ok(())
                }
            }
        })
    }
}

/// Does the work in a transaction that holds these object locks.
pub(crate) fn with_request<P: Pool<Style = Async>>(
    locks: &LockPool<P>,
    request: LockRequest,
    work: Work<P::Connection>,
) -> BoxFuture<'static, Result<(), Error>> {
    let locks = locks.clone();
    let work = async move |conn: &mut P::Connection| work(conn).await;
    Box::pin(async move { locks.with_object_lock(request, work).await })
}

/// Does nothing.
pub(crate) fn nothing<C>() -> Work<C> {
    Box::new(|_| Box::pin(async { Ok(()) }))
}

/// The transactions that have run, in their order. At most one runs at a time.
#[derive(Default)]
pub(crate) struct Runs {
    inside: AtomicUsize,
    ended: Mutex<Vec<usize>>,
}

impl Runs {
    pub(crate) fn ended(&self) -> Vec<usize> {
        self.ended.lock().expect("no panic").clone()
    }

    pub(crate) async fn run(&self, number: usize) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "excluded");
        yield_now().await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.ended.lock().expect("no panic").push(number);
    }
}

/// Returns when so many requests wait.
pub(crate) async fn await_waiters<P: Pool<Style = Async>>(locks: &LockPool<P>, count: usize) {
    let started = Instant::now();
    while locks.waiting() != count {
        assert!(started.elapsed() < LONG, "{} wait", locks.waiting());
        sleep(Duration::from_millis(1)).await;
    }
}

/// The result of a task.
pub(crate) async fn result_of<T>(task: JoinHandle<T>) -> T {
    let ended = timeout(LONG, task).await;
    ended.expect("the task ends").expect("no panic")
}
