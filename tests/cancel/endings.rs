//! Closures that fail and panic, and COMMIT.

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_locks::prelude::*;
use diesel_locks::{Error, RetryPolicy};

use crate::locks::{ID, read_committed, write};
use crate::support::after::{After, keep_bare};
use crate::support::case::Case;
use crate::support::dropped::{End, poll_then_drop};
use crate::support::engine::{BoxFuture, Engine, Source};
use crate::support::watch::{Held, Watch};

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

/// The application's code also runs when a row is read. Other rows may not have been read then: the connection is given up.
pub(crate) async fn panic_in_row<E: Engine>() {
    let database = E::new();
    let watch = Watch::new(&database);
    let never = || -> BoxFuture<'static, bool> { Box::pin(async { false }) };
    for source in Source::ALL {
        let connections = database.connections(source).await;
        let mut conn = connections.take().await;
        let session = E::session(&mut conn).await;
        let locked = E::lock_and_panic_in_row(&mut conn, ID);
        let (end, _) = poll_then_drop(locked, usize::MAX, &never).await;
        assert!(matches!(end, End::Panicked), "{end:?}");
        let bare = keep_bare::<E>(source, conn);
        let after = After {
            watch: &watch,
            session,
            place: source.name(),
        };
        after.until_quiet().await;
        after.until_free(&Held::Object(ID)).await;
        if let Some(bare) = bare {
            after.check_bare(bare, Some(false)).await;
        }
        after.check_next(&mut connections.take().await).await;
    }
}

/// The first two attempts fail as after a deadlock.
pub(crate) async fn retries<E: Engine>() {
    let case = Case::<E>::new("run_transaction, retried", Held::Object(ID)).parts(2);
    case.run(|conn, attempt| {
        Box::pin(async move {
            let transaction = read_committed::<E>().retry(RetryPolicy::max_attempts(3));
            let work = async |conn: &mut E::Conn, number: u32| -> Result<(), Error> {
                conn.lock_object(ID).await?;
                write(conn, attempt).await?;
                if number < 3 {
                    let kind = DatabaseErrorKind::SerializationFailure;
                    let text = "could not serialize access".to_owned();
                    return Err(DieselError::DatabaseError(kind, Box::new(text)).into());
                }
                Ok(())
            };
            conn.run_transaction_attempts(transaction, work).await
        })
    })
    .await;
}
