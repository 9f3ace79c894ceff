//! Transactions that are begun again.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use diesel::connection::Connection;
use diesel::result::DatabaseErrorKind::SerializationFailure;
use diesel::result::Error::DatabaseError;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy, TransactionError, TransactionRequest};

use crate::behaviour::events::Collector;
use crate::behaviour::slots::run_concurrently;
use crate::support::Backend;
use crate::support::threads::{Holder, LONGEST_RETRIES};

fn patient() -> TransactionOptions {
    TransactionOptions::new().retry(PATIENT)
}

/// Many attempts, short pauses. PostgreSQL looks for a deadlock after 1 s, so that 80 transactions take more than the default
/// of 30 s if most of them are victims once.
const PATIENT: RetryPolicy = RetryPolicy::max_attempts(u32::MAX)
    .max_elapsed(LONGEST_RETRIES)
    .backoff(Duration::from_millis(1), Duration::from_millis(50));

/// What Diesel makes of SQLSTATE 40001.
fn victim() -> diesel::result::Error {
    DatabaseError(SerializationFailure, Box::new("as told".to_owned()))
}

/// Eight sessions count in two rows, in opposite orders; on SQLite without waiting.
fn count_in_opposite_orders<B: Backend>(
    database: &Arc<B>,
    transaction: impl Fn(usize) -> TransactionRequest + Send + Sync,
) {
    run_concurrently(database, 8, |conn, thread| {
        if B::ONE_WRITER {
            B::sql(conn, "PRAGMA busy_timeout = 0");
        }
        for round in 0..10 {
            let done = conn.run_transaction(transaction(thread), |conn| {
                let mut ids = [0, 1];
                if (thread + round) % 2 == 0 {
                    ids.reverse();
                }
                B::counter(conn, ids[0]);
                for id in ids {
                    let sql = format!("UPDATE counters SET n = n + 1 WHERE id = {id}");
                    B::try_sql(conn, &sql)?;
                }
                Ok::<_, Error>(())
            });
            done.expect("in the end");
        }
    });
    let mut conn = database.connect();
    for id in [0, 1] {
        assert_eq!(B::counter(&mut conn, id), 80);
    }
}

/// At a level at which reads are old when they are written.
pub(crate) fn deadlock_victims_are_retried_until_they_succeed<B: Backend>() {
    let level = if B::ONE_WRITER {
        IsolationLevel::Serializable
    } else {
        IsolationLevel::RepeatableRead
    };
    let database = Arc::new(B::new());
    count_in_opposite_orders(&database, |_| patient().isolation(level).into());
}

/// [`LockRequest::retry`]: the locks do not protect the rows; then of one transaction.
pub(crate) fn locked_transactions_are_retried_and_locked_again<B: Backend>() {
    let database = Arc::new(B::new());
    let retry = PATIENT;
    count_in_opposite_orders(&database, |thread| {
        LockRequest::new(ObjectId::new("Transfer", thread)).retry(retry)
    });
    let mut conn = database.connect();
    let mut other = database.connect();
    let mut is_free = move |id: &str| {
        let tried = other.try_with_object_lock(id, |_| Ok::<_, Error>(()));
        tried.expect("an answer").is_some()
    };
    let both = || LockRequest::all(["a", "b"]);
    let mut runs = 0;
    let last = conn.run_transaction(both().retry(retry), |conn| {
        runs += 1;
        assert!(!is_free("a") && !is_free("b"), "in attempt {runs}");
        B::count_up(conn, 0);
        if runs < 3 { Err(victim()) } else { Ok(runs) }
    });
    assert_eq!(last, Ok(3));
    assert!(is_free("a") && is_free("b"));
    assert_eq!(B::counter(&mut conn, 0), 81);

    let mut never = |transaction: TransactionRequest| {
        conn.run_transaction::<(), Error, _, _>(transaction, |_| unreachable!("it is held"))
            .expect_err("it is held")
    };
    let holder = Holder::acquire(&database, "b");
    let error = never(both().wait(Wait::No).retry(retry));
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let error = never(both().wait(Duration::from_millis(10)).retry(retry));
    assert!(matches!(error, Error::LockTimeout { .. }), "{error:?}");
    holder.release();
}

pub(crate) fn writes_of_earlier_attempts_are_gone<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut attempts = 0;
    let last = conn.run_transaction(patient(), |conn| {
        attempts += 1;
        assert_eq!(B::counter(conn, 0), 0);
        B::count_up(conn, 0);
        if attempts < 4 {
            Err(victim())
        } else {
            Ok(attempts)
        }
    });
    assert_eq!(last, Ok(4));
    assert_eq!(B::counter(&mut conn, 0), 1);
}

pub(crate) fn retries_are_limited<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for (transaction, expected) in [
        (TransactionOptions::new(), 1),
        (
            TransactionOptions::new().retry(RetryPolicy::max_attempts(1)),
            1,
        ),
        (
            TransactionOptions::new().retry(RetryPolicy::max_attempts(3)),
            3,
        ),
        (
            patient().retry(RetryPolicy::max_attempts(9).max_elapsed(Duration::ZERO)),
            1,
        ),
    ] {
        let mut attempts = 0;
        let result: Result<(), _> = conn.run_transaction(transaction, |_| {
            attempts += 1;
            Err(victim())
        });
        assert_eq!(result, Err(victim()));
        assert_eq!(attempts, expected);
    }
    conn.run_transaction(TransactionOptions::new(), |_| Ok::<_, Error>(()))
        .expect("usable");
}

/// Errors as applications have them.
#[derive(Debug)]
enum AppError {
    NotEnough,
    Database(diesel::result::Error),
    Locks(Error),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Locks(error)
    }
}

impl TransactionError for AppError {
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::NotEnough => None,
            Self::Database(error) => Some(error),
            Self::Locks(error) => Some(error),
        }
    }
}

/// How often a closure with this error runs when three attempts are allowed.
fn attempts<B: Backend, E: TransactionError<Kind>, Kind>(
    conn: &mut B::Conn,
    error: impl Fn() -> E,
) -> u32 {
    let mut attempts = 0;
    let retry = RetryPolicy::max_attempts(3).backoff(Duration::ZERO, Duration::ZERO);
    let result: Result<(), E> =
        conn.run_transaction(TransactionOptions::new().retry(retry), |_| {
            attempts += 1;
            Err(error())
        });
    assert!(result.is_err());
    attempts
}

pub(crate) fn application_error_is_not_retried<B: Backend>() {
    let database = B::new();
    let conn = &mut database.connect();
    assert_eq!(attempts::<B, _, _>(conn, || AppError::NotEnough), 1);
    assert_eq!(
        attempts::<B, _, _>(conn, || diesel::result::Error::NotFound),
        1
    );
    assert_eq!(
        attempts::<B, _, _>(conn, || Error::Unavailable {
            resource: "a".to_owned()
        }),
        1
    );
    assert_eq!(
        attempts::<B, _, _>(conn, || anyhow::anyhow!("deadlock detected")),
        1,
        "a text alone is no error of the database"
    );
}

pub(crate) fn database_error_is_found_in_any_error_type<B: Backend>() {
    let database = B::new();
    let conn = &mut database.connect();
    let own = || Error::from(victim());
    assert!(own().is_serialization_failure());
    assert_eq!(attempts::<B, _, _>(conn, victim), 3);
    assert_eq!(attempts::<B, _, _>(conn, own), 3);
    assert_eq!(
        attempts::<B, _, _>(conn, || diesel::result::Error::from(own())),
        3
    );
    assert_eq!(
        attempts::<B, _, _>(conn, || AppError::Database(victim())),
        3
    );
    assert_eq!(attempts::<B, _, _>(conn, || AppError::Locks(own())), 3);
    assert_eq!(
        attempts::<B, _, _>(conn, || anyhow::Error::from(victim()).context("transfer")),
        3
    );
    assert_eq!(
        attempts::<B, Box<dyn StdError>, _>(conn, || victim().into()),
        3
    );
    assert_eq!(
        attempts::<B, Box<dyn StdError + Send + Sync>, _>(conn, || own().into()),
        3
    );
}

pub(crate) fn nested_run_transaction_does_not_retry<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let error = conn
        .transaction(|conn| {
            conn.run_transaction(patient(), |_| -> Result<(), Error> {
                unreachable!("it is refused before")
            })
        })
        .expect_err("inside");
    assert!(
        matches!(
            error,
            Error::AlreadyInTransaction {
                method: "run_transaction",
                ..
            }
        ),
        "{error:?}"
    );
}

pub(crate) fn panic_rolls_back_and_propagates<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        conn.run_transaction(patient(), |conn| -> Result<(), Error> {
            B::count_up(conn, 0);
            panic!("as told");
        })
    }))
    .expect_err("it goes on");
    assert_eq!(panic.downcast_ref(), Some(&"as told"));
    assert_eq!(B::counter(&mut conn, 0), 0);
    conn.run_transaction(patient(), |conn| {
        B::count_up(conn, 0);
        Ok::<_, Error>(())
    })
    .expect("usable");
    assert_eq!(B::counter(&mut conn, 0), 1);
}

pub(crate) fn zero_attempts_are_rejected<B: Backend>() {
    let database = B::new();
    let transaction = TransactionOptions::new().retry(RetryPolicy::max_attempts(0));
    let result = database
        .connect()
        .run_transaction(transaction, |_| Ok::<_, Error>(()));
    assert!(
        matches!(result, Err(Error::InvalidRetry { attempts: 0 })),
        "{result:?}"
    );
}

pub(crate) fn lock_timeouts_are_retried_on_request<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let level = (!B::ONE_WRITER).then_some(IsolationLevel::ReadCommitted);
    let holder = (!B::ONE_WRITER).then(|| Holder::acquire(&database, "a"));
    for (asked, expected) in [(false, 1), (true, 3)] {
        let mut retry = RetryPolicy::max_attempts(3);
        if asked {
            retry = retry.retry_lock_timeouts();
        }
        let mut transaction = TransactionOptions::new().retry(retry);
        if let Some(level) = level {
            transaction = transaction.isolation(level);
        }
        let mut attempts = 0;
        let result = conn.run_transaction(transaction, |conn| {
            attempts += 1;
            // On SQLite the transaction can't begin while another one holds a lock.
            if B::ONE_WRITER {
                return Err(Error::LockTimeout {
                    resource: "a".to_owned(),
                    waited: Duration::ZERO,
                    limit: None,
                    source: None,
                });
            }
            let wait = Wait::AtMost(Duration::from_millis(5));
            conn.lock_object(LockRequest::new("a").wait(wait))
        });
        let error = result.expect_err("held");
        assert!(error.is_timeout(), "{error:?}");
        assert_eq!(attempts, expected);
    }
    if let Some(holder) = holder {
        holder.release();
    }
}

pub(crate) fn retry_is_recorded_by_tracing<B: Backend>() {
    let database = B::new();
    let collector = Collector::global();
    let mut conn = database.connect();
    let result: Result<(), _> = conn.run_transaction(
        TransactionOptions::new().retry(RetryPolicy::max_attempts(3)),
        |_| Err(victim()),
    );
    assert!(result.is_err());
    let told = collector.events_of_this_thread();
    let told: Vec<_> = told
        .lines()
        .filter(|line| line.contains("retrying"))
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    for (number, line) in (1..).zip(&told) {
        assert!(line.contains("reason=serialization failure"), "{line}");
        assert!(line.contains(&format!("attempt={number}")), "{line}");
        assert!(line.contains("pause="), "{line}");
    }
}
