//! Errors of COMMIT, and errors before it.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::result::DatabaseErrorKind::UniqueViolation;
use diesel::result::Error::DatabaseError;
use diesel_async::AsyncPgConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy};

use crate::support::Backend;
use crate::support::awaited::Awaited;
use crate::support::postgres::{Postgres, PostgresOn};

#[test]
fn error_before_commit_is_returned_unchanged() {
    error_before_commit::<Postgres>();
    error_before_commit::<PostgresOn<Awaited<AsyncPgConnection>>>();
}

/// An error of what comes before COMMIT is not that of a transaction which is gone.
fn error_before_commit<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    conn.batch_execute(
        "CREATE SCHEMA failing; CREATE FUNCTION failing.current_setting(text) RETURNS text \
         LANGUAGE plpgsql AS $$ BEGIN RAISE 'as told'; END $$",
    )
    .expect("a function");
    let failing = "SET LOCAL search_path = failing, pg_catalog, public";
    let before = B::counter(&mut conn, 0);
    let result = conn.run_transaction(TransactionOptions::new(), |conn| {
        B::count_up(conn, 0);
        conn.batch_execute(failing)?;
        Ok::<_, Error>(())
    });
    let error = result.expect_err("as told");
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    assert_eq!(B::counter(&mut conn, 0), before, "rolled back");
    // A statement has replaced this crate's transaction with another one.
    for statements in ["COMMIT", "ROLLBACK", "ROLLBACK; BEGIN"] {
        let result = conn.run_transaction(TransactionOptions::new(), |conn| {
            conn.batch_execute(statements)?;
            Ok::<_, Error>(())
        });
        let error = result.expect_err("another transaction");
        assert!(error.is_transaction_aborted(), "{statements}: {error:?}");
    }
}

/// Write skew: all statements of both have succeeded, and the first to commit dooms the other.
#[test]
fn serialization_failure_at_commit_is_retried() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let transaction = TransactionOptions::new()
        .isolation(IsolationLevel::Serializable)
        .retry(RetryPolicy::max_attempts(2));
    let sum_into = |conn: &mut PgConnection, id| {
        let sum = Postgres::counter(conn, 1) + Postgres::counter(conn, 2);
        let sql = format!("UPDATE counters SET n = {} WHERE id = {id}", sum + 1);
        Postgres::sql(conn, &sql);
    };
    let mut attempts = 0;
    conn.run_transaction(transaction, |conn| {
        attempts += 1;
        sum_into(conn, 2);
        if attempts == 1 {
            other.run_transaction(transaction, |other| {
                sum_into(other, 1);
                Ok::<_, Error>(())
            })?;
        }
        Ok::<_, Error>(())
    })
    .expect("the second time");
    assert_eq!(attempts, 2);
    let n = [1, 2].map(|id| Postgres::counter(&mut conn, id));
    assert_eq!(n, [1, 2], "one after the other");
}

/// Without a next attempt it is the caller's, and the connection can be used.
#[test]
fn a_serialization_failure_at_commit_leaves_the_connection_usable() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let transaction = TransactionOptions::new().isolation(IsolationLevel::Serializable);
    let result = conn.run_transaction(transaction, |conn| {
        Postgres::counter(conn, 1);
        Postgres::count_up(conn, 2);
        other.run_transaction(transaction, |other| {
            Postgres::counter(other, 2);
            Postgres::count_up(other, 1);
            Ok::<_, Error>(())
        })
    });
    let error = result.expect_err("write skew");
    assert!(error.is_serialization_failure(), "{error:?}");
    assert!(!conn.is_broken());
    conn.run_transaction(transaction, |conn| {
        Postgres::count_up(conn, 2);
        Ok::<_, Error>(())
    })
    .expect("usable");
    assert_eq!(Postgres::counter(&mut conn, 2), 1);
}

#[test]
fn constraint_violation_at_commit_is_not_retried() {
    let database = Postgres::new();
    let mut conn = database.connect();
    Postgres::sql(
        &mut conn,
        "CREATE TABLE seats (seat INTEGER, UNIQUE (seat) DEFERRABLE INITIALLY DEFERRED); \
         INSERT INTO seats VALUES (1)",
    );
    let mut attempts = 0;
    let result = conn.run_transaction(
        TransactionOptions::new().retry(RetryPolicy::max_attempts(3)),
        |conn| {
            attempts += 1;
            Postgres::try_sql(conn, "INSERT INTO seats VALUES (1)")
        },
    );
    let error = result.expect_err("taken");
    assert!(
        matches!(&error, Error::Database(DatabaseError(UniqueViolation, _))),
        "{error:?}"
    );
    assert_eq!(attempts, 1);
    assert!(!conn.is_broken());
    conn.run_transaction(TransactionOptions::new(), |conn| {
        Postgres::try_sql(conn, "INSERT INTO seats VALUES (2)")
    })
    .expect("usable");
    assert_eq!(Postgres::number(&mut conn, "SELECT count(*) FROM seats"), 2);
}
