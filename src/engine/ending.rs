//! The end of a transaction: rollbacks, the errors of one that has ended before, and what is repeated after an abort.

use crate::Error;
use crate::engine::Engine;
use crate::link::Savepoint;
use crate::link::depth::{break_if_panicked, counted, mark_broken, mark_closed};
use crate::rt::{self, LATEST_ANSWER, caught};

/// The savepoint with which a transaction of this crate starts on MySQL and SQLite, and which others do not have.
pub(crate) const START_SAVEPOINT: &str = "diesel_locks_started";

/// Fails if no transaction is open: on PostgreSQL SAVEPOINT, on MySQL, where it has no effect then, RELEASE, whose error names the
/// savepoint.
pub(crate) const ASSERT_OPEN: &str =
    "SAVEPOINT diesel_locks_open; RELEASE SAVEPOINT diesel_locks_open";

/// Maps an error of COMMIT or RELEASE. An error that names a savepoint, in any language, means that the savepoint does
/// not exist, because the database has already ended its transaction. So does one on PostgreSQL that names the statement.
pub(crate) fn commit_error(error: diesel::result::Error) -> Error {
    if let diesel::result::Error::DatabaseError(_, information) = &error
        && [START_SAVEPOINT, "diesel_savepoint_", "RELEASE SAVEPOINT"]
            .iter()
            .any(|savepoint| information.message().contains(savepoint))
    {
        return ended(Some(error));
    }
    error.into()
}

pub(crate) fn ended(source: Option<diesel::result::Error>) -> Error {
    aborted("the database has already ended it".to_owned(), source)
}

pub(crate) fn aborted(reason: String, source: Option<diesel::result::Error>) -> Error {
    Error::TransactionAborted { reason, source }
}

/// Rolls back the closure's work, with nested transactions: a panic leaves those open that Diesel's `transaction` has started.
/// Returns `false` when part of the work may be committed, because the transaction of this crate had already ended.
///
/// Does not return the error of a rollback, because the closure's error or panic takes precedence. If a rollback fails,
/// the connection is lost: the server ends its transaction, and the connection is marked as broken.
pub(crate) async fn roll_back_from(engine: &mut dyn Engine, inside: u32) -> bool {
    let mut rolled_back = false;
    while let Ok(now) = counted(engine.status())
        && now >= inside.max(2)
    {
        // diesel-async panics in a debug build, if the future of a nested transaction of its own was dropped at its end.
        let Ok(result) = caught(engine.savepoint(Savepoint::RollBack)).await else {
            tracing::warn!("a rollback panicked: the connection is not used any more");
            mark_broken(engine.status());
            rolled_back = false;
            break;
        };
        rolled_back = result.is_ok();
        if let Err(error) = result {
            tracing::warn!(%error, "rollback failed");
            if counted(engine.status()).is_ok_and(|after| after >= now) {
                break;
            }
        }
    }
    if inside > 1 {
        return rolled_back;
    }
    let was_broken = counted(engine.status()).is_err();
    let outcome = if was_broken && !engine.is_in_process() {
        // What has broken it may be that the server does not answer.
        rt::answer_within(LATEST_ANSWER, caught(engine.roll_back())).await
    } else {
        Some(caught(engine.roll_back()).await)
    };
    let Some(outcome) = outcome else {
        tracing::warn!("no answer to a rollback: the connection is not used any more");
        return false;
    };
    let result = break_if_panicked(engine.status(), outcome);
    match &result {
        // On SQLite, Diesel takes the connection for sound again.
        Ok(_) if was_broken => mark_broken(engine.status()),
        // Also when Diesel does not know of the transaction, because the application has started it by its own SQL.
        Ok(_) if counted(engine.status()).is_ok() => mark_closed(engine.status()),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "rollback failed");
            mark_broken(engine.status());
        }
    }
    result.unwrap_or(false)
}

pub(crate) async fn roll_back(engine: &mut dyn Engine) {
    if let Ok(now) = counted(engine.status()) {
        roll_back_from(engine, now).await;
    }
}

/// Runs a statement. If it is its own transaction, retries it until no deadlock or serialization failure aborts it: above READ
/// COMMITTED a single statement can fail with the latter.
///
/// A macro, because a future that calls a closure which returns futures is not known to be `Send`.
macro_rules! autocommit_retry {
    ($conn:expr, $statement:expr) => {{
        use crate::Error;

        let autocommit = crate::link::depth::depth($conn.status())? == 0;
        loop {
            match $statement.map_err(Error::from) {
                Err(error) if autocommit && error.is_retryable() => {}
                result => break result,
            }
        }
    }};
}
pub(crate) use autocommit_retry;
