//! Object locks.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Retention};
use tokio::time::sleep;

use crate::support::case::{Case, Waits};
use crate::support::engine::Engine;
use crate::support::watch::Held;

pub(crate) const ID: &str = "Document:17";

/// Writes two rows, with a pause between them.
pub(crate) async fn write<C: SimpleAsyncConnection + Send>(
    conn: &mut C,
    attempt: usize,
) -> Result<(), Error> {
    for part in 0..2 {
        let sql = format!("INSERT INTO written VALUES ({attempt}, {part})");
        conn.batch_execute(&sql).await?;
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

pub(crate) async fn free<E: Engine>() {
    for retention in [Retention::Transient, Retention::Kept] {
        let name = match retention {
            Retention::Kept => "with_object_lock, kept",
            Retention::Transient => "with_object_lock",
        };
        let case = Case::<E>::new(name, Held::Object(ID)).parts(2);
        let request = LockRequest::new(ID).retention(retention);
        case.run(|conn, attempt| {
            Box::pin(conn.with_object_lock(request.clone(), async move |conn| {
                write(conn, attempt).await
            }))
        })
        .await;
    }
}

pub(crate) async fn held_by_another<E: Engine>() {
    let case = Case::<E>::new("with_object_lock, waits", Held::Object(ID));
    case.blocked()
        .run(|conn, attempt| {
            Box::pin(conn.with_object_lock(ID, async move |conn| write(conn, attempt).await))
        })
        .await;
}

pub(crate) async fn in_closure<E: Engine>() {
    let (waits, flag) = Waits::flag();
    let case = Case::<E>::new("with_object_lock, in the closure", Held::Object(ID));
    case.parts(2)
        .waits(waits)
        .run(|conn, attempt| {
            let flag = Arc::clone(&flag);
            Box::pin(conn.with_object_lock(ID, async move |conn| {
                write(conn, attempt).await?;
                flag.store(true, Ordering::SeqCst);
                pending().await
            }))
        })
        .await;
}

pub(crate) async fn in_statement<E: Engine>() {
    let (flagged, flag) = Waits::flag();
    let waits = if E::SHOWS_SESSIONS {
        Waits::InStatement
    } else {
        flagged
    };
    let case = Case::<E>::new("with_object_lock, in a long statement", Held::Object(ID));
    case.parts(2)
        .waits(waits)
        .run(|conn, attempt| {
            let flag = Arc::clone(&flag);
            Box::pin(conn.with_object_lock(ID, async move |conn| {
                write(conn, attempt).await?;
                flag.store(true, Ordering::SeqCst);
                conn.batch_execute(E::LONG_STATEMENT).await?;
                Ok(())
            }))
        })
        .await;
}

/// Several locks, without waiting, and in a transaction of [`AsyncTransactionExt`].
pub(crate) async fn other_methods<E: Engine>() {
    let case = Case::<E>::new("try_with_object_lock", Held::Object(ID)).parts(2);
    case.run(|conn, attempt| {
        let got = conn.try_with_object_lock(ID, async move |conn| write(conn, attempt).await);
        Box::pin(async { got.await.map(|got| got.expect("a free lock")) })
    })
    .await;
    let case = Case::<E>::new("with_object_locks", Held::Object(ID)).parts(2);
    case.run(|conn, attempt| {
        let ids = ["Document:1", ID, "Document:3"];
        Box::pin(conn.with_object_locks(ids, async move |conn| write(conn, attempt).await))
    })
    .await;
    let case = Case::<E>::new("lock_object", Held::Object(ID)).parts(2);
    case.run(|conn, attempt| {
        Box::pin(async move {
            let work = async |conn: &mut E::Conn| -> Result<(), Error> {
                conn.lock_object(ID).await?;
                write(conn, attempt).await
            };
            conn.run_transaction(read_committed::<E>(), work).await
        })
    })
    .await;
}

/// Options for a transaction in which locks can be acquired.
pub(crate) fn read_committed<E: Engine>() -> TransactionOptions {
    let transaction = TransactionOptions::new();
    if E::ONE_WRITER {
        transaction
    } else {
        transaction.isolation(IsolationLevel::ReadCommitted)
    }
}

/// The rows of kept locks are deleted in several transactions.
pub(crate) async fn purge<E: Engine>() {
    let case = Case::<E>::new("purge_object_locks", Held::Object(ID));
    let keep = |conn: &mut E::Blocking| {
        let ids = (0..50).map(|id| format!("Document:{id}"));
        let request = LockRequest::all(ids).retention(Retention::Kept);
        conn.with_object_locks(request, |_| Ok::<_, Error>(()))
            .expect("free locks");
    };
    case.prepare(keep)
        .run(|conn, _| {
            let purged = conn.purge_object_locks();
            Box::pin(async { purged.await.map(drop) })
        })
        .await;
}
