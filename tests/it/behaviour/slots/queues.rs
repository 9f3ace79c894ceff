//! Many of one process that wait for one semaphore.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use diesel::Connection;
use diesel::connection::InstrumentationEvent;
use diesel_locks::prelude::*;
use diesel_locks::{Error, LockPool};

use super::{acquire, one_hour, single_slot};
use crate::support::Backend;
use crate::support::threads::{LONG, result_of, spawn, until};
use crate::support::urls::fresh_name;

/// The first of them asks for all.
pub(crate) fn query_rate_does_not_grow_with_waiters<B: Backend>() {
    const WAITERS: u32 = 32;
    let database = Arc::new(B::new());
    let _held = acquire::<B>(&mut database.connect(), &single_slot());
    let statements = Arc::new(AtomicU32::new(0));
    let all_there = Arc::new(Barrier::new(WAITERS as usize));
    let started = Instant::now();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let mut conn = database.connect();
            let counted = Arc::clone(&statements);
            conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                if let InstrumentationEvent::StartQuery { .. } = event {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
            let all_there = Arc::clone(&all_there);
            thread::spawn(move || {
                all_there.wait();
                let wait = Wait::AtMost(Duration::from_secs(2));
                let refused = conn.acquire_slot(&single_slot(), one_hour(), wait);
                assert!(refused.is_err_and(|error| error.is_timeout()));
            })
        })
        .collect();
    for waiter in waiters {
        waiter.join().expect("no panic");
    }
    // Once as they come, once to find out what they wait for, once as their time is up; and the first of the queue every 10 to
    // 100 ms. On PostgreSQL and diesel-async a check goes with each. Alone, each waiter would ask 20 times at least.
    let in_between = u32::try_from(started.elapsed().as_millis() / 10).expect("a short test");
    let asked = statements.load(Ordering::SeqCst);
    assert!(asked <= WAITERS * 3 * 2 + in_between, "{asked} statements");
}

/// The same name in another database is another semaphore, whose waiters do not stand behind these.
pub(crate) fn waiters_of_another_database_do_not_block<B: Backend>() {
    let (full, other) = (Arc::new(B::new()), Arc::new(B::new()));
    let mut conn = full.connect();
    let held = acquire::<B>(&mut conn, &single_slot());
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let asked = Arc::new(AtomicU32::new(0));
            let mut conn = full.connect();
            let counted = Arc::clone(&asked);
            conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                if let InstrumentationEvent::FinishQuery { .. } = event {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
            let waiter = thread::spawn(move || {
                let slot = conn.acquire_slot(&single_slot(), one_hour(), Wait::Forever);
                conn.release_slot(slot.expect("a slot")).expect("ours");
            });
            let started = Instant::now();
            while asked.load(Ordering::SeqCst) == 0 {
                assert!(started.elapsed() < LONG, "it does not ask");
                thread::sleep(Duration::from_millis(1));
            }
            waiter
        })
        .collect();
    for _ in 0..3 {
        let mut conn = other.connect();
        let slot = conn.acquire_slot(&single_slot(), one_hour(), Wait::Forever);
        conn.release_slot(slot.expect("a slot")).expect("ours");
    }
    let _also_held = acquire::<B>(&mut other.connect(), &single_slot());
    conn.release_slot(held).expect("ours");
    for waiter in waiters {
        waiter.join().expect("no panic");
    }
}

/// The waiters of one database stand in the queue when a request for a slot of the other one comes.
pub(crate) fn pools_of_two_databases_do_not_delay_each_other<B: Backend>() {
    const REQUESTS: usize = 5;
    let semaphore = Semaphore::new(fresh_name(), 1);
    let (full, free) = (Arc::new(B::new()), Arc::new(B::new()));
    free.connect()
        .register_semaphores([&semaphore])
        .expect("register");
    let mut conn = full.connect();
    let held = acquire::<B>(&mut conn, &semaphore);
    let locks = LockPool::new(full.pool(2));
    let waiter = {
        let (locks, semaphore) = (locks.clone(), semaphore.clone());
        spawn(move || locks.with_slot(&semaphore, Wait::AtMost(LONG), |_| Ok::<_, Error>(())))
    };
    until(|| locks.waiting() == 1);
    let other = LockPool::new(free.pool(2));
    let limit = Wait::AtMost(Duration::from_millis(40));
    for request in 0..REQUESTS {
        let outcome = other.with_slot(&semaphore, limit, |_| Ok::<_, Error>(()));
        outcome.unwrap_or_else(|error| panic!("request {request}: {error:?}"));
    }
    conn.release_slot(held).expect("ours");
    result_of(&waiter).expect("it comes free");
}
