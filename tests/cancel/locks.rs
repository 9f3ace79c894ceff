//! Object locks.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use diesel_locks::prelude::*;
use diesel_locks::{
    AsyncInspectExt, Error, IsolationLevel, ListOptions, Retention, assume_single_writer_async,
};
use tokio::task::coop::consume_budget;
use tokio::time::{sleep, timeout};

use crate::support::after::{After, keep_bare};
use crate::support::case::{Case, Waits};
use crate::support::engine::{Engine, Source};
use crate::support::watch::{HOUR, Held, Watch};

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
    let three = LockRequest::all(["Document:1", ID, "Document:3"]);
    let requests = [
        ("with_object_lock, waits", LockRequest::new(ID)),
        (
            "with_object_lock, waits for at most an hour",
            in_an_hour(LockRequest::new(ID)),
        ),
        ("with_object_locks, waits", three.clone()),
        (
            "with_object_locks, waits for at most an hour",
            in_an_hour(three),
        ),
    ];
    for (name, request) in requests {
        wait_for::<E>(Case::new(name, Held::Object(ID)), &request).await;
    }
}

/// A kept lock whose row is there is another lock than a row that is being inserted.
pub(crate) async fn kept_and_held_by_another<E: Engine>() {
    let requests = [
        ("with_object_lock, kept, waits", LockRequest::new(ID)),
        (
            "with_object_lock, kept, waits for at most an hour",
            in_an_hour(LockRequest::new(ID)),
        ),
    ];
    for (name, request) in requests {
        let request = request.retention(Retention::Kept);
        for prepare in [|_: &mut E::Blocking| {}, keep_row::<E>] {
            let case = Case::new(name, Held::Object(ID)).prepare(prepare);
            wait_for::<E>(case, &request).await;
        }
    }
}

fn keep_row<E: Engine>(conn: &mut E::Blocking) {
    let request = LockRequest::new(ID).retention(Retention::Kept);
    let kept = conn.with_object_lock(request, |_| Ok::<_, Error>(()));
    kept.expect("a free lock");
}

fn in_an_hour(request: LockRequest) -> LockRequest {
    request.wait(Wait::AtMost(HOUR))
}

async fn wait_for<E: Engine>(case: Case<E>, request: &LockRequest) {
    case.blocked()
        .run(|conn, attempt| {
            let work = async move |conn: &mut E::Conn| write(conn, attempt).await;
            Box::pin(conn.with_object_locks(request.clone(), work))
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

/// A task that has used up its budget of tokio when its future is dropped: sockets are not ready for it then.
pub(crate) async fn budget_used_up<E: Engine>() {
    let database = E::new();
    let watch = Watch::new(&database);
    let held = Held::Object(ID);
    for source in Source::ALL {
        let connections = database.connections(source).await;
        let reached = AtomicBool::new(false);
        let mut limit = Duration::from_millis(50);
        // The closure may not have begun when the time is up.
        while !reached.load(Ordering::SeqCst) {
            limit *= 2;
            let mut conn = connections.take().await;
            let session = E::session(&mut conn).await;
            let work = async |_: &mut E::Conn| -> Result<(), Error> {
                reached.store(true, Ordering::SeqCst);
                loop {
                    consume_budget().await;
                }
            };
            let locked = timeout(limit, conn.with_object_lock(ID, work)).await;
            assert!(locked.is_err(), "{locked:?}");
            // A pool gets it, and a connection of none stays open.
            let _bare = keep_bare::<E>(source, conn);
            let after = After {
                watch: &watch,
                session,
                place: source.name(),
            };
            after.until_quiet().await;
            after.until_free(&held).await;
        }
    }
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
    let case = Case::<E>::new("try_with_object_locks", Held::Object(ID)).parts(2);
    case.run(|conn, attempt| {
        let ids = ["Document:1", ID, "Document:3"];
        let got = conn.try_with_object_locks(ids, async move |conn| write(conn, attempt).await);
        Box::pin(async { got.await.map(|got| got.expect("free locks")) })
    })
    .await;
    let case = Case::<E>::new("lock_object, try_lock_object", Held::Object(ID)).parts(2);
    case.run(|conn, attempt| {
        Box::pin(async move {
            let work = async |conn: &mut E::Conn| -> Result<(), Error> {
                conn.lock_object(ID).await?;
                assert!(conn.try_lock_object("Document:1").await?.is_acquired());
                write(conn, attempt).await
            };
            conn.run_transaction(read_committed::<E>(), work).await
        })
    })
    .await;
}

/// Lists, and what the session remembers.
pub(crate) async fn reads<E: Engine>() {
    let case = Case::<E>::new("held_object_locks, semaphores, ..", Held::Nothing);
    case.prepare(keep_row::<E>)
        .run(|conn, _| {
            Box::pin(async {
                let all = ListOptions::new();
                assume_single_writer_async(conn).await?;
                // SQLite does not show them.
                if E::SHOWS_SESSIONS {
                    conn.held_object_locks(100).await?;
                }
                conn.semaphores(&all).await?;
                conn.held_slots(&all).await?;
                conn.sequences(&all).await.map(drop)
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
