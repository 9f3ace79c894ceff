//! How a closure ends, and what becomes of the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::support::Backend;

pub(crate) fn closure_error_rolls_back_and_releases<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let result: Result<(), Error> = conn.with_object_lock("a", |conn| {
        B::count_up(conn, 0);
        Err(diesel::result::Error::NotFound.into())
    });
    assert!(matches!(
        result,
        Err(Error::Database(diesel::result::Error::NotFound))
    ));
    assert_eq!(B::counter(&mut conn, 0), 0);
    assert!(database.is_free("a"));
    assert_eq!(database.rows(), 0);
}

pub(crate) fn panic_rolls_back_releases_and_propagates<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        conn.with_object_lock("a", |conn| -> Result<(), Error> {
            B::count_up(conn, 0);
            std::panic::panic_any("the closure's own");
        })
    }))
    .expect_err("it goes on");
    assert_eq!(panic.downcast_ref(), Some(&"the closure's own"));
    assert_eq!(B::counter(&mut conn, 0), 0);
    assert!(database.is_free("a"));
    conn.with_object_lock("a", |conn| {
        B::count_up(conn, 0);
        Ok::<_, Error>(())
    })
    .expect("the connection is still good");
    assert_eq!(B::counter(&mut conn, 0), 1);
}

pub(crate) fn pooled_connection_is_returned_without_the_lock<B: Backend>() {
    let database = B::new();
    let pool = database.pool(1);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let mut conn = pool.get().expect("a connection");
        conn.with_object_lock("a", |conn| -> Result<(), Error> {
            B::count_up(conn, 0);
            std::panic::panic_any("the closure's own");
        })
    }));
    assert!(panic.is_err());
    assert!(database.is_free("a"));
    let mut conn = pool.get().expect("a connection");
    let counted = conn
        .with_object_lock("a", |conn| {
            B::count_up(conn, 0);
            diesel::QueryResult::Ok(B::counter(conn, 0))
        })
        .expect("the lock is free");
    assert_eq!(counted, 1);
    // A guard of a transaction left open is not handed out either.
    crate::support::threads::begin(&mut *conn);
    B::sql(&mut conn, "UPDATE counters SET n = 7 WHERE id = 0");
    drop(conn);
    let mut conn = pool.get().expect("a connection");
    assert_eq!(B::counter(&mut conn, 0), 1);
    assert!(database.is_free("a"));
}

/// An application's error.
#[derive(Debug)]
enum AppError {
    Database(diesel::result::Error),
    Lock(Error),
    OutOfStock,
}

impl From<diesel::result::Error> for AppError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

fn diesels<C: ObjectLockExt>(conn: &mut C) -> diesel::QueryResult<u8> {
    conn.with_object_lock("a", |_| Ok(1))
}

fn ours<C: ObjectLockExt>(conn: &mut C) -> Result<u8, Error> {
    conn.with_object_lock("a", |conn| {
        let n = diesels(conn)?;
        Ok(n + 1)
    })
}

fn anyhows<C: ObjectLockExt>(conn: &mut C) -> anyhow::Result<u8> {
    conn.with_object_lock("a", |conn| {
        let n = ours(conn)?;
        anyhow::ensure!(n == 2, "two");
        Ok(n + 1)
    })
}

fn applications<C: ObjectLockExt>(conn: &mut C, stock: u8) -> Result<u8, AppError> {
    conn.with_object_lock("a", |conn| {
        if stock == 0 {
            return Err(AppError::OutOfStock);
        }
        Ok(diesels(conn)? + ours(conn)?)
    })
}

pub(crate) fn closure_error_may_be_any_type_made_from_error<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();

    assert_eq!(anyhows(&mut conn).expect("anyhow"), 3);
    assert_eq!(applications(&mut conn, 1).expect("the application's"), 3);
    assert!(matches!(
        applications(&mut conn, 0),
        Err(AppError::OutOfStock)
    ));

    // Ours keeps what it is on its way through Diesel's.
    let through = conn
        .with_object_lock("a", |conn| -> diesel::QueryResult<()> {
            conn.purge_object_locks()?;
            Ok(())
        })
        .expect_err("in a transaction");
    assert!(matches!(
        Error::from(through),
        Error::AlreadyInTransaction { .. }
    ));
    let error = applications_error(&mut conn);
    assert!(
        matches!(error, AppError::Lock(Error::InvalidName(_))),
        "{error:?}"
    );
    let error: AppError = diesel::result::Error::NotFound.into();
    assert!(matches!(
        error,
        AppError::Database(diesel::result::Error::NotFound)
    ));
}

fn applications_error<C: ObjectLockExt>(conn: &mut C) -> AppError {
    conn.with_object_lock("", |_| Err::<(), _>(AppError::OutOfStock))
        .expect_err("an empty id")
}
