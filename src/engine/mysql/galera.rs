//! Galera (MariaDB), on which each node takes writes: a row lock excludes sessions of one node only, and a conflict with another
//! node ends a transaction at its COMMIT.
//!
//! By streaming replication the changes of a statement reach all nodes when the statement ends. Each node then keeps their rows
//! locked until the transaction ends. So a lock is a change of its row that is streamed before the closure runs: see "Several
//! writers" in DESIGN.md.

use std::fmt::Write;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread;

use diesel::QueryResult;
use diesel::mysql::Mysql;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use uuid::Uuid;

use crate::engine::active_isolation;
use crate::engine::ending::{self, START_SAVEPOINT};
use crate::engine::literal;
use crate::engine::mysql::execute::{self, MysqlError, with_errno};
use crate::engine::mysql::object_lock::{MIN_LIMIT_MS, pause, rolled_back_by_timeout};
use crate::engine::mysql::object_lock_sql::LOCK_BATCH;
use crate::engine::mysql::sequences;
use crate::engine::mysql::session::{self, Unknown};
use crate::engine::mysql::slots::try_once;
use crate::engine::mysql::sql::{BEGIN, ROLLBACK};
use crate::engine::mysql::writers::Cluster;
use crate::engine::operations::DrawRequest;
use crate::engine::slot_queries::{Key, UpdateSlot};
use crate::engine::slots::{AttemptContext, AttemptOutcome, LeaseRequest};
use crate::error::classify::ErrorClass;
use crate::link::{On, depth};
use crate::rt::caught;
use crate::values::lock_request::{LockOutcome, Request};
use crate::{Error, ObjectId, Semaphore, Slot, Wait};

/// From now on each changed row is streamed, whatever the unit of fragments, which can't be changed in a streamed transaction.
/// The session takes a row that it changes for locked on all nodes, as on one server.
const STREAM: &str = "SET @diesel_locks_fragment_size = COALESCE(@diesel_locks_fragment_size, @@SESSION.wsrep_trx_fragment_size), \
     SESSION wsrep_trx_fragment_size = 1, @diesel_locks_one_writer = 1";

/// Ends [`STREAM`], in a message of its own: in the same message as a change it may come before the change is streamed.
const RESTORE: &str = "SET SESSION wsrep_trx_fragment_size = \
     CAST(COALESCE(@diesel_locks_fragment_size, @@SESSION.wsrep_trx_fragment_size) AS UNSIGNED), \
     @diesel_locks_fragment_size = NULL, @diesel_locks_one_writer = 2";

/// [`RESTORE`] in a transaction that has just begun. RELEASE fails if another node has ended the transaction, of which the client
/// library may have lost the error.
static RESTORE_BEGUN: LazyLock<String> = LazyLock::new(|| {
    format!("{RESTORE}; RELEASE SAVEPOINT {START_SAVEPOINT}; SAVEPOINT {START_SAVEPOINT}")
});

/// The number of conflicts with other nodes after which a request that does not wait counts the object as locked.
const MAX_CONFLICTS: u32 = 5;

/// Changes the row, or inserts it. Waits as the request does.
fn lock_row(id: &ObjectId, request: &Request) -> String {
    let mut sql = match request.remaining_millis() {
        None => String::new(),
        Some(0) => {
            "SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0 FOR ".to_owned()
        }
        Some(millis) => {
            let millis = millis.max(MIN_LIMIT_MS);
            format!(
                "SET STATEMENT max_statement_time = {}.{:03} FOR ",
                millis / 1000,
                millis % 1000
            )
        }
    };
    sql.push_str("INSERT INTO diesel_locks_objects (id, kept) VALUES (");
    literal::push_for_mysql(&mut sql, id.as_str());
    sql.push_str(if request.is_kept() {
        ", TRUE"
    } else {
        ", FALSE"
    });
    // An UPDATE that changes nothing is not replicated.
    sql.push_str(") ON DUPLICATE KEY UPDATE kept = IF(kept = 1, 2, 1)");
    sql
}

/// `before`, and the end of the rows of transient locks: they stay locked on all nodes until the transaction ends.
fn and_delete(before: &str, ids: &[ObjectId]) -> String {
    let mut sql = before.to_owned();
    for id in ids {
        sql.push_str("; DELETE FROM diesel_locks_objects WHERE id = ");
        literal::push_for_mysql(&mut sql, id.as_str());
        sql.push_str(" AND NOT kept");
    }
    sql
}

/// Sends `before` and the deletions, in messages of at most [`LOCK_BATCH`] ids.
async fn send_and_delete(
    conn: &mut impl On<Mysql>,
    before: &str,
    ids: &[ObjectId],
) -> Result<(), MysqlError> {
    let (first, others) = ids.split_at(ids.len().min(LOCK_BATCH));
    send(conn, &and_delete(before, first)).await?;
    for ids in others.chunks(LOCK_BATCH) {
        send(conn, &and_delete("DO 0", ids)).await?;
    }
    Ok(())
}

/// The first ids of the request whose rows are to be deleted.
fn transient(request: &Request, acquired: usize) -> &[ObjectId] {
    if request.is_kept() {
        &[]
    } else {
        &request.ids[..acquired]
    }
}

pub(crate) async fn begin_with_locks(
    conn: &mut impl On<Mysql>,
    request: &Request,
) -> Result<LockOutcome, Error> {
    let mut conflicts = 0;
    loop {
        let Err(failure) = begin(conn, request).await? else {
            return Ok(LockOutcome::Acquired);
        };
        // Another node was first, and its lock may be gone by now; or a wait has ended.
        let waited = failure.is_end_of_wait();
        if failure.is_retryable() {
            conflicts += 1;
        } else if !waited {
            return Err(failure.into());
        }
        let is_held = waited || conflicts > MAX_CONFLICTS;
        match request.wait {
            Wait::No if is_held => return Ok(LockOutcome::Unavailable),
            Wait::AtMost(_) if is_held && request.is_expired() => {
                return Err(request.timed_out(Some(failure.error)));
            }
            // `max_statement_time` of the session.
            Wait::Forever if failure.class == ErrorClass::StatementTimeout => {
                return Err(request.timed_out(Some(failure.error)));
            }
            _ => {}
        }
        // Nothing is held: a deadlock with another node, which the server does not see, ends here.
        pause(request).await;
    }
}

/// Begins a transaction and acquires the locks in it. After a failure of the second kind none is open.
async fn begin(
    conn: &mut impl On<Mysql>,
    request: &Request,
) -> Result<Result<(), MysqlError>, Error> {
    let mut message = format!("{}; {STREAM}", *BEGIN);
    let (first, others) = request.ids.split_at(request.ids.len().min(1));
    for id in first {
        let _ = write!(message, "; {}", lock_row(id, request));
    }
    let started = caught(conn.begin(&message)).await;
    let failure = match depth::break_if_panicked(conn.status(), started) {
        Ok(()) => {
            let locked = caught(lock_others(conn, request, others)).await;
            match depth::break_if_panicked(conn.status(), locked) {
                Ok(()) => return Ok(Ok(())),
                Err(failure) => failure,
            }
        }
        Err(error) => {
            let error = session::untracked(error)?;
            with_errno(conn, error).await
        }
    };
    let undo = format!("{}; {RESTORE}", *ROLLBACK);
    session::restore_by_text(conn, &undo).await?;
    if depth::counted(conn.status()).is_ok() {
        depth::mark_closed(conn.status());
    }
    Ok(Err(failure))
}

async fn lock_others(
    conn: &mut impl On<Mysql>,
    request: &Request,
    others: &[ObjectId],
) -> Result<(), MysqlError> {
    for id in others {
        send(conn, &lock_row(id, request)).await?;
    }
    let ids = transient(request, request.ids.len());
    send_and_delete(conn, &RESTORE_BEGUN, ids).await
}

async fn send(conn: &mut impl On<Mysql>, sql: &str) -> Result<(), MysqlError> {
    let Err(error) = conn.batch(sql).await else {
        return Ok(());
    };
    let mut failure = with_errno(conn, error).await;
    if failure.error.to_string().contains(START_SAVEPOINT) {
        failure.class = ErrorClass::Deadlock;
    }
    Err(failure)
}

/// Fails in a transaction that this crate has not begun: the client library may not report that another node's transaction has
/// ended it, so that what follows, and the number or the lock, would be committed apart.
fn assert_ours(conn: &impl On<Mysql>) -> Result<(), Error> {
    match active_isolation::entered(conn) {
        Some(_) => Ok(()),
        None => Err(Cluster::Galera.refused()),
    }
}

pub(crate) async fn lock_in_transaction(
    conn: &mut impl On<Mysql>,
    request: &Request,
) -> Result<LockOutcome, Error> {
    assert_ours(conn)?;
    if let Some(unknown) = Unknown::of(active_isolation::entered(conn), || request.resource())? {
        unknown.ask(conn, || request.resource()).await?;
    }
    let mut acquired = 0;
    let locked = caught(async {
        send(conn, STREAM).await?;
        for id in &request.ids {
            send(conn, &lock_row(id, request)).await?;
            acquired += 1;
        }
        Ok(())
    });
    let locked = locked.await;
    let locked: Result<(), MysqlError> = restored(conn, RESTORE, locked).await;
    // Also those of a request that was refused, after which the transaction may be committed.
    let ids = transient(request, acquired);
    if !ids.is_empty() && !locked.as_ref().is_err_and(MysqlError::is_retryable) {
        let deleted = send_and_delete(conn, "DO 0", ids).await;
        deleted.map_err(|failure| request.partly_locked(acquired, failure.into()))?;
    }
    let Err(failure) = locked else {
        return Ok(LockOutcome::Acquired);
    };
    if !failure.is_end_of_wait() {
        return Err(request.partly_locked(acquired, failure.into()));
    }
    if failure.class == ErrorClass::LockTimeout && rolled_back_by_timeout(conn).await? {
        return Err(ending::ended(Some(failure.error)));
    }
    let error = match request.wait {
        Wait::No if acquired == 0 => return Ok(LockOutcome::Unavailable),
        Wait::No => request.unavailable(),
        Wait::Forever | Wait::AtMost(_) => request.timed_out(Some(failure.error)),
    };
    Err(request.partly_locked(acquired, error))
}

/// Sends `restore`, which begins with [`RESTORE`], also after an error or a panic.
async fn restored<T, E: From<MysqlError>>(
    conn: &mut impl On<Mysql>,
    restore: &str,
    result: thread::Result<Result<T, E>>,
) -> Result<T, E> {
    let sql = if matches!(result, Ok(Ok(_))) {
        restore
    } else {
        RESTORE
    };
    let first = caught(send(conn, sql)).await;
    let first = depth::break_if_panicked(conn.status(), first);
    if first.is_err() {
        session::restore_by_text(conn, RESTORE)
            .await
            .map_err(MysqlError::of)?;
    }
    let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
    match first {
        // The end of the transaction, which the server reports once.
        Err(failure) if failure.is_retryable() => Err(failure.into()),
        // Any other error was that of RESTORE, which was sent again.
        _ => Ok(value),
    }
}

const HOUR_US: i64 = 3_600_000_000;

/// Holds the slot by a lease that has ended already, also by the clocks of other nodes, and whose row is locked.
pub(crate) async fn try_hold(
    conn: &mut impl On<Mysql>,
    semaphore: &Semaphore,
    context: &AttemptContext,
) -> Result<AttemptOutcome, Error> {
    if context.in_transaction {
        assert_ours(conn)?;
    }
    let request = LeaseRequest {
        semaphore,
        token: Uuid::new_v4().into_bytes(),
        holder: None,
        lease_us: -HOUR_US,
        min_hold_us: 0,
    };
    let inside = AttemptContext {
        in_transaction: true,
        ..context.clone()
    };
    let held = caught(async {
        send(conn, STREAM).await?;
        try_once(conn, &request, &inside).await
    });
    let held = held.await;
    let restore = if context.in_transaction {
        RESTORE
    } else {
        &RESTORE_BEGUN
    };
    match restored(conn, restore, held).await {
        // Another node has changed the slot first. The transaction has done nothing else.
        Err(error) if error.is_retryable() && !context.in_transaction => Ok(AttemptOutcome::Locked),
        held => held,
    }
}

/// Changes the slot as little as possible.
#[derive(QueryId)]
struct Pinned;

impl QueryFragment<Mysql> for Pinned {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        out.push_sql(" SET expires_us = expires_us + 1");
        Ok(())
    }
}

pub(crate) async fn pin(conn: &mut impl On<Mysql>, slot: &Slot) -> Result<bool, Error> {
    assert_ours(conn)?;
    let pinned = caught(async {
        send(conn, STREAM).await?;
        execute::execute(conn, UpdateSlot(Pinned, Key::of(slot, true))).await
    });
    let pinned = pinned.await;
    let pinned = restored(conn, RESTORE, pinned).await?;
    Ok(pinned == 1)
}

pub(crate) async fn draw(
    conn: &mut impl On<Mysql>,
    draw: &DrawRequest<'_>,
) -> Result<Option<i64>, Error> {
    assert_ours(conn)?;
    let drawn = caught(async {
        send(conn, STREAM).await?;
        sequences::draw(conn, draw).await
    });
    let drawn = drawn.await;
    restored(conn, RESTORE, drawn).await
}
