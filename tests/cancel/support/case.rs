//! One method, dropped after each number of polls, on connections and on pools, and what is checked after each drop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use diesel_locks::prelude::*;
use diesel_locks::{Error, Slot};

use super::after::{After, keep_bare};
use super::blocker::Blocker;
use super::dropped::{End, poll_then_drop};
use super::engine::{BoxFuture, Connections, Engine, Source};
use super::report::Times;
use super::watch::{Held, Watch};

/// More polls than any method needs that does not wait.
const MOST_POLLS: usize = 60;

/// Where waits can't be seen, a method is dropped after at most so many polls while it waits.
const MOST_POLLS_OF_WAITS: usize = 24;

/// How the future can be seen to wait, so that polls end.
#[derive(Clone)]
pub(crate) enum Waits {
    /// It is ready after some polls.
    Never,
    /// A statement of its session runs for longer.
    InStatement,
    /// It has set this.
    Flagged(Arc<AtomicBool>),
}

impl Waits {
    pub(crate) fn flag() -> (Self, Arc<AtomicBool>) {
        let flag = Arc::new(AtomicBool::new(false));
        (Self::Flagged(Arc::clone(&flag)), flag)
    }

    pub(crate) fn ask<E: Engine>(
        &self,
        watch: &Watch<E>,
        session: Option<i64>,
    ) -> impl Fn() -> BoxFuture<'static, bool> + Send + Sync + 'static {
        let (waits, watch) = (self.clone(), watch.clone());
        move || -> BoxFuture<'static, bool> {
            let (waits, watch) = (waits.clone(), watch.clone());
            Box::pin(async move {
                match waits {
                    Self::Never => false,
                    Self::InStatement => watch.waits(session).await,
                    Self::Flagged(flag) => flag.load(Ordering::SeqCst),
                }
            })
        }
    }
}

/// How the method ends when it is not dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Ok,
    Err,
    Panic,
}

/// A slot that a method has returned.
pub(crate) type Returned = Arc<Mutex<Option<Slot>>>;

pub(crate) struct Case<E: Engine> {
    name: &'static str,
    pub(crate) database: Arc<E>,
    pub(crate) watch: Watch<E>,
    /// What is free after the drop.
    held: Held,
    /// Whether another session holds it until the future has been dropped.
    blocked: bool,
    waits: Waits,
    /// The rows of an attempt that was committed.
    parts: i64,
    ending: Ending,
    /// Whether it may wait without using the connection.
    has_pauses: bool,
    /// The slot that an attempt has returned, and that is released before the checks.
    returned: Returned,
    /// Done before each attempt.
    prepare: fn(&mut E::Blocking),
}

impl<E: Engine> Case<E> {
    pub(crate) fn new(name: &'static str, held: Held) -> Self {
        let database = Arc::new(E::new());
        let watch = Watch::new(&*database);
        Self {
            name,
            database,
            watch,
            held,
            blocked: false,
            waits: Waits::Never,
            parts: 0,
            ending: Ending::Ok,
            has_pauses: false,
            returned: Returned::default(),
            prepare: |_| {},
        }
    }

    /// The method may wait without using the connection.
    pub(crate) fn has_pauses(mut self) -> Self {
        self.has_pauses = true;
        self
    }

    /// The slot that the method stores here is released before the checks.
    pub(crate) fn returned(&self) -> Returned {
        Arc::clone(&self.returned)
    }

    /// Does this before each attempt.
    pub(crate) fn prepare(mut self, prepare: fn(&mut E::Blocking)) -> Self {
        self.prepare = prepare;
        self
    }

    /// Another session holds it, and the method waits for that.
    pub(crate) fn blocked(mut self) -> Self {
        self.blocked = true;
        self.waits = Waits::InStatement;
        self
    }

    /// Another session holds it, and the method does not wait for that.
    pub(crate) fn passes(mut self) -> Self {
        self.blocked = true;
        self.waits = Waits::Never;
        self
    }

    pub(crate) fn waits(mut self, waits: Waits) -> Self {
        self.waits = waits;
        self
    }

    /// How many rows the closure writes.
    pub(crate) fn parts(mut self, parts: i64) -> Self {
        self.parts = parts;
        self
    }

    /// The method returns an error.
    pub(crate) fn fails(mut self) -> Self {
        self.ending = Ending::Err;
        self
    }

    pub(crate) fn panics(mut self) -> Self {
        self.ending = Ending::Panic;
        self
    }

    /// Drops `method` after 0, 1, 2 .. polls, until it is ready or waits. It gets the number of the attempt.
    pub(crate) async fn run(
        &self,
        method: impl for<'c> Fn(&'c mut E::Conn, usize) -> BoxFuture<'c, Result<(), Error>>,
    ) {
        let waits = self.blocked && !matches!(self.waits, Waits::Never);
        let most = if waits {
            MOST_POLLS_OF_WAITS
        } else {
            MOST_POLLS
        };
        for (round, source) in Source::ALL.into_iter().enumerate() {
            let connections = self.database.connections(source).await;
            let mut times = Times::new(E::NAME, source.name(), self.name);
            let mut outcomes = Vec::new();
            let mut polls = 0;
            loop {
                let attempt = round * 1000 + polls;
                let end = self
                    .attempt(source, &*connections, &method, attempt, polls, &mut times)
                    .await;
                outcomes.push((attempt, self.watch.written(attempt).await));
                match end {
                    End::Dropped if polls < most => polls += 1,
                    // Once more, at the place where it waits.
                    End::DroppedWaiting if polls < most => polls = most,
                    End::Dropped => assert!(waits, "{} does not end", self.name),
                    End::Ready(()) => assert!(!waits, "{} does not wait", self.name),
                    _ => {}
                }
                if !matches!(end, End::Dropped | End::DroppedWaiting) || polls >= most {
                    break;
                }
            }
            for (attempt, before) in outcomes {
                let now = self.watch.written(attempt).await;
                assert_eq!(now, before, "{}: written later, {source:?}", self.name);
            }
            times.print();
        }
    }

    async fn attempt(
        &self,
        source: Source,
        connections: &dyn Connections<E::Conn>,
        method: &impl for<'c> Fn(&'c mut E::Conn, usize) -> BoxFuture<'c, Result<(), Error>>,
        attempt: usize,
        polls: usize,
        times: &mut Times,
    ) -> End<()> {
        let place = format!("{}, {source:?}, dropped after {polls} polls", self.name);
        self.watch.with(self.prepare).await;
        let mut conn = connections.take().await;
        let session = E::session(&mut conn).await;
        let mut blocker = None;
        if self.blocked {
            blocker = Some(Blocker::acquire(&self.database, &self.held).await);
        }
        if let Waits::Flagged(flag) = &self.waits {
            flag.store(false, Ordering::SeqCst);
        }
        let waits = self.waits.ask(&self.watch, session);
        let (end, dropped) = poll_then_drop(method(&mut conn, attempt), polls, &waits).await;
        let (end, was_dropped) = self.ending_of(end, &place);
        let after = After {
            watch: &self.watch,
            session,
            place: &place,
        };
        let bare = keep_bare::<E>(source, conn);
        let returned = self.returned.lock().expect("no panic").take();
        if let Some(slot) = returned {
            assert!(!was_dropped, "{place}: {slot:?}");
            let released = self.watch.with(|conn| conn.release_slot(slot)).await;
            released.expect("its own slot");
        }
        after.until_quiet().await;
        let time = if let Some(blocker) = blocker {
            // No waiter is left while the other session holds what it has waited for.
            let time = dropped.elapsed();
            blocker.release().await;
            after.until_free(&self.held).await;
            time
        } else {
            after.until_free(&self.held).await;
            dropped.elapsed()
        };
        if was_dropped {
            times.add(time);
        }
        let written = self.watch.written(attempt).await;
        assert!(self.may_be(written, &end), "{place}: {written} rows");
        if let Some(bare) = bare {
            let is_certain = !was_dropped || polls == 0 || !self.has_pauses;
            let is_open = is_certain.then_some(!was_dropped || polls == 0);
            after.check_bare(bare, is_open).await;
        } else {
            after.check_next(&mut connections.take().await).await;
        }
        end
    }

    /// The end, and whether it was the drop.
    fn ending_of(&self, end: End<Result<(), Error>>, place: &str) -> (End<()>, bool) {
        match (end, self.ending) {
            (End::Ready(Ok(())), Ending::Ok) | (End::Ready(Err(_)), Ending::Err) => {
                (End::Ready(()), false)
            }
            (End::Panicked, Ending::Panic) => (End::Panicked, false),
            (End::Dropped, _) => (End::Dropped, true),
            (End::DroppedWaiting, _) => (End::DroppedWaiting, true),
            (end, _) => panic!("{place}: {end:?}"),
        }
    }

    /// Whether this number of rows may be there.
    fn may_be(&self, written: i64, end: &End<()>) -> bool {
        let committed = matches!(end, End::Ready(())) && self.ending == Ending::Ok;
        // COMMIT may have been sent.
        let may_be_committed = matches!(end, End::Dropped)
            && self.ending == Ending::Ok
            && matches!(self.waits, Waits::Never);
        (written == 0 && !(committed && self.parts > 0))
            || (written == self.parts && (committed || may_be_committed))
    }
}
