//! One at a time, whatever the end of the one before.

use std::sync::Arc;
use std::time::Duration;

use diesel_locks::Retention;
use diesel_locks::prelude::*;

use crate::subprocess::Subprocess;
use crate::support::Backend;
use crate::support::threads::{Holder, begin, result_of, spawn};

const ID: &str = "BondBO:DK0015966592";

/// A waiter acquires the lock when `end` has ended the holder, and not before.
fn assert_handed_over<B: Backend>(database: &Arc<B>, end: impl FnOnce()) {
    let waiter = {
        let database = Arc::clone(database);
        spawn(move || {
            let mut conn = database.connect();
            conn.with_object_lock(ID, |conn| {
                B::count_up(conn, 0);
                diesel::QueryResult::Ok(())
            })
            .expect("the lock comes free");
        })
    };
    database.await_waiting(1);
    assert_eq!(B::counter(&mut database.connect(), 0), 0, "not yet");
    assert!(waiter.try_recv().is_err(), "not yet");
    end();
    result_of(&waiter);
    assert_eq!(B::counter(&mut database.connect(), 0), 1);
    assert_eq!(database.rows(), 0);
}

pub(crate) fn waiter_gets_the_lock_when_the_holder_commits<B: Backend>() {
    let database = Arc::new(B::new());
    let holder = Holder::acquire(&database, ID);
    assert_handed_over(&database, || holder.release());
}

pub(crate) fn waiter_gets_the_lock_when_the_holder_rolls_back<B: Backend>() {
    let database = Arc::new(B::new());
    let holder = Holder::with_outcome(
        &database,
        ID,
        Err(diesel::result::Error::RollbackTransaction),
    );
    assert_handed_over(&database, || holder.release());
}

pub(crate) fn waiter_gets_the_lock_when_the_holders_connection_is_dropped<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    B::in_transaction(&mut database.connect(), |_| Ok(())).expect("a transaction");
    begin_for_locks::<B>(&mut conn);
    conn.lock_object(ID).expect("the lock is free");
    assert_handed_over(&database, || drop(conn));
}

pub(crate) fn waiter_gets_the_lock_when_the_holders_process_is_killed<B: Backend>() {
    let database = Arc::new(B::new());
    let process = Subprocess::holding_lock::<B>(&database.url(), ID, Retention::Transient);
    assert_handed_over(&database, || process.kill());
}

/// A transaction in which `lock_object` works, left open.
pub(crate) fn begin_for_locks<B: Backend>(conn: &mut B::Conn) {
    if B::ENGINE == "mysql" {
        B::sql(
            conn,
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        );
    }
    begin(conn);
}

pub(crate) fn different_ids_wait_only_where_the_engine_has_one_writer<B: Backend>() {
    let database = Arc::new(B::new());
    for held in [
        LockRequest::new(ID),
        LockRequest::new(ID).retention(Retention::Kept),
    ] {
        let holder = Holder::acquire(&database, held);
        for retention in [Retention::Transient, Retention::Kept] {
            let other = LockRequest::new("BondBO:DK0015966593")
                .wait(Wait::AtMost(Duration::from_secs(2)))
                .retention(retention);
            let result = database
                .connect()
                .with_object_lock(other, |_| Ok::<_, diesel_locks::Error>(()));
            assert_eq!(result.is_err(), B::ONE_WRITER, "{result:?}");
        }
        holder.release();
    }
}

pub(crate) fn kept_and_transient_exclude_each_other<B: Backend>() {
    let database = Arc::new(B::new());
    let of = |retention| LockRequest::new(ID).retention(retention);
    // Also before and after there is a row.
    for _ in 0..2 {
        for (held, wanted) in [
            (Retention::Transient, Retention::Kept),
            (Retention::Kept, Retention::Transient),
            (Retention::Kept, Retention::Kept),
        ] {
            let holder = Holder::acquire(&database, of(held));
            let mut conn = database.connect();
            let tried = conn
                .try_with_object_lock(of(wanted), |_| Ok::<_, diesel_locks::Error>(()))
                .expect("an answer");
            assert_eq!(tried, None, "{held:?} held, {wanted:?} wanted");
            let waiter = {
                let database = Arc::clone(&database);
                spawn(move || {
                    database
                        .connect()
                        .with_object_lock(of(wanted), |_| Ok::<_, diesel_locks::Error>(()))
                })
            };
            database.await_waiting(1);
            holder.release();
            result_of(&waiter).expect("the lock comes free");
        }
    }
    assert_eq!(database.rows(), 1);
}
