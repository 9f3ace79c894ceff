//! What an operator sees of object locks.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diesel_locks::limits::MAX_LISTED;
use diesel_locks::prelude::*;
use diesel_locks::{Error, HeldObjectLock, InspectExt, Retention};

use crate::support::Backend;
use crate::support::threads::{Holder, LONG, begin, result_of, roll_back, spawn};

/// What is shown of one lock: its id, and how many wait.
type Shown = (Option<String>, usize);

fn shown<C: InspectExt>(conn: &mut C) -> Vec<Shown> {
    let mut shown: Vec<Shown> = held(conn)
        .iter()
        .map(|lock| (lock.id.clone(), lock.waiters.len()))
        .collect();
    shown.sort();
    shown
}

fn held<C: InspectExt>(conn: &mut C) -> Vec<HeldObjectLock> {
    conn.held_object_locks(100).expect("locks")
}

fn of(id: &str, waiters: usize) -> Shown {
    (Some(id.to_owned()), waiters)
}

/// Asks until the database shows this.
fn await_shown<C: InspectExt>(conn: &mut C, mut expected: Vec<Shown>) {
    expected.sort();
    let started = Instant::now();
    loop {
        let shown = shown(conn);
        if shown == expected {
            return;
        }
        assert!(
            started.elapsed() < LONG,
            "{shown:?} instead of {expected:?}"
        );
        pause();
    }
}

/// One test asks at a time: see [`pause`].
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// MariaDB returns its former result as long as a session asks more often than every 0.1 s.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(150));
}

pub(crate) fn each_holder_of_a_shared_lock_is_shown<B: Backend<Conn: InspectExt>>() {
    let _alone = alone();
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let holders = [(); 2].map(|()| Holder::acquire(&database, LockRequest::shared("a")));
    let waiting = waiter(&database, LockRequest::new("a"));
    // MariaDB shows one of those for which a session waits.
    let both = B::lock_view(&mut conn).all_waiters;
    await_shown(&mut conn, vec![of("a", 1); 1 + usize::from(both)]);
    let locks = held(&mut conn);
    assert!(locks.iter().all(|lock| lock.is_shared), "{locks:?}");
    assert!(!both || locks[0].holder.id != locks[1].holder.id);
    for holder in holders {
        holder.release();
    }
    result_of(&waiting);

    let writer = Holder::acquire(&database, "a");
    let waiting = waiter(&database, LockRequest::shared("a"));
    await_shown(&mut conn, vec![of("a", 1)]);
    assert!(!held(&mut conn)[0].is_shared);
    writer.release();
    result_of(&waiting);
}

fn request(id: &str, retention: Retention) -> LockRequest {
    LockRequest::new(id).retention(retention)
}

/// A session that waits for the lock, and releases it at once.
fn waiter<B: Backend>(database: &Arc<B>, lock: LockRequest) -> Receiver<()> {
    let database = Arc::clone(database);
    spawn(move || {
        let done = database
            .connect()
            .with_object_lock(lock, |_| Ok::<_, Error>(()));
        done.expect("the lock");
    })
}

/// Makes the row of a kept lock.
fn keep<C: ObjectLockExt>(conn: &mut C, id: &str) {
    conn.with_object_lock(request(id, Retention::Kept), |_| Ok::<_, Error>(()))
        .expect("free");
}

pub(crate) fn no_locks_are_shown_when_none_is_held<B: Backend>() {
    let _alone = alone();
    let database = B::new();
    let mut conn = database.connect();
    assert_eq!(held(&mut conn), []);
    keep(&mut conn, "kept");
    conn.with_object_lock("transient", |_| Ok::<_, Error>(()))
        .expect("free");
    assert_eq!(held(&mut conn), []);
}

pub(crate) fn held_kept_lock_is_shown_with_its_waiters<B: Backend>() {
    let _alone = alone();
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    keep(&mut conn, "kept");
    let before = B::now_us(&mut conn);
    let holder = Holder::acquire(&database, request("kept", Retention::Kept));
    if B::lock_view(&mut conn).without_waiters {
        assert_eq!(shown(&mut conn), [of("kept", 0)]);
    }
    let first = waiter(&database, request("kept", Retention::Kept));
    await_shown(&mut conn, vec![of("kept", 1)]);
    let second = waiter(&database, request("kept", Retention::Kept));
    await_shown(&mut conn, vec![of("kept", 2)]);

    pause();
    let locks = held(&mut conn);
    let lock = &locks[0];
    let sessions: std::collections::BTreeSet<_> = lock
        .waiters
        .iter()
        .map(|waiter| &waiter.session)
        .chain([&lock.holder])
        .map(|session| session.id)
        .collect();
    assert_eq!(sessions.len(), 3, "{lock:?}");
    assert!(!sessions.contains(&None), "{lock:?}");
    assert!(lock.holder.user.is_some(), "{lock:?}");
    // Times are in whole seconds on MySQL.
    let slack = 2_000_000;
    let now = B::now_us(&mut conn);
    let started = lock.holder.started_at.expect("a time").timestamp_micros();
    assert!(
        (before - slack..=now).contains(&started),
        "{before} {started} {now}"
    );
    let open_for = lock.holder.open_for.expect("a time").as_micros();
    assert!(
        open_for <= u128::try_from(now - before + slack).expect("positive"),
        "{lock:?}"
    );
    for waiter in &lock.waiters {
        let since = waiter.waiting_since.expect("a time").timestamp_micros();
        assert!(
            (before - slack..=now).contains(&since),
            "{before} {since} {now}"
        );
        assert!(waiter.waited.expect("a time") < LONG, "{lock:?}");
    }
    assert!(lock.waiters[0].waited >= lock.waiters[1].waited, "{lock:?}");

    holder.release();
    result_of(&first);
    result_of(&second);
    await_shown(&mut conn, vec![]);
}

pub(crate) fn held_transient_lock_is_shown_with_its_waiters<B: Backend>() {
    let _alone = alone();
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let view = B::lock_view(&mut conn);
    let holder = Holder::acquire(&database, "transient");
    if view.without_waiters {
        let id = view.transient_ids.then(|| "transient".to_owned());
        assert_eq!(shown(&mut conn), [(id, 0)]);
    }
    let first = waiter(&database, "transient".into());
    await_shown(&mut conn, vec![of("transient", 1)]);
    let second = waiter(&database, "transient".into());
    database.await_waiting(2);
    await_shown(
        &mut conn,
        vec![of("transient", if view.all_waiters { 2 } else { 1 })],
    );
    let in_transaction = {
        let database = Arc::clone(&database);
        spawn(move || {
            B::in_transaction(&mut database.connect(), |conn| {
                conn.lock_object("transient")
            })
        })
    };
    database.await_waiting(3);
    pause();
    let locks = held(&mut conn);
    let holders: std::collections::BTreeSet<_> = locks.iter().map(|lock| lock.holder.id).collect();
    assert_eq!(holders.len(), 1, "{locks:?}");
    holder.release();
    for receiver in [first, second] {
        result_of(&receiver);
    }
    result_of(&in_transaction).expect("the lock");
    await_shown(&mut conn, vec![]);
}

/// Ids that a server might take for something else, as kept and as transient locks, each with a waiter.
pub(crate) fn ids_are_shown_as_they_are<B: Backend>() {
    let _alone = alone();
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let longest = "🔒".repeat(255);
    let kept = [
        "<script>alert(1)</script>",
        "'; DROP TABLE diesel_locks_objects; --",
        "a\u{1}\n\t\\",
        &longest,
    ];
    let transient = [
        "supremum pseudo-record",
        "0x61",
        "é漢🔒",
        "'%_\"`$1?",
        "a, 'b'",
    ];
    let mut holders = Vec::new();
    let mut waiters = Vec::new();
    let mut expected = Vec::new();
    for (ids, retention) in [
        (&kept[..], Retention::Kept),
        (&transient[..], Retention::Transient),
    ] {
        for id in ids {
            if retention == Retention::Kept {
                keep(&mut conn, id);
            }
            holders.push(Holder::acquire(&database, request(id, retention)));
            waiters.push(waiter(&database, request(id, retention)));
            expected.push(of(id, 1));
        }
    }
    await_shown(&mut conn, expected);
    let limited = conn.held_object_locks(3).expect("locks");
    assert_eq!(limited.len(), 3);
    assert!(
        limited.iter().all(|lock| lock.waiters.len() == 1),
        "{limited:?}"
    );
    for holder in holders {
        holder.release();
    }
    for waiter in waiters {
        result_of(&waiter);
    }
}

pub(crate) fn locks_of_another_database_are_not_shown<B: Backend>() {
    let _alone = alone();
    let (one, other) = (Arc::new(B::new()), Arc::new(B::new()));
    let mut conn = other.connect();
    for retention in [Retention::Kept, Retention::Transient] {
        keep(&mut one.connect(), "a");
        keep(&mut conn, "a");
        let holder = Holder::acquire(&one, request("a", retention));
        let waiter = waiter(&one, request("a", retention));
        await_shown(&mut one.connect(), vec![of("a", 1)]);
        assert_eq!(held(&mut conn), []);
        holder.release();
        result_of(&waiter);
    }
}

/// In an open transaction, whose locks and limits stay as they were, and in one that holds locks itself.
pub(crate) fn locks_are_shown_in_an_open_transaction<B: Backend>() {
    let _alone = alone();
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    for id in ["kept", "own"] {
        keep(&mut conn, id);
    }
    let holder = Holder::acquire(&database, request("kept", Retention::Kept));
    let waiting = waiter(&database, request("kept", Retention::Kept));
    await_shown(&mut database.connect(), vec![of("kept", 1)]);
    let before = B::session_limits(&mut conn);
    begin(&mut conn);
    assert_eq!(shown(&mut conn), [of("kept", 1)]);
    assert_eq!(B::session_limits(&mut conn), before);
    assert_eq!(B::counter(&mut conn, 0), 0, "usable");
    roll_back(&mut conn);
    let own = request("own", Retention::Kept);
    conn.with_object_lock(&own, |conn| {
        let shown = shown(conn);
        assert!(shown.contains(&of("kept", 1)), "{shown:?}");
        let view = B::lock_view(conn);
        assert_eq!(
            shown.contains(&of("own", 0)),
            view.without_waiters,
            "{shown:?}"
        );
        let free = database
            .connect()
            .try_with_object_lock(&own, |_| Ok::<_, Error>(()))?;
        assert!(free.is_none(), "still held");
        Ok::<_, Error>(())
    })
    .expect("free");
    holder.release();
    result_of(&waiting);
}

/// On a thread: one that waits fails the test. PostgreSQL does not show the ids then.
pub(crate) fn locks_are_shown_while_the_table_is_locked<B: Backend>() {
    let _alone = alone();
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    keep(&mut conn, "kept");
    let view = B::lock_view(&mut conn);
    let holders = [
        Holder::acquire(&database, request("kept", Retention::Kept)),
        Holder::acquire(&database, "transient"),
    ];
    // Waits itself for the holders, and all others for it.
    let locker = {
        let database = Arc::clone(&database);
        spawn(move || B::lock_objects_table(&mut database.connect()))
    };
    database.await_waiting(1);
    let looked = {
        let database = Arc::clone(&database);
        spawn(move || {
            let mut conn = database.connect();
            let started = Instant::now();
            let locks = held(&mut conn);
            begin(&mut conn);
            held(&mut conn);
            B::counter(&mut conn, 0);
            roll_back(&mut conn);
            (locks, started.elapsed())
        })
    };
    let (locks, took) = result_of(&looked);
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(
        locks.len(),
        if view.without_waiters { 2 } else { 0 },
        "{locks:?}"
    );
    for holder in holders {
        holder.release();
    }
    result_of(&locker);
    await_shown(&mut conn, vec![]);
}

pub(crate) fn unusable_limit_of_locks_is_refused<B: Backend>() {
    let mut conn = B::new().connect();
    for limit in [0, MAX_LISTED + 1] {
        let error = conn.held_object_locks(limit).expect_err("the limit");
        assert!(
            matches!(error, Error::InvalidLimit { requested } if requested == limit),
            "{error:?}"
        );
    }
}
