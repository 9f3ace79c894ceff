//! Acquiring in an open transaction.

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt};

use super::{acquire, is_full, one_hour, single_slot, slots_of};
use crate::support::Backend;

fn roll_back<T>() -> Result<T, Error> {
    Err(diesel::result::Error::RollbackTransaction.into())
}

pub(crate) fn acquisition_takes_effect_at_commit<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let two = Semaphore::new("two", 2);
    conn.register_semaphores([&two]).expect("register");
    for commits in [false, true] {
        let result = B::in_transaction(&mut conn, |conn| {
            let slot = acquire::<B>(conn, &two);
            assert!(other.held_slots(&slots_of(&two))?.is_empty(), "not yet");
            if !B::ONE_WRITER {
                // No session waits: the other slot is free, this one is not.
                let free = acquire::<B>(&mut other, &two);
                assert_ne!(free.number(), slot.number());
                assert!(is_full::<B>(&mut other, &two));
                other.release_slot(free)?;
            }
            if commits { Ok(slot) } else { roll_back() }
        });
        assert_eq!(result.is_ok(), commits);
        let held = other.held_slots(&slots_of(&two)).expect("rows");
        assert_eq!(held.len(), usize::from(commits));
    }
}

/// Refresh and release are undone with the transaction too.
pub(crate) fn a_release_takes_effect_at_commit<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let slot = acquire::<B>(&mut conn, &single_slot());
    let result: Result<(), Error> = B::in_transaction(&mut conn, |conn| {
        conn.release_slot(&slot)?;
        assert!(is_full::<B>(&mut other, &single_slot()));
        roll_back()
    });
    assert!(result.is_err());
    assert!(is_full::<B>(&mut other, &single_slot()));
    B::in_transaction(&mut conn, |conn| conn.release_slot(&slot)).expect("ours");
    assert!(!is_full::<B>(&mut other, &single_slot()));
}

pub(crate) fn a_new_semaphore_in_an_open_transaction_is_an_error<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let result = B::in_transaction(&mut conn, |conn| {
        conn.try_acquire_slot(&single_slot(), one_hour())
    });
    let error = result.expect_err("no rows");
    assert!(
        matches!(
            error,
            Error::NotRegistered {
                permits: Some(1),
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("register_semaphores"), "{error}");
    let result: Result<_, Error> = B::in_transaction(&mut conn, |conn| {
        conn.try_with_slot(&single_slot(), |_| Ok::<_, Error>(()))
    });
    let error = result.expect_err("no rows");
    assert!(matches!(error, Error::NotRegistered { .. }), "{error:?}");
    conn.register_semaphores([single_slot()]).expect("register");
    let result = B::in_transaction(&mut conn, |conn| {
        conn.try_acquire_slot(&single_slot(), one_hour())
    });
    assert!(result.expect("rows").is_some());

    for result in [
        B::in_transaction(&mut conn, |conn| conn.register_semaphores([single_slot()])),
        B::in_transaction(&mut conn, |conn| {
            conn.purge_slots(std::time::Duration::ZERO).map(drop)
        }),
    ] {
        let error = result.expect_err("in a transaction");
        assert!(
            matches!(error, Error::AlreadyInTransaction { .. }),
            "{error:?}"
        );
    }
}

pub(crate) fn a_stale_transaction_is_refused_a_slot<B: Backend>() {
    let database = B::new();
    database
        .connect()
        .register_semaphores([single_slot()])
        .expect("register");
    let mut conn = database.stale_transaction();
    let error = conn
        .try_acquire_slot(&single_slot(), one_hour())
        .expect_err("stale");
    assert!(
        matches!(error, Error::UnsuitableIsolation { .. }),
        "{error:?}"
    );
    let error = conn
        .try_with_slot(&single_slot(), |_| Ok::<_, Error>(()))
        .expect_err("stale");
    assert!(
        matches!(error, Error::UnsuitableIsolation { .. }),
        "{error:?}"
    );
}

/// At the session's own default level, whatever it is, a statement alone is its own transaction.
pub(crate) fn session_isolation_level_does_not_matter_outside_transactions<B: Backend>() {
    let database = std::sync::Arc::new(B::new());
    let eight = Semaphore::new("eight", 8);
    super::run_concurrently(&database, 8, |conn, _| {
        B::serializable(conn);
        for _ in 0..10 {
            let mut slot = acquire::<B>(conn, &eight);
            conn.renew_slot(&mut slot, super::HOUR).expect("ours");
            conn.release_slot(slot).expect("ours");
        }
    });
}
