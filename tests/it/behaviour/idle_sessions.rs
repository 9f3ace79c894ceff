//! Neighbours that take what they can and sleep.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, Retention, Slot};

use super::exclusion::begin_for_locks;
use super::sequences::unique_name;
use super::slots::{acquire, is_full, one_hour, single_slot, slots_of};
use crate::subprocess::Subprocess;
use crate::support::Backend;
use crate::support::threads::{LONG, result_of, spawn};

/// How long the others are ready to wait.
const LIMIT: Duration = Duration::from_millis(200);

/// On a machine that does other things besides. This is about waits that have no end.
const AMPLE: Duration = Duration::from_secs(10);

/// How many sessions work beside the idle one.
const OTHERS: usize = 50;

/// Asserts that the wait ends with a time-out, at its limit.
fn assert_times_out<T: std::fmt::Debug>(wait: impl FnOnce(Wait) -> Result<T, Error>) {
    let started = Instant::now();
    let error = wait(Wait::AtMost(LIMIT)).expect_err("the holder sleeps");
    let took = started.elapsed();
    assert!(matches!(error, Error::LockTimeout { .. }), "{error:?}");
    assert!(took >= LIMIT, "{took:?} is too early");
    assert!(took <= LIMIT + AMPLE, "{took:?} is too late");
}

fn lock_ends_in_time<B: Backend>(conn: &mut B::Conn, id: &str) {
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = |wait| LockRequest::new(id).wait(wait).retention(retention);
        assert_times_out(|wait| conn.with_object_lock(lock(wait), |_| Ok::<_, Error>(())));
        assert_times_out(|wait| B::in_transaction(conn, |conn| conn.lock_object(lock(wait))));
    }
}

/// A transaction that has an object, a slot and a sequence, and sleeps; returns when it has them.
fn sleeper<B: Backend>(
    database: &Arc<B>,
    retention: Retention,
    theirs: &Sequence,
) -> (Sender<()>, Receiver<Result<(), Error>>) {
    let (has, it_has) = channel();
    let (wake, woken) = channel();
    let (database, theirs) = (Arc::clone(database), theirs.clone());
    let sleeps = spawn(move || {
        B::in_transaction(&mut database.connect(), |conn| {
            conn.lock_object(LockRequest::new("theirs").retention(retention))?;
            conn.with_slot(&single_slot(), Wait::No, |conn| {
                conn.next_number(&theirs)?;
                has.send(()).expect("the test waits for it");
                // Also when the test has failed.
                let _ = woken.recv();
                Ok(())
            })
        })
    });
    it_has.recv_timeout(LONG).expect("all is free");
    (wake, sleeps)
}

/// A waiter for what the idle session holds waits as long as its request says, and no other session is delayed. With
/// one writer, all writers wait.
pub(crate) fn idle_transaction_does_not_block_others<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let others = Semaphore::new("others", 3);
    conn.register_semaphores([&single_slot(), &others])
        .expect("register");
    let (theirs, ours) = (Sequence::new(unique_name("theirs")), unique_name("ours"));
    for n in 0..OTHERS / 2 {
        let drawn = conn.run_transaction(TransactionOptions::new(), |conn| {
            conn.next_number(&Sequence::new(&ours).for_key(n))
        });
        assert_eq!(drawn.expect("new"), 1);
    }
    for retention in [Retention::Transient, Retention::Kept] {
        let (wake, sleeps) = sleeper(&database, retention, &theirs);
        lock_ends_in_time::<B>(&mut conn, "theirs");
        assert_times_out(|wait| conn.with_slot(&single_slot(), wait, |_| Ok::<_, Error>(())));
        if B::ONE_WRITER {
            lock_ends_in_time::<B>(&mut conn, "another");
            let nothing = conn
                .held_slots(&slots_of(&others))
                .expect("who only reads goes on");
            assert!(nothing.is_empty());
        } else {
            let others = others.clone();
            let name = ours.clone();
            // On a thread, because a session that waits for the idle one would otherwise block this test.
            let resume = spawn(move || {
                assert_times_out(|wait| conn.acquire_slot(&single_slot(), one_hour(), wait));
                for n in 0..OTHERS {
                    let kind = [Retention::Transient, Retention::Kept][n % 2];
                    let lock = LockRequest::new(ObjectId::new("ours", n)).retention(kind);
                    conn.with_object_lock(lock.wait(Wait::No), |conn| {
                        // Some of them are new.
                        conn.next_number(&Sequence::new(&name).for_key(n)).map(drop)
                    })
                    .expect("free");
                    let mut slot = acquire::<B>(&mut conn, &others);
                    conn.renew_slot(&mut slot, LONG).expect("ours");
                    conn.release_slot(slot).expect("ours");
                    conn.with_slot(&others, Wait::No, |_| Ok::<_, Error>(()))
                        .expect("free");
                }
                conn
            });
            conn = result_of(&resume);
        }
        wake.send(()).expect("it sleeps");
        result_of(&sleeps).expect("commit");
        conn.with_object_lock("theirs", |_| Ok::<_, Error>(()))
            .expect("free again");
    }
    assert_eq!(conn.last_number(&theirs).expect("rows"), Some(2));
}

/// One that has leased all slots of a semaphore and does not work.
pub(crate) fn holder_of_all_slots_does_not_block_other_semaphores<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let four = Semaphore::new("four", 4);
    let mut similar = database.connect();
    let slots: Vec<Slot> = (0..4).map(|_| acquire::<B>(&mut similar, &four)).collect();
    assert_times_out(|wait| conn.acquire_slot(&four, one_hour(), wait));
    assert_times_out(|wait| conn.with_slot(&four, wait, |_| Ok::<_, Error>(())));
    for n in 0..OTHERS {
        let other = Semaphore::new(format!("other {n}"), 1);
        let slot = acquire::<B>(&mut conn, &other);
        assert!(is_full::<B>(&mut similar, &other));
        conn.release_slot(slot).expect("ours");
    }
    assert_eq!(conn.force_release_all(&four).expect("the hammer"), 4);
    conn.with_slot(&four, Wait::No, |_| Ok::<_, Error>(()))
        .expect("free");
    for slot in slots {
        let error = similar.release_slot(slot).expect_err("taken away");
        assert!(error.is_slot_lost(), "{error:?}");
    }
}

/// A process that is stopped keeps its transaction, as the server does not know; killed, it does not. (What
/// becomes of its lease: `paused_process_notices_the_lost_lease`.)
pub(crate) fn a_stopped_process_keeps_its_lock_until_it_is_killed<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for retention in [Retention::Transient, Retention::Kept] {
        let process = Subprocess::holding_lock::<B>(&database.url(), "theirs", retention);
        process.stop();
        lock_ends_in_time::<B>(&mut conn, "theirs");
        let tried = conn.try_with_object_lock("another", |_| Ok::<_, Error>(()));
        assert_eq!(tried.expect("an answer").is_none(), B::ONE_WRITER);
        process.kill();
        let lock = LockRequest::new("theirs").wait(Wait::AtMost(LONG));
        conn.with_object_lock(lock, |_| Ok::<_, Error>(()))
            .expect("free");
    }
}

/// The server ends a transaction that sleeps for longer than its session's limit, which `limit` sets to at most a
/// second, inside the transaction too.
pub(crate) fn server_timeout_ends_an_idle_transaction<B: Backend>(limit: &str) {
    let database = B::new();
    let mut similar = database.connect();
    begin_for_locks::<B>(&mut similar);
    similar.lock_object("theirs").expect("free");
    // From here on it is idle. Set before, the limit would count while this test only waits for its turn.
    B::sql(&mut similar, limit);
    let lock = LockRequest::new("theirs").wait(Wait::AtMost(LONG));
    database
        .connect()
        .with_object_lock(lock, |_| Ok::<_, Error>(()))
        .expect("the server ends it");
    let error = similar.lock_object("theirs").expect_err("it is gone");
    assert!(matches!(error, Error::Database(_)), "{error:?}");
}

/// Waits until the server has ended a session that is idle for longer than its limit.
fn await_end_of_idle_session<B: Backend>(database: &B, limit: &str, own_session: &str, find: &str) {
    let mut idle = database.connect();
    B::sql(&mut idle, limit);
    let session = B::number(&mut idle, own_session);
    let mut observer = database.connect();
    let sessions = format!("{find} {session}");
    let started = Instant::now();
    while B::number(&mut observer, &sessions) > 0 {
        assert!(started.elapsed() < LONG, "the server does not end it");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waiters that sleep in the queue of their process use their connections often enough for a server that ends sessions
/// which are idle for 12 s, as `limit` sets. `own_session` queries the number of a session, and `find` counts the sessions
/// with a number.
pub(crate) fn waiters_in_a_queue_outlast_the_limit_of_idle_sessions<B: Backend>(
    limit: &'static str,
    own_session: &str,
    find: &str,
) {
    let database = Arc::new(B::new());
    let mut holder = database.connect();
    let held = acquire::<B>(&mut holder, &single_slot());
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let mut conn = database.connect();
            B::sql(&mut conn, limit);
            spawn(move || {
                let slot = conn.acquire_slot(&single_slot(), one_hour(), Wait::Forever)?;
                conn.release_slot(slot).map(drop)
            })
        })
        .collect();
    // Twice, as the waiters may have begun to sleep later than the first of these sessions.
    for _ in 0..2 {
        await_end_of_idle_session(&*database, limit, own_session, find);
    }
    holder.release_slot(held).expect("ours");
    for waiter in waiters {
        result_of(&waiter).expect("each of them is granted the slot");
    }
}
