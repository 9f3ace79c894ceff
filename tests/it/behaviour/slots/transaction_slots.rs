//! Slots of a transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt};

use super::{acquire, is_full, single_slot, slots_of};
use crate::behaviour::exclusion::begin_for_locks;
use crate::subprocess::Subprocess;
use crate::support::Backend;
use crate::support::threads::{result_of, spawn};

fn tried<B: Backend>(conn: &mut B::Conn, semaphore: &Semaphore) -> bool {
    conn.try_with_slot(semaphore, |_| Ok::<_, Error>(()))
        .expect("an answer")
        .is_some()
}

pub(crate) fn a_slot_is_held_as_long_as_its_transaction<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    for end in 0..3 {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            conn.try_with_slot(&single_slot(), |conn| {
                assert!(!tried::<B>(&mut other, &single_slot()), "accept it");
                if !B::ONE_WRITER {
                    assert!(is_full::<B>(&mut other, &single_slot()), "leases count too");
                }
                B::count_up(conn, 0);
                match end {
                    0 => Ok("done"),
                    1 => Err(Error::from(diesel::result::Error::RollbackTransaction)),
                    _ => panic!("on purpose"),
                }
            })
        }));
        match end {
            0 => assert_eq!(outcome.expect("no panic").expect("commit"), Some("done")),
            1 => assert!(outcome.expect("no panic").is_err()),
            _ => assert!(outcome.is_err(), "the panic goes on"),
        }
        assert_eq!(B::counter(&mut other, 0), 1, "only the first was committed");
        assert!(
            tried::<B>(&mut other, &single_slot()),
            "free after end {end}"
        );
    }
    assert!(
        other
            .held_slots(&slots_of(single_slot()))
            .expect("rows")
            .is_empty()
    );
}

pub(crate) fn a_slot_is_free_when_its_holder_is_killed<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let process = Subprocess::holding_slot::<B>(&database.url(), "one");
    assert!(!tried::<B>(&mut conn, &single_slot()));
    process.kill();
    conn.with_slot(
        &single_slot(),
        Wait::AtMost(Duration::from_secs(20)),
        |conn| {
            assert_eq!(B::counter(conn, 9), 0, "undone");
            Ok::<_, Error>(())
        },
    )
    .expect("it comes free");
    begin_for_locks::<B>(&mut conn);
    assert!(tried::<B>(&mut conn, &single_slot()));
    if !B::ONE_WRITER {
        assert!(
            !tried::<B>(&mut database.connect(), &single_slot()),
            "held until the outer one ends"
        );
    }
    drop(conn);
    let mut other = database.connect();
    other
        .with_slot(
            &single_slot(),
            Wait::AtMost(Duration::from_secs(20)),
            |_| Ok::<_, Error>(()),
        )
        .expect("the connection is gone");
}

pub(crate) fn leases_and_slots_of_transactions_count_together<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let two = Semaphore::new("two", 2);
    let leased = acquire::<B>(&mut other, &two);
    conn.try_with_slot(&two, |_| {
        assert!(!tried::<B>(&mut other, &two));
        if !B::ONE_WRITER {
            assert!(is_full::<B>(&mut other, &two));
        }
        Ok::<_, Error>(())
    })
    .expect("an answer")
    .expect("the second slot");
    let another = acquire::<B>(&mut other, &two);
    assert!(!tried::<B>(&mut conn, &two));
    for slot in [leased, another] {
        other.release_slot(slot).expect("ours");
    }
    assert!(tried::<B>(&mut conn, &two));
}

pub(crate) fn waiter_gets_the_slot_when_a_transaction_ends<B: Backend>() {
    let database = Arc::new(B::new());
    let (held, is_held) = channel();
    let (release, released) = channel::<()>();
    let holder = {
        let database = Arc::clone(&database);
        spawn(move || {
            database.connect().with_slot(&single_slot(), Wait::No, |_| {
                held.send(()).expect("the test waits");
                released.recv().expect("the test says when");
                Ok::<_, Error>(())
            })
        })
    };
    is_held.recv().expect("free");
    let mut conn = database.connect();
    let wait = Wait::AtMost(Duration::from_millis(200));
    let error = conn
        .with_slot(&single_slot(), wait, |_| Ok::<_, Error>(()))
        .expect_err("held");
    assert!(error.is_timeout(), "{error:?}");
    let error = conn
        .with_slot(&single_slot(), Wait::No, |_| Ok::<_, Error>(()))
        .expect_err("held");
    assert!(error.is_unavailable(), "{error:?}");
    let waiter = {
        let database = Arc::clone(&database);
        spawn(move || {
            database
                .connect()
                .with_slot(&single_slot(), Wait::Forever, |_| Ok::<_, Error>(()))
        })
    };
    release.send(()).expect("it waits");
    result_of(&holder).expect("commit");
    result_of(&waiter).expect("it comes free");
}

pub(crate) fn a_slot_of_a_savepoint_is_held_by_the_transaction<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    conn.register_semaphores([single_slot()]).expect("register");
    B::in_transaction(&mut conn, |conn| {
        let done = conn.try_with_slot(&single_slot(), |conn| {
            B::count_up(conn, 0);
            Ok::<_, Error>(())
        })?;
        assert_eq!(done, Some(()));
        assert!(!tried::<B>(&mut other, &single_slot()));
        Ok(())
    })
    .expect("commit");
    assert_eq!(B::counter(&mut other, 0), 1);
    assert!(tried::<B>(&mut other, &single_slot()));
}
