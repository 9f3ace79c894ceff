//! Requests for many objects.

use std::sync::Arc;
use std::time::Duration;

use diesel_locks::limits::MAX_KEPT_IDS;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::support::Backend;
use crate::support::threads::Holder;

/// More than fit into one message on MariaDB, or into PostgreSQL's table of locks.
const MANY: usize = 50_000;

fn accounts(count: usize) -> Vec<ObjectId> {
    (0..count)
        .map(|key| ObjectId::new("Account", key))
        .collect()
}

/// The first, the last, and one between.
fn some(ids: &[ObjectId]) -> [&ObjectId; 3] {
    [0, ids.len() / 2, ids.len() - 1].map(|index| &ids[index])
}

fn are_free<B: Backend>(database: &B, ids: &[ObjectId]) -> [bool; 3] {
    some(ids).map(|id| database.is_free(id.as_str()))
}

pub(crate) fn fifty_thousand_transient_locks_are_one_request<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let ids = accounts(MANY);
    conn.with_object_lock(&ids, |_| {
        assert_eq!(are_free(&database, &ids), [false; 3]);
        Ok::<_, Error>(())
    })
    .expect("all free");
    assert_eq!(are_free(&database, &ids), [true; 3]);
    // MariaDB and MySQL lock these in parts.
    let ids = &ids[..MANY / 4];
    let tried = conn
        .try_with_object_lock(ids, |_| Ok::<_, Error>(()))
        .expect("an answer");
    assert_eq!(tried, Some(()));
    B::in_transaction(&mut conn, |conn| {
        conn.lock_object(ids)?;
        assert_eq!(are_free(&database, ids), [false; 3]);
        Ok(())
    })
    .expect("all free");
    assert_eq!(are_free(&database, ids), [true; 3]);
    assert_eq!(database.rows(), 0);
}

/// One of them is held, and none of the others afterwards.
pub(crate) fn a_large_request_locks_all_or_none<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let ids = accounts(5000);
    let holder = Holder::acquire(&database, some(&ids)[1].as_str());
    let tried = conn
        .try_with_object_lock(&ids, |_| Ok::<_, Error>(()))
        .expect("an answer");
    assert_eq!(tried, None);
    let wait = Wait::AtMost(Duration::from_millis(300));
    let late = conn
        .with_object_lock(LockRequest::all(&ids).wait(wait), |_| Ok::<_, Error>(()))
        .expect_err("held");
    assert!(late.is_timeout(), "{late:?}");
    // The first of many are enough.
    assert!(late.to_string().contains("and 4990 more"), "{late}");
    if !B::ONE_WRITER {
        assert_eq!(are_free(&*database, &ids), [true, false, true]);
    }
    holder.release();
    conn.with_object_lock(&ids, |_| Ok::<_, Error>(()))
        .expect("all free");
    assert_eq!(are_free(&*database, &ids), [true; 3]);
}

/// Its limit is for waits, and it does not wait.
pub(crate) fn a_request_for_many_free_objects_outlasts_its_limit<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let ids = accounts(20_000);
    let at_once = Wait::AtMost(Duration::ZERO);
    conn.with_object_lock(LockRequest::all(&ids).wait(at_once), |_| Ok::<_, Error>(()))
        .expect("all free");
    conn.with_object_lock(&ids[..1], |_| Ok::<_, Error>(()))
        .expect("a sound connection");
}

pub(crate) fn too_many_kept_locks_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let ids = accounts(MANY);
    let kept = |ids: &[ObjectId]| LockRequest::all(ids).retention(Retention::Kept);
    let refusals = [
        conn.with_object_lock(kept(&ids), |_| Ok(())),
        conn.try_with_object_lock(kept(&ids), |_| Ok(())).map(drop),
        B::in_transaction(&mut conn, |conn| conn.lock_object(kept(&ids))),
    ];
    for refusal in refusals {
        let error = refusal.expect_err("too many");
        assert!(
            matches!(
                error,
                Error::TooManyIds {
                    ids: MANY,
                    limit: MAX_KEPT_IDS
                }
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains("50000 kept objects"), "{error}");
        assert!(error.to_string().contains("at most 1000:"), "{error}");
    }
    assert_eq!(database.rows(), 0);
    conn.with_object_lock(kept(&ids[..MAX_KEPT_IDS]), |_| Ok::<_, Error>(()))
        .expect("all free");
    assert_eq!(database.rows(), 1000);
}
