//! Numbers of permits that are in the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel_locks::limits::MAX_PERMITS;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, IsolationLevel, ListOptions, LockPool, SlotRenewer};

use super::{acquire, is_full, one_hour, run_concurrently};
use crate::support::Backend;
use crate::support::threads::{LONG, result_of, spawn, until};
use crate::support::urls::fresh_name;

const NAME: &str = "sync/tenant-7";

type Acquire<C> = fn(&mut C) -> Result<(), Error>;

fn registered() -> Semaphore {
    Semaphore::registered(NAME)
}

/// By leases, and by slots of transactions, on other connections than the one that changes it.
pub(crate) fn number_in_the_database_applies_to_each_attempt<B: Backend>() {
    let database = B::new();
    let (mut operator, mut conn) = (database.connect(), database.connect());
    let mut held = Vec::new();
    for permits in [2, 5, 3] {
        operator.set_permits(NAME, permits).expect("set");
        while held.len() < permits.try_into().expect("few") {
            held.push(acquire::<B>(&mut conn, &registered()));
        }
        assert!(is_full::<B>(&mut conn, &registered()), "{permits}");
    }
    for left in (0..5).rev() {
        conn.release_slot(held.pop().expect("held")).expect("ours");
        assert_eq!(is_full::<B>(&mut conn, &registered()), left >= 3, "{left}");
    }
    operator.set_permits(NAME, 0).expect("paused");
    assert!(is_full::<B>(&mut conn, &registered()));
    let done = conn.try_with_slot(&registered(), |_| Ok::<_, Error>(()));
    assert_eq!(done.expect("an answer"), None);
    B::in_transaction(&mut conn, |conn| {
        assert_eq!(conn.try_acquire_slot(&registered(), one_hour())?, None);
        assert_eq!(
            conn.try_with_slot(&registered(), |_| Ok::<_, Error>(()))?,
            None
        );
        B::count_up(conn, 0);
        Ok(())
    })
    .expect("the transaction stays usable");
    if !B::ONE_WRITER {
        // It would read the same number until its end.
        let repeatable = TransactionOptions::new().isolation(IsolationLevel::RepeatableRead);
        let acquires: [Acquire<B::Conn>; 2] = [
            |conn| {
                conn.acquire_slot(&registered(), one_hour(), Wait::Forever)
                    .map(drop)
            },
            |conn| conn.with_slot(&registered(), Wait::Forever, |_| Ok::<_, Error>(())),
        ];
        for acquire in acquires {
            let error = conn.run_transaction(repeatable, acquire);
            let error = error.expect_err("an old snapshot");
            let unsuitable = matches!(error, Error::UnsuitableIsolation { .. });
            assert!(unsuitable, "{error:?}");
        }
    }
    operator.set_permits(NAME, 1).expect("resumed");
    let done = conn.try_with_slot(&registered(), |_| Ok::<_, Error>(()));
    assert_eq!(done.expect("an answer"), Some(()));
    let slot = B::in_transaction(&mut conn, |conn| {
        conn.try_acquire_slot(&registered(), one_hour())
    });
    assert!(slot.expect("an answer").is_some());
}

/// Those that wait while the semaphore is paused are granted slots when it is resumed, whichever way they wait.
pub(crate) fn waits_obey_a_change_of_the_number<B: Backend>() {
    let name = fresh_name();
    let database = Arc::new(B::new());
    let mut operator = database.connect();
    operator.set_permits(&name, 0).expect("paused");
    let semaphore = Semaphore::registered(&name);
    let locks = LockPool::new(database.pool(2));
    let renewer = SlotRenewer::new(database.pool(2));
    let granted = Arc::new(AtomicUsize::new(0));
    let waiters = [0, 1, 2, 3].map(|way| {
        let (database, semaphore) = (Arc::clone(&database), semaphore.clone());
        let (locks, renewer, granted) = (locks.clone(), renewer.clone(), Arc::clone(&granted));
        spawn(move || {
            let mut conn = database.connect();
            match way {
                0 => {
                    let slot = conn.acquire_slot(&semaphore, one_hour(), LONG)?;
                    granted.fetch_add(1, Ordering::SeqCst);
                    conn.release_slot(slot).map(drop)
                }
                1 => conn.with_slot(&semaphore, LONG, |_| {
                    granted.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Error>(())
                }),
                2 => locks.with_slot(&semaphore, LONG, |_| {
                    granted.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Error>(())
                }),
                _ => {
                    let guard = renewer.acquire(&semaphore, one_hour(), LONG)?;
                    granted.fetch_add(1, Ordering::SeqCst);
                    guard.release().map(drop)
                }
            }
        })
    });
    until(|| locks.waiting() == 1);
    assert_eq!(granted.load(Ordering::SeqCst), 0);
    operator.set_permits(&name, 1).expect("resumed");
    for waiter in &waiters {
        result_of(waiter).expect("a slot");
    }
    assert_eq!(granted.load(Ordering::SeqCst), 4);
}

/// Each attempt that begins after a change obeys it.
pub(crate) fn changed_number_is_never_exceeded<B: Backend>() {
    let database = Arc::new(B::new());
    database.connect().set_permits(NAME, 5).expect("set");
    let holders = AtomicUsize::new(0);
    for permits in [5, 2, 4, 1] {
        database.connect().set_permits(NAME, permits).expect("set");
        run_concurrently(&database, 8, |conn, _| {
            for _ in 0..6 {
                let slot = conn.try_acquire_slot(&registered(), one_hour());
                if let Some(slot) = slot.expect("an answer") {
                    let before = holders.fetch_add(1, Ordering::SeqCst);
                    assert!(before < usize::try_from(permits).expect("few"), "{permits}");
                    holders.fetch_sub(1, Ordering::SeqCst);
                    conn.release_slot(slot).expect("ours");
                }
            }
        });
    }
}

pub(crate) fn number_that_is_missing_or_unusable_is_an_error<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let unknown = |error: Error| {
        let named = error.to_string().contains("set_permits");
        assert!(
            named && matches!(error, Error::NotRegistered { permits: None, .. }),
            "{error:?}"
        );
    };
    let tried = conn.try_acquire_slot(&registered(), one_hour());
    unknown(tried.expect_err("no number"));
    let waited = conn.with_slot(&registered(), Wait::Forever, |_| Ok::<_, Error>(()));
    unknown(waited.expect_err("no number"));
    conn.register_semaphores([registered()])
        .expect("nothing to do");
    B::in_transaction(&mut conn, |conn| {
        let tried = conn.try_with_slot(&registered(), |_| Ok::<_, Error>(()));
        unknown(tried.expect_err("no number"));
        B::count_up(conn, 0);
        let set = conn.set_permits(NAME, 1);
        let refused = matches!(set, Err(Error::AlreadyInTransaction { .. }));
        assert!(refused, "{set:?}");
        Ok(())
    })
    .expect("the transaction stays usable");
    for permits in [MAX_PERMITS + 1, u32::MAX] {
        let error = conn.set_permits(NAME, permits).expect_err("too many");
        assert!(
            matches!(error, Error::InvalidPermits { permits: p, .. } if p == permits),
            "{error:?}"
        );
    }
    let error = conn.set_permits("", 1).expect_err("no name");
    assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
    assert_eq!(conn.semaphores(&ListOptions::new()).expect("a list"), []);
    conn.set_permits(NAME, 0).expect("paused");
    let listed = conn.semaphores(&ListOptions::new()).expect("a list");
    let listed: Vec<_> = listed
        .iter()
        .map(|it| (&*it.name, it.permits, it.held))
        .collect();
    assert_eq!(listed, [(NAME, Some(0), 0)]);
    conn.register_semaphores([Semaphore::new(NAME, 2)])
        .expect("a number");
    for _ in 0..2 {
        let _ = acquire::<B>(&mut conn, &registered());
    }
    assert!(is_full::<B>(&mut conn, &registered()));
}
