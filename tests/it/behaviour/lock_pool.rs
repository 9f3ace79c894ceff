//! Waiting for object locks and slots of transactions without a connection: what each of them has alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::result::DatabaseErrorKind;
use diesel_locks::prelude::*;
use diesel_locks::{
    Error, LockPool, RequestInfo, RequestSubject, RetryPolicy, SlotRenewer, StopToken,
    TransactionRequest,
};

use super::events::Collector;
use super::pool_waits::{Holder, WAIT, Waited, await_waiters, locks, waiter};
use super::slots::{one_hour, single_slot};
use crate::support::Backend;
use crate::support::runs::Runs;
use crate::support::threads::{self, LONG, LONGEST_RETRIES, result_of, spawn, until};
use crate::support::urls::fresh_name;

const ID: &str = "Account:4711";

fn request() -> LockRequest {
    LockRequest::new(ID).wait(WAIT)
}

pub(crate) fn lock_pools_and_connections_exclude_each_other<B: Backend>() {
    let database = Arc::new(B::new());
    let pools = [locks(&*database, 3), locks(&*database, 3)];
    let both = || LockRequest::all([ID, "Account:4712"]).wait(Wait::AtMost(LONG));
    let mut threads = Vec::new();
    for pool in &pools {
        for number in 0..4 {
            let pool = pool.clone();
            let request = if number % 2 == 0 { request() } else { both() };
            threads.push(spawn(move || {
                for _ in 0..10 {
                    pool.with_object_lock(&request, |conn| {
                        B::count_up(conn, 0);
                        Ok::<_, Error>(())
                    })
                    .expect("the lock");
                }
            }));
        }
    }
    let conn = Arc::clone(&database);
    threads.push(spawn(move || {
        let mut conn = conn.connect();
        for _ in 0..10 {
            conn.with_object_lock(request(), |conn| {
                B::count_up(conn, 0);
                Ok::<_, Error>(())
            })
            .expect("the lock");
        }
    }));
    for thread in &threads {
        result_of(thread);
    }
    assert_eq!(B::counter(&mut database.connect(), 0), 90);
}

/// Few connections for many waiters, whatever the size of the pool.
pub(crate) fn waiters_borrow_a_connection_for_each_object<B: Backend>() {
    const IDS: usize = 10;
    const EACH: usize = 20;
    let database = Arc::new(B::new());
    let locks = locks(&*database, 20);
    let ids: Vec<_> = (0..IDS).map(|id| format!("Account:{id}")).collect();
    let all = LockRequest::all(ids.iter().map(String::as_str));
    let holder = threads::Holder::acquire(&database, all);
    let ended = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..IDS * EACH)
        .map(|number| {
            let (locks, ended) = (locks.clone(), Arc::clone(&ended));
            let request = LockRequest::new(ids[number % IDS].as_str());
            spawn(move || {
                locks.with_object_lock(request.wait(Wait::AtMost(LONG)), |_| {
                    ended.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Error>(())
                })
            })
        })
        .collect();
    let limit = if B::ONE_WRITER { 1 } else { IDS };
    let started = Instant::now();
    let mut all_wait = None;
    // Longer than the longest pause between two attempts.
    while all_wait.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
        assert!(started.elapsed() < LONG, "{} wait", locks.waiting());
        let state = locks.pool().state();
        let borrowed = state.connections - state.idle_connections;
        if usize::try_from(borrowed).expect("few") > limit {
            // While an attempt takes longer than 1 s, the next one asks too.
            assert!(started.elapsed() > Duration::from_secs(1), "{state:?}");
            all_wait = None;
        } else if locks.waiting() == IDS * EACH {
            all_wait.get_or_insert_with(Instant::now);
        }
        std::thread::yield_now();
    }
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    holder.release();
    for waiter in &waiters {
        result_of(waiter).expect("the lock");
    }
    assert_eq!(ended.load(Ordering::SeqCst), IDS * EACH);
}

/// Each of the requests locks an object of its own: they wait for connections and not for locks.
pub(crate) fn requests_for_free_locks_leave_a_connection_to_others<B: Backend>() {
    const REQUESTS: usize = 12;
    let database = B::new();
    let locks = locks(&database, 4);
    let running = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().expect("no panic");
    let requests: Vec<_> = (0..REQUESTS)
        .map(|id| {
            let (locks, running, gate) = (locks.clone(), Arc::clone(&running), Arc::clone(&gate));
            let request = LockRequest::new(ObjectId::new("Account", id)).wait(WAIT);
            spawn(move || {
                locks.with_object_lock(request, |_| {
                    running.fetch_add(1, Ordering::SeqCst);
                    drop(gate.read().expect("no panic"));
                    Ok::<_, Error>(())
                })
            })
        })
        .collect();
    let most = if B::ONE_WRITER { 1 } else { 3 };
    until(|| running.load(Ordering::SeqCst) == most && locks.waiting() == REQUESTS - most);
    for _ in 0..50 {
        let mut conn = locks.pool().get().expect("a connection");
        assert_eq!(B::number(&mut conn, "SELECT 1"), 1);
    }
    assert_eq!(running.load(Ordering::SeqCst), most);
    drop(closed);
    for request in &requests {
        result_of(request).expect("the lock");
    }
}

/// The time is up before the first attempt.
pub(crate) fn free_lock_of_a_pool_is_acquired_however_short_the_limit<B: Backend>() {
    let database = B::new();
    let locks = LockPool::new(database.pool(2));
    let renewer = SlotRenewer::new(database.pool(2));
    let semaphore = Semaphore::new(format!("short limit on {}", B::NAME), 1);
    for limit in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(1),
    ] {
        let wait = Wait::AtMost(limit);
        let request = LockRequest::new("a").wait(wait);
        let locked = locks.with_object_lock(request, |_| Ok::<_, Error>(()));
        locked.unwrap_or_else(|error| panic!("a free object, {limit:?}: {error:?}"));
        let held = locks.with_slot(&semaphore, wait, |_| Ok::<_, Error>(()));
        held.unwrap_or_else(|error| panic!("a free slot, {limit:?}: {error:?}"));
        let guard = renewer.acquire(&semaphore, one_hour(), wait);
        let guard = guard.unwrap_or_else(|error| panic!("a free slot, {limit:?}: {error:?}"));
        guard.release().expect("ours");
    }
}

pub(crate) fn stopped_pool_tries_nothing<B: Backend>() {
    let stop = StopToken::new();
    stop.stop();
    let locks = locks(&*Waited::Slot(single_slot()).database::<B>(), 2).stopped_by(&stop);
    let tried = locks.try_with_slot(&single_slot(), |_| Ok::<_, Error>(()));
    assert!(matches!(tried, Err(Error::Stopped { .. })), "{tried:?}");
    let tried = locks.try_with_object_lock(ID, |_| Ok::<_, Error>(()));
    assert!(matches!(tried, Err(Error::Stopped { .. })), "{tried:?}");
}

/// The requests that wait stay in their queue, and the one that does not is in none.
pub(crate) fn held_object_is_not_waited_for<B: Backend>() {
    let object = Waited::Object;
    let database = object.database::<B>();
    let locks = locks(&*database, 3);
    let holder = Holder::acquire(&object, &database);
    let runs = Runs::new(1);
    let waiting = waiter::<B>(&object, &locks, WAIT, &runs);
    await_waiters(&locks, 1);
    let both = || LockRequest::all([ID, "Account:4712"]);
    for request in [LockRequest::new(ID), both(), both().wait(Wait::No)] {
        let tried = locks.try_with_object_lock(request, |_| -> Result<(), Error> { panic!() });
        assert_eq!(tried.expect("an answer"), None);
    }
    let wait = ObjectId::from(ID).at_most(Duration::from_secs(1));
    let error = locks.try_with_object_lock(wait, |_| Ok::<_, Error>(()));
    let conflicting = matches!(error, Err(Error::ConflictingWait { .. }));
    assert!(conflicting, "{error:?}");
    assert_eq!((runs.ended(), locks.waiting()), (0, 1));
    holder.release();
    result_of(&waiting).expect("the lock");
    let tried = locks.try_with_object_lock(both(), |conn| {
        B::count_up(conn, 0);
        Ok::<_, Error>(7)
    });
    assert_eq!(tried.expect("an answer"), Some(7));
    let failed = locks.try_with_object_lock(ID, |conn| {
        B::count_up(conn, 0);
        Err::<(), _>(Error::from(diesel::result::Error::NotFound))
    });
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(B::counter(&mut database.connect(), 0), 1);
}

pub(crate) fn lock_pools_and_connections_share_the_permits<B: Backend>() {
    let two = Semaphore::new("two", 2);
    let database = Waited::Slot(two.clone()).database::<B>();
    let pools = [locks(&*database, 3), locks(&*database, 3)];
    let runs = Runs::new(2);
    let mut threads = Vec::new();
    for pool in &pools {
        for _ in 0..5 {
            let (pool, runs, two) = (pool.clone(), Arc::clone(&runs), two.clone());
            threads.push(spawn(move || {
                for _ in 0..10 {
                    pool.with_slot(&two, WAIT, |_| {
                        runs.run();
                        Ok::<_, Error>(())
                    })
                    .expect("a slot");
                }
            }));
        }
    }
    let (conn, plain) = (Arc::clone(&database), Arc::clone(&runs));
    let semaphore = two.clone();
    threads.push(spawn(move || {
        let mut conn = conn.connect();
        for _ in 0..10 {
            conn.with_slot(&semaphore, WAIT, |_| {
                plain.run();
                Ok::<_, Error>(())
            })
            .expect("a slot");
        }
    }));
    let (pool, tried) = (pools[0].clone(), Arc::clone(&runs));
    let trying = spawn(move || {
        let mut granted = 0;
        for _ in 0..20 {
            let run = pool.try_with_slot(&two, |_| {
                tried.run();
                Ok::<_, Error>(())
            });
            granted += usize::from(run.expect("an answer").is_some());
        }
        granted
    });
    for thread in &threads {
        result_of(thread);
    }
    let tried = result_of(&trying);
    assert_eq!(runs.ended(), 110 + tried);
}

pub(crate) fn slot_waiter_on_a_pool_is_woken_by_a_leased_slot<B: Backend>() {
    let semaphore = Semaphore::new(fresh_name(), 1);
    let one = Waited::Slot(semaphore.clone());
    let database = one.database::<B>();
    let locks = locks(&*database, 2);
    let runs = Runs::new(1);
    let mut conn = database.connect();
    let slot = conn
        .acquire_slot(&semaphore, one_hour(), Wait::No)
        .expect("a free slot");
    let waiters = [(); 5].map(|()| waiter::<B>(&one, &locks, Wait::Forever, &runs));
    await_waiters(&locks, 5);
    assert_eq!(runs.ended(), 0);
    conn.release_slot(slot).expect("ours");
    for waiter in waiters {
        result_of(&waiter).expect("the slot");
    }
}

pub(crate) fn unusable_or_held_slot_is_not_waited_for<B: Backend>() {
    let semaphore = Semaphore::new(fresh_name(), 1);
    let one = Waited::Slot(semaphore.clone());
    let database = one.database::<B>();
    let locks = locks(&*database, 2);
    let holder = Holder::acquire(&one, &database);
    let tried = locks.try_with_slot(&semaphore, |_| Ok::<_, Error>(()));
    assert_eq!(tried.expect("an answer"), None);
    let error = locks.with_slot(&Semaphore::new("", 1), WAIT, |_| Ok::<_, Error>(()));
    assert!(matches!(error, Err(Error::InvalidName { .. })), "{error:?}");
    holder.release();
}

/// On another connection, unless COMMIT was sent. A pool without checks lends connections that are lost.
pub(crate) fn transaction_is_run_again_after_its_connection_was_lost<B: Backend>() {
    const ATTEMPTS: u32 = 3;
    if B::ONE_WRITER {
        // It has no sessions.
        return;
    }
    let retry = RetryPolicy::max_attempts(ATTEMPTS);
    for retried in [
        TransactionOptions::new().retry(retry).into(),
        request().retry(retry),
    ] {
        run_again_on_another::<B>(&retried, ATTEMPTS);
    }
}

fn run_again_on_another<B: Backend>(retried: &TransactionRequest, attempts: u32) {
    let database = B::new();
    let locks = LockPool::new(database.unchecked_pool(1));
    let cut_in = |cut: &dyn Fn(u32) -> bool, sends: bool| {
        let mut runs = 0;
        let outcome = locks.run_transaction(retried, |conn| {
            runs += 1;
            B::count_up(conn, 0);
            if cut(runs) {
                database.disconnect_sessions();
            }
            if sends {
                conn.last_number(&Sequence::new("any"))?;
            }
            Ok::<_, Error>(())
        });
        (outcome, runs)
    };
    database.disconnect_sessions();
    let (outcome, runs) = cut_in(&|_| false, true);
    outcome.expect("before BEGIN");
    assert_eq!(runs, 1);
    let (outcome, runs) = cut_in(&|run| run == 1, true);
    outcome.expect("in the closure");
    assert_eq!(runs, 2);
    let mut other = database.connect();
    assert_eq!(B::counter(&mut other, 0), 2);

    let (outcome, runs) = cut_in(&|_| true, true);
    let error = outcome.expect_err("each time");
    assert!(error.is_connection_lost(), "{error:?}");
    assert_eq!(runs, attempts);
    locks
        .run_transaction(retried, |_| Ok::<_, Error>(()))
        .expect("a connection");
    let (outcome, runs) = cut_in(&|_| true, false);
    let error = outcome.expect_err("at COMMIT");
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert_eq!(runs, 1);
    let mut other = database.connect();
    assert_eq!(B::counter(&mut other, 0), 2);

    // As after a fail-over in which the sessions stay.
    let becomes_standby = || {
        let mut conn = locks.pool().get().expect("a connection");
        for read_only in [
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET SESSION TRANSACTION READ ONLY",
        ] {
            let _ = B::try_sql(&mut conn, read_only);
        }
    };
    let write = |conn: &mut B::Conn| conn.next_number(&Sequence::new("any"));
    becomes_standby();
    let refused = locks.run_transaction(TransactionOptions::new(), write);
    assert!(
        matches!(refused, Err(Error::ReadOnly { .. })),
        "{refused:?}"
    );
    locks
        .run_transaction(TransactionOptions::new(), write)
        .expect("another connection");
    becomes_standby();
    locks
        .run_transaction(retried, write)
        .expect("another connection");
    becomes_standby();
    let refused = locks.with_object_lock(request(), write);
    assert!(
        matches!(refused, Err(Error::ReadOnly { .. })),
        "{refused:?}"
    );
    locks
        .with_object_lock(request(), write)
        .expect("another connection");
    let reads = TransactionOptions::new().retry(RetryPolicy::max_attempts(attempts));
    let read_only = locks.run_transaction(reads.read_only(), write);
    assert!(matches!(read_only, Err(Error::ReadOnly { .. })));

    // One connection can't be replaced.
    let mut runs = 0;
    let lost = database.connect().run_transaction(retried, |conn| {
        runs += 1;
        database.disconnect_sessions();
        conn.last_number(&Sequence::new("any"))?;
        Ok::<_, Error>(())
    });
    assert!(lost.is_err_and(|error| error.is_connection_lost()));
    assert_eq!(runs, 1);
}

/// As on a connection: a deadlock would be retried too.
pub(crate) fn transaction_of_a_pool_is_retried_on_request_only<B: Backend>() {
    let database = B::new();
    let locks = locks(&database, 2);
    for (options, expected) in [
        (TransactionOptions::new().into(), 1),
        (
            TransactionOptions::new()
                .retry(RetryPolicy::max_attempts(3))
                .into(),
            3,
        ),
        (request().retry(RetryPolicy::max_attempts(3)), 3),
    ] {
        let mut runs = 0;
        let outcome = locks.run_transaction(options, |conn| {
            runs += 1;
            B::count_up(conn, 0);
            Err::<(), _>(Error::Deadlock {
                source: diesel::result::Error::NotFound,
            })
        });
        assert!(outcome.is_err_and(|error| error.is_deadlock()));
        assert_eq!(runs, expected);
    }
    // Of another connection, with which the closure may have committed.
    let mut runs = 0;
    let retried = TransactionOptions::new().retry(RetryPolicy::max_attempts(3));
    let outcome = locks.run_transaction(retried, |_| {
        runs += 1;
        Err::<(), _>(diesel::result::Error::DatabaseError(
            DatabaseErrorKind::ClosedConnection,
            Box::new("it is another's".to_owned()),
        ))
    });
    assert!(outcome.is_err_and(|error| Error::from(error).is_connection_lost()));
    assert_eq!(runs, 1);
    let none = RetryPolicy::max_attempts(0);
    let stop = StopToken::new();
    stop.stop();
    for (none, any) in [
        (
            TransactionOptions::new().retry(none).into(),
            TransactionOptions::new().into(),
        ),
        (
            request().retry(none),
            request().retry(RetryPolicy::max_attempts(3)),
        ),
    ] {
        let outcome = locks.run_transaction(none, |_| Ok::<_, Error>(()));
        assert!(matches!(outcome, Err(Error::InvalidRetry { attempts: 0 })));
        let outcome = locks
            .stopped_by(&stop)
            .run_transaction(any, |_| Ok::<_, Error>(()));
        assert!(matches!(outcome, Err(Error::Stopped { .. })), "{outcome:?}");
    }
    assert_eq!(B::counter(&mut database.connect(), 0), 0);
}

/// In the queue of the objects. A retry queues again.
pub(crate) fn locked_transaction_of_a_pool_waits_without_a_connection<B: Backend>() {
    let database = Arc::new(B::new());
    let locks = locks(&*database, 1);
    let holder = threads::Holder::acquire(&database, ID);
    let waiter = {
        let locks = locks.clone();
        spawn(move || {
            let mut runs = 0;
            locks.run_transaction(request().retry(RetryPolicy::max_attempts(2)), |conn| {
                runs += 1;
                B::count_up(conn, 0);
                if runs == 1 {
                    return Err(Error::Deadlock {
                        source: diesel::result::Error::NotFound,
                    });
                }
                Ok(runs)
            })
        })
    };
    until(|| locks.waiting() == 1 && locks.pool().state().idle_connections == 1);
    holder.release();
    assert_eq!(result_of(&waiter).expect("the lock"), 2);
    assert_eq!(B::counter(&mut database.connect(), 0), 1);
    assert_eq!(locks.waiting(), 0);

    // Each attempt waits as long as the request says.
    let holder = threads::Holder::acquire(&database, ID);
    let limit = Duration::from_millis(100);
    let retry = RetryPolicy::max_attempts(3).backoff(Duration::ZERO, Duration::ZERO);
    for (retry, attempts) in [(retry, 1), (retry.retry_lock_timeouts(), 3)] {
        let started = Instant::now();
        let timed_out = locks.run_transaction(
            LockRequest::new(ID).wait(limit).retry(retry),
            |_| -> Result<(), Error> { unreachable!("it is held") },
        );
        assert!(timed_out.is_err_and(|error| error.is_timeout()));
        assert!(started.elapsed() >= limit * attempts);
    }
    holder.release();
}

/// As in a fail-over, behind another request for the lock: the wait ends without a connection, and the transaction is retried.
pub(crate) fn transaction_is_retried_behind_another_while_no_connection_is_made<B: Backend>() {
    if B::ONE_WRITER {
        // It has no sessions.
        return;
    }
    let database = Arc::new(B::new());
    let out_of_reach = Arc::new(RwLock::new(()));
    let pool = B::pool_with(&database.url(), 2, Duration::from_millis(250), {
        let out_of_reach = Arc::clone(&out_of_reach);
        move |_| drop(out_of_reach.read())
    });
    let locks = LockPool::new(pool);
    let collector = Collector::global();
    let retry = RetryPolicy::max_attempts(u32::MAX).max_elapsed(LONGEST_RETRIES);
    let (lost, is_lost) = channel();
    let (goes_on, go_on) = channel::<()>();
    let retried = {
        let (locks, database) = (locks.clone(), Arc::clone(&database));
        std::thread::spawn(move || {
            let mut runs = 0;
            let request = LockRequest::new(ID).wait(Duration::from_millis(100));
            let done = locks.run_transaction(request.retry(retry), |conn| {
                runs += 1;
                if runs == 1 {
                    lost.send(()).expect("the test waits for it");
                    go_on.recv().expect("the test says when");
                    database.disconnect_sessions();
                }
                conn.last_number(&Sequence::new("any"))
            });
            done.map(|_| runs)
        })
    };
    is_lost.recv_timeout(LONG).expect("the lock is free");
    until(|| locks.pool().state().connections == 2);
    let closed = out_of_reach.write().expect("no panic");
    let other = {
        let locks = locks.clone();
        let request = LockRequest::new(ID).wait(Wait::AtMost(LONG));
        // Its connection may be lost too.
        spawn(move || {
            while locks
                .with_object_lock(&request, |_| Ok::<_, Error>(()))
                .is_err()
            {}
        })
    };
    until(|| locks.waiting() == 1 && locks.pool().state().idle_connections == 1);
    goes_on.send(()).expect("it waits");
    // For its connection, then for that of the lock.
    let is_retried = || {
        let events = collector.events_of(retried.thread().id());
        events.matches("reason=connection lost").count() >= 2
    };
    until(|| is_retried() || retried.is_finished());
    drop(closed);
    let runs = retried.join().expect("no panic");
    assert_eq!(runs.expect("a connection in the end"), 2);
    result_of(&other);
}

/// The requests of a lock pool or a renewer, and whether they are inside.
pub(crate) fn shown(requests: Vec<RequestInfo>) -> Vec<(String, bool)> {
    let shown = |it: RequestInfo| (it.subject.to_string(), it.inside_for.is_some());
    requests.into_iter().map(shown).collect()
}

pub(crate) fn requests_are_listed_until_they_end<B: Backend>() {
    let database = Arc::new(B::new());
    let locks = locks(&*database, 8);
    let semaphore = Semaphore::new(fresh_name(), 5);
    let mut conn = database.connect();
    conn.register_semaphores([&semaphore]).expect("register");
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().expect("no panic");
    let enter = || {
        let gate = Arc::clone(&gate);
        move |_: &mut B::Conn| {
            drop(gate.read().expect("no panic"));
            Ok::<_, Error>(())
        }
    };
    let mut expected = Vec::new();
    let mut begins = |subject: &str, is_inside: bool| {
        expected.push((subject.to_owned(), is_inside));
        let started = Instant::now();
        while shown(locks.requests()) != expected {
            let is_long = started.elapsed() > LONG;
            assert!(!is_long, "{expected:?}: {:?}", locks.requests());
            std::thread::yield_now();
        }
    };

    let both = [LockRequest::shared("Folder:1"), ID.into()];
    let (pool, both, work) = (locks.clone(), LockRequest::from(both), enter());
    let holder = spawn(move || pool.with_object_lock(both.wait(WAIT), work));
    begins(
        r#"the object locks "Account:4711", "Folder:1" (shared)"#,
        true,
    );
    let pool = locks.stopped_by(&StopToken::new());
    let panics = |_: &mut B::Conn| -> Result<(), Error> { panic!("the application's") };
    let waiter = spawn(move || {
        catch_unwind(AssertUnwindSafe(|| {
            pool.with_object_lock(request(), panics)
        }))
    });
    begins(r#"the object lock "Account:4711""#, false);
    // On SQLite the holder's transaction excludes these too.
    let (pool, wanted, work) = (locks.clone(), semaphore.clone(), enter());
    let slots = spawn(move || pool.with_slots(&wanted, 2, WAIT, work));
    let of = format!("of the semaphore {:?} (5 permits)", semaphore.name());
    begins(&format!("2 slots {of}"), !B::ONE_WRITER);
    let (pool, wanted, work) = (locks.clone(), semaphore.clone(), enter());
    let slot = spawn(move || pool.with_slot(&wanted, WAIT, work));
    begins(&format!("a slot {of}"), !B::ONE_WRITER);
    let (pool, work) = (locks.clone(), enter());
    // While another writes, each attempt on SQLite fails.
    let retry = RetryPolicy::max_attempts(u32::MAX).max_elapsed(LONGEST_RETRIES);
    let retried = TransactionOptions::new().retry(retry);
    let transaction = spawn(move || pool.run_transaction(retried, work));
    begins("a transaction", !B::ONE_WRITER);

    let requests = locks.requests();
    assert_eq!(locks.waiting(), if B::ONE_WRITER { 4 } else { 1 });
    assert!(requests.is_sorted_by(|one, next| one.age >= next.age));
    assert!(requests.iter().all(|it| it.inside_for <= Some(it.age)));
    let objects = RequestSubject::Objects {
        ids: [ID.into(), "Folder:1".into()].into(),
        shared: ["Folder:1".into()].into(),
    };
    assert_eq!(requests[0].subject, objects);
    let text = requests[1].to_string();
    assert!(
        text.starts_with(r#"the object lock "Account:4711": waits, made "#),
        "{text}"
    );

    drop(closed);
    result_of(&holder).expect("the locks");
    assert!(result_of(&waiter).is_err(), "the panic of the closure");
    result_of(&slots).expect("two slots");
    result_of(&slot).expect("a slot");
    result_of(&transaction).expect("commit");
    assert_eq!(shown(locks.requests()), []);
    assert_eq!(locks.waiting(), 0);
}

/// Between two attempts it waits.
pub(crate) fn retried_transaction_is_one_request<B: Backend>() {
    let database = B::new();
    let locks = locks(&database, 2);
    let deadlock = || Error::Deadlock {
        source: diesel::result::Error::NotFound,
    };
    let options = |retry| TransactionOptions::new().retry(retry).into();
    let retried: [&dyn Fn(RetryPolicy) -> TransactionRequest; 2] =
        [&options, &|retry| request().retry(retry)];
    for retried in retried {
        let mut first: Option<Instant> = None;
        let done = locks.run_transaction(retried(RetryPolicy::max_attempts(2)), |_| {
            let since_the_first = first.map(|first| first.elapsed());
            let [request] = &*locks.requests() else {
                panic!("one request");
            };
            assert!(request.inside_for.is_some_and(|it| it < request.age));
            first.get_or_insert_with(Instant::now);
            let since_the_first = since_the_first.ok_or_else(deadlock)?;
            assert!(request.age > since_the_first, "{request}");
            Ok::<_, Error>(())
        });
        done.expect("the second attempt");

        let stop = StopToken::new();
        let runs = Arc::<AtomicUsize>::default();
        let pauses = RetryPolicy::max_attempts(1000)
            .backoff(LONG, LONG)
            .max_elapsed(LONGEST_RETRIES);
        let (pool, pauses, count) = (locks.stopped_by(&stop), retried(pauses), Arc::clone(&runs));
        let pauses = spawn(move || {
            pool.run_transaction(pauses, |_| {
                count.fetch_add(1, Ordering::SeqCst);
                Err::<(), _>(deadlock())
            })
        });
        until(|| runs.load(Ordering::SeqCst) > 0 && locks.waiting() == 1);
        stop.stop();
        let stopped = result_of(&pauses);
        assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    }
}

/// The application has returned a connection without ending the transaction that it has begun by its own SQL.
pub(crate) fn connection_with_an_untracked_transaction_is_lent_once<B: Backend>() {
    let without_lock = TransactionRequest::from(TransactionOptions::new());
    let with_lock = request().retry(RetryPolicy::max_attempts(1));
    for transaction in [without_lock, with_lock] {
        let database = B::new();
        let pool = database.pool(2);
        let locks = LockPool::new(pool.clone());
        let mut conn = pool.get().expect("a connection");
        conn.batch_execute("BEGIN").expect("BEGIN");
        B::count_up(&mut conn, 0);
        drop(conn);
        let run =
            || locks.run_transaction(&transaction, |conn| Ok::<_, Error>(B::counter(conn, 0)));
        let error = run().expect_err("the connection that was returned last");
        let is_untracked = matches!(error, Error::UntrackedTransaction { .. });
        assert!(is_untracked, "{error:?}");
        assert_eq!(run().expect("another connection"), 0);
    }
}
