//! What ends the acquisition of a leased slot, and what others do meanwhile.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::InstrumentationEvent;
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use diesel_locks::prelude::*;
use tokio::time::sleep;

use crate::support::after::{After, keep_bare};
use crate::support::case::Waits;
use crate::support::dropped::{End, LONG, poll_then_drop, poll_until};
use crate::support::engine::{Activity, BoxFuture, Engine, Source};
use crate::support::watch::{HOUR, Held, Watch};

const NAME: &str = "workers";

fn workers() -> Semaphore {
    Semaphore::new(NAME, 1)
}

/// Polls after which an acquisition is dropped that waits.
const POLLS: usize = 8;

/// Another session has locked the slots. The thread that drops the future does not wait for it as long as the application
/// has statements wait.
pub(crate) async fn drop_does_not_wait<E: Engine>() {
    let database = E::new();
    let watch = Watch::new(&database);
    let registered = watch.with(|conn| conn.register_semaphores([workers()]));
    registered.await.expect("registered");
    let connections = database.connections(Source::Bare).await;
    for polls in 1..=POLLS {
        let place = format!("dropped after {polls} polls");
        let mut conn = connections.take().await;
        let set = conn.batch_execute(E::WAIT_FOR_A_MINUTE).await;
        set.expect(E::WAIT_FOR_A_MINUTE);
        let session = E::session(&mut conn).await;
        let waits = Waits::InStatement.ask(&watch, session);
        let other = Watch::new(&database);
        other.with(|conn| E::sql(conn, E::LOCK_SLOTS)).await;
        let lease = LeaseOptions::new(HOUR);
        let semaphore = workers();
        let acquired = Box::pin(conn.acquire_slot(&semaphore, lease, Wait::Forever));
        let (end, dropped) = poll_then_drop(acquired, polls, &waits).await;
        let time = dropped.elapsed();
        assert!(
            matches!(end, End::Dropped | End::DroppedWaiting),
            "{place}: {end:?}"
        );
        assert!(time < LONG, "{place}: the drop took {time:?}");
        // The session ends, and with it the lock.
        drop(other);
        let after = After {
            watch: &watch,
            session,
            place: &place,
        };
        after.until_quiet().await;
        after.until_free(&Held::Slot(NAME)).await;
    }
}

/// Another session locks the slots when a transaction has begun that adds some, and the future is dropped. So what is sent to
/// end the transaction waits, and cancel requests meet it. The session ends nevertheless, before the other one does.
pub(crate) async fn clean_up_is_cancelled<E: Engine>() {
    // There is one writer, and no cancel requests.
    if E::ONE_WRITER {
        return;
    }
    let database = E::new();
    let watch = Watch::new(&database);
    let registered = watch.with(|conn| conn.register_semaphores([Semaphore::new("others", 1)]));
    registered.await.expect("registered");
    let mut rounds = 0;
    while !clean_up_is_met(&database, &watch).await {
        rounds += 1;
        assert!(rounds < 20, "the statement was answered each time");
    }
}

/// Returns false if, on a busy machine, the refusal of the statement came within the poll that has sent it.
async fn clean_up_is_met<E: Engine>(database: &E, watch: &Watch<E>) -> bool {
    let connections = database.connections(Source::Bare).await;
    let mut conn = connections.take().await;
    let session = E::session(&mut conn).await;
    let mut other = Some(Watch::new(database));
    let locker = Arc::<Mutex<Option<Watch<E>>>>::default();
    let locks = Arc::clone(&locker);
    let goes_on = Arc::new(AtomicBool::new(false));
    let has_gone_on = Arc::clone(&goes_on);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if locks_fences(&event)
            && let Some(other) = other.take()
        {
            other.blocking(|conn| E::sql(conn, E::LOCK_SLOTS));
            *locks.lock().expect("no panic") = Some(other);
        } else if let InstrumentationEvent::StartQuery { .. } = event
            && other.is_none()
        {
            goes_on.store(true, Ordering::SeqCst);
        }
    });
    let (semaphore, lease) = (workers(), LeaseOptions::new(HOUR));
    let acquired = conn.acquire_slot(&semaphore, lease, Wait::Forever);
    let is_answered = Cell::new(false);
    let is_locked = || {
        // Before the drop, which sends statements.
        is_answered.set(has_gone_on.load(Ordering::SeqCst));
        locker.lock().expect("no panic").is_some()
    };
    let ended = poll_until(acquired, is_locked).await;
    assert!(ended.is_none(), "{ended:?}");
    if is_answered.get() {
        return false;
    }
    let dropped = Instant::now();
    loop {
        let activity = watch.activity(session).await;
        if activity == Some(Activity::Gone) {
            break;
        }
        let time = dropped.elapsed();
        assert!(
            time < LONG,
            "session {session:?} is left after {time:?}: {activity:?}"
        );
        sleep(Duration::from_millis(1)).await;
    }
    // The other session ends.
    *locker.lock().expect("no panic") = None;
    let after = After {
        watch,
        session,
        place: "a clean-up that was cancelled",
    };
    after.until_free(&Held::Slot(NAME)).await;
    true
}

/// Whether this is the statement with which a transaction begins that adds slots.
fn locks_fences(event: &InstrumentationEvent<'_>) -> bool {
    let InstrumentationEvent::StartQuery { query, .. } = event else {
        return false;
    };
    let text = query.to_string();
    text.contains("diesel_locks_fences") && text.contains("SKIP LOCKED")
}

/// A panic of the connection's instrumentation has the effect of a drop. The slot is released that nobody has got.
pub(crate) async fn instrumentation_panics<E: Engine>() {
    // On SQLite it is another thread that panics, and diesel-async returns an error.
    if E::ONE_WRITER {
        return;
    }
    let database = E::new();
    let watch = Watch::new(&database);
    let never = || -> BoxFuture<'static, bool> { Box::pin(async { false }) };
    for source in Source::ALL {
        let connections = database.connections(source).await;
        let mut is_last = false;
        for last in 1.. {
            let place = format!("{source:?}, a panic at event {last}");
            let mut conn = connections.take().await;
            let session = E::session(&mut conn).await;
            let events = AtomicUsize::new(0);
            conn.set_instrumentation(move |_: InstrumentationEvent<'_>| {
                assert!(
                    events.fetch_add(1, Ordering::SeqCst) + 1 != last,
                    "as planned"
                );
            });
            let (semaphore, lease) = (workers(), LeaseOptions::new(HOUR));
            let acquired = Box::pin(conn.try_acquire_slot(&semaphore, lease));
            let (end, _) = poll_then_drop(acquired, usize::MAX, &never).await;
            match end {
                End::Panicked => {}
                End::Ready(Ok(Some(slot))) => {
                    is_last = true;
                    let released = watch.with(|conn| conn.release_slot(slot)).await;
                    released.expect("its own slot");
                    conn.set_instrumentation(|_: InstrumentationEvent<'_>| {});
                }
                end => panic!("{place}: {end:?}"),
            }
            let bare = keep_bare::<E>(source, conn);
            let after = After {
                watch: &watch,
                session,
                place: &place,
            };
            after.until_quiet().await;
            after.until_free(&Held::Slot(NAME)).await;
            if let Some(bare) = bare {
                after.check_bare(bare, Some(is_last)).await;
            }
            after.check_next(&mut connections.take().await).await;
            if is_last {
                break;
            }
        }
    }
}
