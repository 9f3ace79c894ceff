//! What an application finds in its session after our statements.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent};
use diesel::r2d2::R2D2Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, Retention};

use super::sequences::unique_name;
use super::slots::{acquire, one_hour, single_slot, slots_of};
use crate::support::Backend;
use crate::support::threads::{Holder, LONG, begin, commit, result_of, spawn};

/// The id that the application's own INSERT has just drawn.
const OWN_ID: i64 = 123_456;

/// Inserts a row, calls `work`, and reads the row's id as the application does.
fn keeps_id<B: Backend, T: std::fmt::Debug>(
    conn: &mut B::Conn,
    call: &str,
    work: impl FnOnce(&mut B::Conn) -> T,
) -> T {
    B::sql(conn, "DELETE FROM own_ids");
    B::sql(conn, "INSERT INTO own_ids (n) VALUES (1)");
    let own = B::number(conn, "SELECT id FROM own_ids");
    assert!(own >= OWN_ID);
    let result = work(conn);
    let last = B::number(conn, &format!("SELECT {}", B::LAST_INSERTED_ID));
    assert_eq!(last, own, "after {call}, which returned {result:?}");
    result
}

/// Sequences that are new, known and at their end.
pub(crate) fn drawing_a_number_keeps_the_last_inserted_id<B: Backend>() {
    let database = B::new();
    B::sql(&mut database.connect(), &B::own_ids(OWN_ID));
    // The statement of a connection's first draw differs from that of the others.
    for _ in 0..2 {
        let mut conn = database.connect();
        let sequence = Sequence::new(unique_name("invoice"));
        let end = Sequence::new(unique_name("end")).start_with(i64::MAX);
        begin(&mut conn);
        for expected in 1..=3 {
            let number =
                keeps_id::<B, _>(&mut conn, "next_number", |conn| conn.next_number(&sequence));
            assert_eq!(number.expect("free"), expected);
        }
        let numbers = keeps_id::<B, _>(&mut conn, "next_numbers", |conn| {
            conn.next_numbers(&sequence, 10)
        });
        assert_eq!(numbers.expect("free"), 4..=13);
        conn.next_number(&end).expect("the last number");
        let error = keeps_id::<B, _>(&mut conn, "a draw of nothing", |conn| {
            conn.next_number(&end)
        });
        let error = error.expect_err("none left");
        assert!(
            matches!(error, Error::SequenceExhausted { .. }),
            "{error:?}"
        );
        commit(&mut conn);
        keeps_id::<B, _>(&mut conn, "last_number", |conn| conn.last_number(&sequence))
            .expect("rows");
    }
}

/// New, known, tried, waited for, several.
pub(crate) fn locking_an_object_keeps_the_last_inserted_id<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    B::sql(&mut conn, &B::own_ids(OWN_ID));
    let waits = [
        Wait::Forever,
        Wait::AtMost(Duration::from_millis(500)),
        Wait::No,
    ];
    for (n, wait) in waits.into_iter().enumerate() {
        for retention in [Retention::Transient, Retention::Kept] {
            let known = LockRequest::new(format!("known {n}"))
                .retention(retention)
                .wait(wait);
            // `lastval()` on PostgreSQL: the documentation says so.
            if retention == Retention::Transient || !B::NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID {
                keeps_id::<B, _>(&mut conn, "a new lock", |conn| {
                    conn.with_object_lock(&known, |_| Ok::<_, Error>(()))
                })
                .expect("free");
            }
            conn.with_object_lock(&known, |_| Ok::<_, Error>(()))
                .expect("free");
            keeps_id::<B, _>(&mut conn, "with_object_lock", |conn| {
                conn.with_object_lock(&known, |_| Ok::<_, Error>(()))
            })
            .expect("free");
            B::in_transaction(&mut conn, |conn| {
                keeps_id::<B, _>(conn, "lock_object", |conn| conn.lock_object(&known))?;
                let tried = keeps_id::<B, _>(conn, "try_lock_object", |conn| {
                    conn.try_lock_object(known.clone().wait(Wait::No))
                });
                assert!(tried?.is_acquired());
                Ok(())
            })
            .expect("free");
        }
    }
    keeps_id::<B, _>(&mut conn, "purge_object_locks", |conn| {
        conn.purge_object_locks()
    })
    .expect("removed");
}

/// The rows of a semaphore that is new, that has more permits, and that is purged, too.
pub(crate) fn semaphores_keep_the_last_inserted_id<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    B::sql(&mut conn, &B::own_ids(OWN_ID));
    keeps_id::<B, _>(&mut conn, "register_semaphores", |conn| {
        conn.register_semaphores([&Semaphore::new("registered", 2)])
    })
    .expect("new");
    for permits in [1, 3] {
        let many = Semaphore::new("many", permits);
        let mut slot = keeps_id::<B, _>(&mut conn, "try_acquire_slot", |conn| {
            acquire::<B>(conn, &many)
        });
        keeps_id::<B, _>(&mut conn, "renew_slot", |conn| {
            conn.renew_slot(&mut slot, Duration::from_secs(60))
        })
        .expect("ours");
        B::in_transaction(&mut conn, |conn| {
            keeps_id::<B, _>(conn, "pin_slot", |conn| conn.pin_slot(&slot))
        })
        .expect("ours");
        keeps_id::<B, _>(&mut conn, "held_slots", |conn| {
            conn.held_slots(&slots_of(&many))
        })
        .expect("rows");
        keeps_id::<B, _>(&mut conn, "release_slot", |conn| conn.release_slot(slot)).expect("ours");
        keeps_id::<B, _>(&mut conn, "with_slot", |conn| {
            conn.with_slot(&many, Wait::No, |_| Ok::<_, Error>(()))
        })
        .expect("free");
    }
    let slot = keeps_id::<B, _>(&mut conn, "acquire_slot", |conn| {
        conn.acquire_slot(&single_slot(), one_hour(), Wait::Forever)
    })
    .expect("free");
    let held = conn.held_slots(&slots_of(single_slot())).expect("rows");
    keeps_id::<B, _>(&mut conn, "request_release", |conn| {
        conn.request_release(&held[0])
    })
    .expect("held");
    keeps_id::<B, _>(&mut conn, "set_slot_data", |conn| {
        conn.set_slot_data(&slot, "data")
    })
    .expect("held");
    keeps_id::<B, _>(&mut conn, "force_release_all", |conn| {
        conn.force_release_all(single_slot())
    })
    .expect("one");
    keeps_id::<B, _>(&mut conn, "purge_slots", |conn| {
        conn.purge_slots(Duration::ZERO)
    })
    .expect("removed");
}

/// Locks that are waited for at most so long, each at top level and in a transaction.
fn waits<B: Backend>(conn: &mut B::Conn, limit: Duration) -> Vec<Result<(), Error>> {
    let mut results = Vec::new();
    for retention in [Retention::Kept, Retention::Transient] {
        let lock = LockRequest::new("a")
            .retention(retention)
            .wait(Wait::AtMost(limit));
        results.push(conn.with_object_lock(&lock, |_| Ok(())));
        results.push(B::in_transaction(conn, |conn| conn.lock_object(&lock)));
    }
    results
}

/// Whichever statement of a lock panics, in the application's instrumentation, before it or after it: the session is
/// as before, or a pool discards the connection.
pub(crate) fn panic_restores_session_limits<B: Backend>() {
    let database = Arc::new(B::new());
    for (held, after) in [(false, false), (false, true), (true, false), (true, true)] {
        let holder = held.then(|| Holder::acquire(&database, "a"));
        let mut completed = false;
        for position in 1.. {
            let mut conn = database.connect();
            B::set_session_limits(&mut conn);
            let before = B::session(&mut conn);
            let mut left = position;
            conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                let counts = match event {
                    InstrumentationEvent::StartQuery { .. } => !after,
                    InstrumentationEvent::FinishQuery { .. } => after,
                    _ => false,
                };
                if counts {
                    left -= 1;
                    assert!(left != 0, "the instrumentation panics");
                }
            });
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                waits::<B>(&mut conn, Duration::from_millis(20));
            }));
            conn.set_instrumentation(|_: InstrumentationEvent<'_>| ());
            if !conn.is_broken() {
                let session = B::session(&mut conn);
                assert_eq!(session, before, "after {position} statements, {after}");
            }
            if panicked.is_ok() {
                completed = true;
                break;
            }
        }
        assert!(completed);
        if let Some(holder) = holder {
            holder.release();
        }
    }
}

/// Which statement of a session is to be cancelled, by whom and how often it was.
struct Aim {
    session: AtomicI64,
    /// The statement runs.
    runs: Mutex<bool>,
    /// How often it was tried.
    shots: AtomicUsize,
    hits: AtomicUsize,
    stop: AtomicBool,
}

/// A connection whose statements with this text are cancelled while they run. Later ones are not.
fn aimed_at<B: Backend>(
    database: &B,
    aim: &Arc<Aim>,
    session: &str,
    text: &'static str,
    lock: &impl Fn(&mut B::Conn) -> Result<(), Error>,
) -> B::Conn {
    let mut conn = database.connect();
    // Prepares the statements: MariaDB's client library waits for ever when PREPARE is killed.
    lock(&mut conn).expect("free");
    aim.session
        .store(B::number(&mut conn, session), Ordering::SeqCst);
    let aim = Arc::clone(aim);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| match event {
        InstrumentationEvent::StartQuery { query, .. } if query.to_string().contains(text) => {
            let before = aim.shots.load(Ordering::SeqCst);
            *aim.runs.lock().expect("no panic") = true;
            // The statement is sent while others are on their way.
            while aim.shots.load(Ordering::SeqCst) == before && !aim.runs.is_poisoned() {
                std::thread::yield_now();
            }
        }
        InstrumentationEvent::FinishQuery { error, .. } => {
            let mut runs = aim.runs.lock().expect("no panic");
            if std::mem::take(&mut *runs) && error.is_some() {
                aim.hits.fetch_add(1, Ordering::SeqCst);
            }
        }
        _ => {}
    });
    conn
}

/// Cancels statements with this text by `KILL QUERY` or `pg_cancel_backend`, twenty times. The
/// session is as before and holds nothing, or a pool discards the connection.
pub(crate) fn cancelled_statement_leaves_no_session_state<B: Backend>(
    session: &str,
    cancel: impl Fn(i64) -> String + Send + 'static,
    text: &'static str,
    settle: &str,
    lock: impl Fn(&mut B::Conn) -> Result<(), Error>,
) {
    const HITS: usize = 20;
    let database = Arc::new(B::new());
    let aim = Arc::new(Aim {
        session: AtomicI64::new(0),
        runs: Mutex::new(false),
        shots: AtomicUsize::new(0),
        hits: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
    });
    let canceller = {
        let (database, aim) = (Arc::clone(&database), Arc::clone(&aim));
        spawn(move || {
            let mut admin = database.connect();
            while !aim.stop.load(Ordering::SeqCst) {
                let runs = aim.runs.lock().expect("no panic");
                if *runs {
                    B::sql(&mut admin, &cancel(aim.session.load(Ordering::SeqCst)));
                    aim.shots.fetch_add(1, Ordering::SeqCst);
                }
                drop(runs);
                std::thread::yield_now();
            }
        })
    };
    let mut conn = aimed_at(&*database, &aim, session, text, &lock);
    let started = Instant::now();
    while aim.hits.load(Ordering::SeqCst) < HITS {
        assert!(started.elapsed() < LONG * 4, "{:?} hits", aim.hits);
        if conn.is_broken() {
            conn = aimed_at(&*database, &aim, session, text, &lock);
        }
        B::set_session_limits(&mut conn);
        let before = B::session_limits(&mut conn);
        // Also an error: the statement itself was hit, or that after it.
        let _ = lock(&mut conn);
        if conn.is_broken() {
            continue;
        }
        // The last shot may arrive late.
        let _ = B::try_number(&mut conn, settle);
        assert_eq!(B::session_limits(&mut conn), before);
        database
            .connect()
            .with_object_lock(LockRequest::new("a").wait(Wait::No), |_| Ok::<_, Error>(()))
            .expect("nothing of the lock is left");
    }
    aim.stop.store(true, Ordering::SeqCst);
    result_of(&canceller);
}

/// A lock on `a` that is waited for with a limit.
pub(crate) fn limited(retention: Retention) -> LockRequest {
    LockRequest::new("a")
        .retention(retention)
        .wait(Wait::AtMost(Duration::from_secs(5)))
}
