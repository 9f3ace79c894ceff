//! Closures that fail and panic, and COMMIT.

use std::sync::atomic::{AtomicU32, Ordering};

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_locks::prelude::*;
use diesel_locks::{Error, RetryPolicy, TransactionRequest};

use crate::locks::{ID, read_committed, write};
use crate::support::case::Case;
use crate::support::engine::Engine;
use crate::support::watch::Held;

pub(crate) async fn error<E: Engine>() {
    let case = Case::<E>::new("with_object_lock, the closure fails", Held::Object(ID));
    case.parts(2)
        .fails()
        .run(|conn, attempt| {
            Box::pin(conn.with_object_lock(ID, async move |conn| {
                write(conn, attempt).await?;
                Err(DieselError::RollbackTransaction.into())
            }))
        })
        .await;
}

pub(crate) async fn panic<E: Engine>() {
    let case = Case::<E>::new("with_object_lock, the closure panics", Held::Object(ID));
    case.parts(2)
        .panics()
        .run(|conn, attempt| {
            Box::pin(conn.with_object_lock(ID, async move |conn| {
                write(conn, attempt).await?;
                panic!("as planned")
            }))
        })
        .await;
}

/// The first two attempts fail as after a deadlock.
pub(crate) async fn retries<E: Engine>() {
    let retry = RetryPolicy::max_attempts(3);
    for (name, transaction) in [
        (
            "run_transaction, retried",
            read_committed::<E>().retry(retry).into(),
        ),
        (
            "run_transaction with a lock, retried",
            LockRequest::new(ID).retry(retry),
        ),
    ] {
        let case = Case::<E>::new(name, Held::Object(ID)).parts(2);
        case.run(|conn, attempt| {
            let transaction: TransactionRequest = transaction.clone();
            Box::pin(async move {
                let attempts = AtomicU32::new(0);
                let work = async |conn: &mut E::Conn| -> Result<(), Error> {
                    conn.lock_object(ID).await?;
                    write(conn, attempt).await?;
                    if attempts.fetch_add(1, Ordering::Relaxed) < 2 {
                        let kind = DatabaseErrorKind::SerializationFailure;
                        let text = "could not serialize access".to_owned();
                        return Err(DieselError::DatabaseError(kind, Box::new(text)).into());
                    }
                    Ok(())
                };
                conn.run_transaction(transaction, work).await
            })
        })
        .await;
    }
}
