//! Retries statements that are safe to repeat.

use diesel::mysql::Mysql;

use super::execute::MysqlError;
use crate::Error;
use crate::engine::retry::StatementError;
use crate::error::classify::ErrorClass;
use crate::link::{self, Link};
use crate::transaction::depth;

/// The number of changed rows of a statement that fails instead of waiting: 0 if it has failed so.
pub(super) fn unless_locked(executed: Result<usize, MysqlError>) -> Result<usize, MysqlError> {
    match executed {
        Err(failure) if failure.class == ErrorClass::LockTimeout => Ok(0),
        result => result,
    }
}

/// Runs `$work` in a transaction at READ COMMITTED, which locks no gaps and sees what was committed before each of its
/// statements. Restarts it when InnoDB aborts it to break a deadlock, or when another node inserts the same row first.
macro_rules! at_read_committed {
    ($conn:expr, $work:expr) => {
        loop {
            if let Err(error) = crate::engine::mysql::session::begin($conn, sql::BEGIN).await {
                break Err(error);
            }
            let work = $work;
            match crate::engine::mysql::retry::end($conn, work).await {
                Ok(Some(value)) => break Ok(value),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
        }
    };
}
pub(super) use at_read_committed;

/// Ends the transaction of [`at_read_committed`]. Returns `None` if it is to be restarted.
pub(super) async fn end<T>(
    conn: &mut impl Link<Backend = Mysql>,
    work: Result<T, MysqlError>,
) -> Result<Option<T>, Error> {
    // COMMIT reports a conflict with a transaction on another node.
    let done = match work {
        Ok(value) => match link::commit(conn).await {
            Ok(()) => Ok(value),
            Err(error) => Err(MysqlError::of(error)),
        },
        Err(failure) => {
            link::roll_back(conn).await;
            Err(failure)
        }
    };
    match done {
        Ok(value) => Ok(Some(value)),
        // Not on a connection that its rollback has found to be lost.
        Err(failure)
            if (failure.is_retryable() || failure.is_duplicate()) && depth::depth(conn).is_ok() =>
        {
            Ok(None)
        }
        Err(failure) => Err(failure.into()),
    }
}
