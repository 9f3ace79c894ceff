//! Waits of a renewer that are stopped, and renewal beside requests that wait.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, SlotRenewer, StopToken};

use super::guards::{guarded, renewer};
use super::{one_hour, single_slot, slots_of};
use crate::support::Backend;
use crate::support::threads::{Holder, LONG, result_of, spawn};

pub(crate) fn stop_ends_the_waits_of_a_renewer<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2);
    let guard = guarded::<B>(&renewer, &single_slot(), &one_hour());
    let stop = StopToken::new();
    let stoppable = renewer.stopped_by(&stop);
    let waiters = [(); 3].map(|()| {
        let renewer = stoppable.clone();
        spawn(move || renewer.acquire(&single_slot(), one_hour(), Wait::Forever))
    });
    stop.stop();
    for waiter in &waiters {
        let error = result_of(waiter).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
        assert!(error.to_string().contains("\"one\" (1 permit)"), "{error}");
    }
    assert!(guard.is_held(), "guards are not affected");
    guard.release().expect("ours");
    let error = stoppable.try_acquire(&single_slot(), one_hour());
    assert!(matches!(error, Err(Error::Stopped { .. })), "{error:?}");
    let error = stoppable.try_run(&single_slot(), one_hour(), |_| Ok::<_, Error>(()));
    assert!(matches!(error, Err(Error::Stopped { .. })), "{error:?}");
    let held = database
        .connect()
        .held_slots(&slots_of(single_slot()))
        .expect("rows");
    assert_eq!(held, []);
    // The renewer itself is not stopped.
    guarded::<B>(&renewer, &single_slot(), &one_hour())
        .release()
        .expect("ours");
}

pub(crate) fn stop_ends_the_wait_of_a_renewer_for_a_connection<B: Backend>() {
    let database = B::new();
    let pool = database.pool(1);
    let borrowed = pool.get().expect("a connection");
    let stop = StopToken::new();
    let renewer = SlotRenewer::new(pool).stopped_by(&stop);
    let waiters = [true, false].map(|waits| {
        let renewer = renewer.clone();
        spawn(move || {
            if waits {
                renewer
                    .acquire(&single_slot(), one_hour(), Wait::Forever)
                    .map(Some)
            } else {
                renewer.try_acquire(&single_slot(), one_hour())
            }
        })
    });
    stop.stop();
    for waiter in &waiters {
        let error = result_of(waiter).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error:?}");
    }
    drop(borrowed);
}

/// The slot is released at the moment of the stop: either the caller gets a guard, or the slot is free.
pub(crate) fn nothing_is_held_for_a_stopped_caller<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    for _ in 0..30 {
        let guard = guarded::<B>(&renewer, &single_slot(), &one_hour());
        let stop = StopToken::new();
        let stoppable = renewer.stopped_by(&stop);
        let waiter = spawn(move || stoppable.acquire(&single_slot(), one_hour(), Wait::Forever));
        let together = Arc::new(Barrier::new(2));
        let other = Arc::clone(&together);
        let release = spawn(move || {
            other.wait();
            guard.release()
        });
        together.wait();
        stop.stop();
        result_of(&release).expect("ours");
        match result_of(&waiter) {
            Ok(guard) => {
                guard.release().expect("ours");
            }
            Err(Error::Stopped { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(conn.held_slots(&slots_of(single_slot())).expect("rows"), []);
    }
}

/// The length of a lease, which is to be renewed for half as long.
const LEASE: Duration = Duration::from_secs(9);

pub(crate) fn guard_lives_while_all_connections_of_the_application_wait<B: Backend>() {
    const ID: &str = "Account:4711";
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let pool = database.pool(4);
    let renewer = renewer::<B>(&database, 2);
    let guard = guarded::<B>(&renewer, &single_slot(), &LeaseOptions::new(LEASE));
    // On SQLite a lock excludes all writers. There the connections are in use for something else.
    let holder = (!B::ONE_WRITER).then(|| Holder::acquire(&database, ID));
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let waiters = [(); 4].map(|()| {
        let (pool, released) = (pool.clone(), Arc::clone(&released));
        spawn(move || {
            let mut conn = pool.get().expect("a connection");
            if B::ONE_WRITER {
                let _ = released.lock().expect("no panic").recv();
                return Ok(());
            }
            conn.with_object_lock(ID, |_| Ok::<_, Error>(()))
        })
    });
    let started = Instant::now();
    loop {
        assert!(guard.is_held(), "lost");
        assert!(started.elapsed() < LONG, "not renewed");
        let held = conn.held_slots(&slots_of(single_slot())).expect("rows");
        let held = held.first().expect("held");
        let all_wait = pool.state().connections == 4 && pool.state().idle_connections == 0;
        if held.expires_at - held.acquired_at > chrono_of(LEASE * 3 / 2) && all_wait {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(holder) = holder {
        holder.release();
    }
    drop(release);
    for waiter in &waiters {
        result_of(waiter).expect("the lock");
    }
    guard.release().expect("ours");
}

fn chrono_of(duration: Duration) -> chrono::TimeDelta {
    chrono::TimeDelta::from_std(duration).expect("short")
}
