//! Numbers and the transactions that draw them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, RwLock};

use diesel::connection::Connection;
use diesel_locks::prelude::*;

use super::{assert_complete, in_own_transaction, note, roll_back, unique_name};
use crate::behaviour::slots::run_concurrently;
use crate::support::Backend;
use crate::support::threads::{LONG, begin, result_of, spawn};

/// Every third rolls back, and every fifth goes through a savepoint.
pub(crate) fn numbers_have_neither_gaps_nor_repeats<B: Backend>() {
    let database = Arc::new(B::new());
    let committed = [AtomicI64::new(0), AtomicI64::new(0)];
    let pass = unique_name("pass");
    run_concurrently(&database, 16, |conn, thread| {
        for cycle in 0..12 {
            let place = (thread + cycle) % 2;
            let sequence = Sequence::new(&pass).for_key(place);
            let result = in_own_transaction::<B, _>(conn, |conn| {
                let number = conn.next_number(&sequence)?;
                note::<B>(conn, place, number);
                if (thread + cycle) % 3 == 0 {
                    return roll_back();
                }
                Ok(())
            });
            match result {
                Ok(()) => _ = committed[place].fetch_add(1, Ordering::Relaxed),
                Err(error) => assert_eq!((thread + cycle) % 3, 0, "{error:?}"),
            }
        }
    });
    for (place, count) in committed.into_iter().enumerate() {
        assert_complete(&*database, place, count.into_inner());
    }
}

/// While the one who made it rolls back: on InnoDB the others would end in a deadlock.
pub(crate) fn thirty_two_connections_use_a_new_sequence<B: Backend>() {
    let database = Arc::new(B::new());
    let new = Sequence::new(unique_name("new"));
    let mut first = database.connect();
    let (all_wait, waiting) = channel();
    let gate = Arc::new(RwLock::new(()));
    let mut closed = Some(gate.write().expect("no panic"));
    let others = {
        let (database, new, gate) = (Arc::clone(&database), new.clone(), Arc::clone(&gate));
        spawn(move || {
            run_concurrently(&database, 31, |conn, thread| {
                // The first one draws before them.
                drop(gate.read().expect("no panic"));
                if thread == 0 {
                    all_wait.send(()).expect("the test waits for it");
                }
                in_own_transaction::<B, _>(conn, |conn| {
                    let number = conn.next_number(&new)?;
                    note::<B>(conn, 0, number);
                    Ok(())
                })
                .expect("no deadlock");
            });
        })
    };
    let result = in_own_transaction::<B, ()>(&mut first, |conn| {
        assert_eq!(conn.next_number(&new)?, 1);
        drop(closed.take());
        waiting.recv_timeout(LONG).expect("they begin");
        database.await_waiting(31);
        roll_back()
    });
    assert!(result.is_err());
    result_of(&others);
    assert_complete(&*database, 0, 31);
}

pub(crate) fn rolled_back_number_is_drawn_again<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let sequence = Sequence::new(unique_name("invoice"));
    for (commits, expected) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let result = in_own_transaction::<B, _>(&mut conn, |conn| {
            let number = conn.next_number(&sequence)?;
            assert_eq!(number, expected);
            if commits { Ok(number) } else { roll_back() }
        });
        assert_eq!(result.is_ok(), commits);
    }
    assert_eq!(conn.last_number(&sequence).expect("rows"), Some(2));
}

pub(crate) fn number_of_a_rolled_back_savepoint_is_drawn_again<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let sequence = Sequence::new(unique_name("invoice"));
    in_own_transaction::<B, _>(&mut conn, |conn| {
        for expected in [1, 2] {
            let undone = B::in_transaction(conn, |conn| {
                assert_eq!(conn.next_numbers(&sequence, 10)?, expected..=expected + 9);
                roll_back::<()>()
            });
            assert!(undone.is_err());
            assert_eq!(conn.next_number(&sequence)?, expected);
        }
        Ok(())
    })
    .expect("commit");
    assert_eq!(conn.last_number(&sequence).expect("rows"), Some(2));
}

pub(crate) fn number_of_a_lost_connection_is_drawn_again<B: Backend>() {
    let database = B::new();
    let sequence = Sequence::new(unique_name("invoice"));
    for _ in 0..2 {
        let mut lost = database.connect();
        begin(&mut lost);
        assert_eq!(lost.next_number(&sequence).expect("free"), 1);
        drop(lost);
    }
    let mut conn = database.connect();
    let number = in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&sequence));
    assert_eq!(number.expect("free"), 1);
}

pub(crate) fn draw_blocks_until_previous_draw_commits<B: Backend>() {
    let database = Arc::new(B::new());
    let sequence = Sequence::new(unique_name("invoice"));
    let mut conn = database.connect();
    in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&sequence)).expect("new");
    for (commits, theirs) in [(true, 3), (false, 4)] {
        let mut other = None;
        let result = in_own_transaction::<B, ()>(&mut conn, |conn| {
            conn.next_number(&sequence)?;
            let (theirs, sequence) = (Arc::clone(&database), sequence.clone());
            other = Some(spawn(move || {
                let mut conn = theirs.connect();
                in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&sequence))
                    .expect("free")
            }));
            database.await_waiting(1);
            if commits { Ok(()) } else { roll_back() }
        });
        assert_eq!(result.is_ok(), commits);
        assert_eq!(result_of(&other.expect("it was started")), theirs);
    }
}

/// Neither known ones nor those that are new.
pub(crate) fn sequences_do_not_wait_for_each_other<B: Backend>() {
    if B::ONE_WRITER {
        return;
    }
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let pass = unique_name("pass");
    let known: Vec<_> = [10, 20, 30]
        .map(|key| Sequence::new(&pass).for_key(key))
        .into();
    for sequence in &known {
        in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(sequence)).expect("new");
    }
    begin(&mut conn);
    for drawn in [known[1].clone(), Sequence::new(&pass).for_key(25)] {
        conn.next_number(&drawn).expect("free");
    }
    // At the session's default level, which locks gaps on InnoDB.
    begin(&mut other);
    for (sequence, number) in [(known[0].clone(), 2), (known[2].clone(), 2)]
        .into_iter()
        .chain([15, 22, 27, 35].map(|key| (Sequence::new(&pass).for_key(key), 1)))
    {
        assert_eq!(other.next_number(&sequence).expect("free"), number);
    }
}

pub(crate) fn several_numbers_are_consecutive<B: Backend>() {
    let database = Arc::new(B::new());
    let many = Sequence::new(unique_name("many"));
    run_concurrently(&database, 4, |conn, thread| {
        for _ in 0..5 {
            in_own_transaction::<B, _>(conn, |conn| {
                let count = u32::try_from(thread).expect("few") + 1;
                let numbers = conn.next_numbers(&many, count)?;
                assert_eq!(numbers.clone().count(), thread + 1);
                for number in numbers {
                    note::<B>(conn, 0, number);
                }
                Ok(())
            })
            .expect("commit");
        }
    });
    assert_complete(&*database, 0, 5 * (1 + 2 + 3 + 4));
}

pub(crate) fn last_number_does_not_wait_for_a_draw<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let sequence = Sequence::new(unique_name("invoice"));
    assert_eq!(conn.last_number(&sequence).expect("rows"), None);
    in_own_transaction::<B, _>(&mut conn, |conn| {
        conn.next_numbers(&sequence, 7)?;
        assert_eq!(conn.last_number(&sequence)?, Some(7));
        assert_eq!(other.last_number(&sequence)?, None, "not committed");
        Ok(())
    })
    .expect("commit");
    assert_eq!(other.last_number(&sequence).expect("rows"), Some(7));
}

/// On MariaDB a statement that failed in place of its rows would wait for them for ever when it is sent again.
pub(crate) fn failed_draw_is_retried_on_its_connection<B: Backend>() {
    let database = Arc::new(B::new());
    let sequence = Sequence::new(unique_name("invoice"));
    let mut holder = database.connect();
    in_own_transaction::<B, _>(&mut holder, |conn| conn.next_number(&sequence)).expect("new");
    begin(&mut holder);
    assert_eq!(holder.next_number(&sequence).expect("free"), 2);
    let (failed, have_failed) = channel();
    let (roll_back, rolled_back) = channel::<()>();
    let theirs = {
        let (database, sequence) = (Arc::clone(&database), sequence.clone());
        spawn(move || {
            let mut conn = database.connect();
            B::set_short_lock_timeout(&mut conn);
            for _ in 0..3 {
                let draw = |conn: &mut B::Conn| conn.next_number(&sequence);
                let error = conn.transaction(draw).expect_err("another has drawn");
                assert!(error.is_timeout(), "{error:?}");
            }
            failed.send(()).expect("the test waits for it");
            // The draw would wait no longer than its session's limit.
            rolled_back.recv_timeout(LONG).expect("the test says when");
            in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&sequence)).expect("free")
        })
    };
    have_failed.recv_timeout(LONG).expect("no draw hangs");
    crate::support::threads::roll_back(&mut holder);
    roll_back.send(()).expect("the other session waits for it");
    assert_eq!(result_of(&theirs), 2);
}
