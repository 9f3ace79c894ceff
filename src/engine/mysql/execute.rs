//! Runs statements, with a time limit or in a session with a small `max_join_size` too, and reads the numbers of their errors.
//!
//! Every statement of this engine runs by these methods. Those of [`Link`](crate::link::Link) with their names do not empty
//! the cache after an error: this module and `session` alone call them, and `migration_runner`, whose caller empties it.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::QueryMetadata;
use diesel::mysql::{Mysql, MysqlValue};
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel::result::DatabaseErrorKind;
use diesel::sql_types::{Binary, Integer};

use crate::Error;
use crate::engine::Engine;
use crate::engine::ending;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::sql::{
    AnyText, ErrorNumber, KEEP_ERROR_NUMBER, RestoreLimit, RollbackOnTimeout, SetLimit,
};
use crate::error::classify::mysql::class_of_errno;
use crate::error::classify::{ErrorClass, classify};
use crate::link::raw_sql::statement;
use crate::link::{Link, depth};
use crate::rt::caught;

/// `KILL QUERY`.
const INTERRUPTED: i64 = 1317;

const TOO_BIG_SELECT: i64 = 1104;

/// Whether a session of this process has found a node of Galera: only then others are asked before they lock.
pub(crate) static GALERA_FOUND: AtomicBool = AtomicBool::new(false);

pub(crate) struct MysqlError {
    pub(crate) class: ErrorClass,
    pub(crate) number: Option<i64>,
    pub(crate) error: diesel::result::Error,
}

impl From<MysqlError> for Error {
    fn from(failure: MysqlError) -> Self {
        match failure.class {
            // Diesel's error may wrap an error of this crate.
            ErrorClass::Other => failure.error.into(),
            class => Self::from_class(class, failure.error),
        }
    }
}

impl MysqlError {
    /// For errors of BEGIN, COMMIT and ROLLBACK, which are classified by their text alone: their number is unknown.
    ///
    /// Not `From`: the compiler lists the types of which an application's error could be made, and would list this one.
    pub(crate) fn of(error: impl Into<diesel::result::Error>) -> Self {
        let error = error.into();
        Self {
            class: classify(&error),
            number: None,
            error,
        }
    }

    pub(crate) fn is_retryable(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::Deadlock | ErrorClass::SerializationFailure
        )
    }

    /// Whether `KILL QUERY` or a time limit ended the statement, which may have taken effect. The error's number is
    /// unknown when the statement that reads it was ended too.
    pub(crate) fn is_interrupted(&self) -> bool {
        match self.class {
            ErrorClass::StatementTimeout => true,
            ErrorClass::Other if self.number.is_none() => true,
            _ => self.number == Some(INTERRUPTED),
        }
    }

    pub(crate) fn is_end_of_wait(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::LockTimeout | ErrorClass::LockNotAvailable | ErrorClass::StatementTimeout
        )
    }

    pub(crate) fn is_without_rows(&self) -> bool {
        matches!(
            self.error,
            diesel::result::Error::DeserializationError(_) | diesel::result::Error::NotFound
        )
    }

    /// Whether a row with this key already exists.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.number == Some(1062) || is_unique_violation(&self.error)
    }
}

fn is_unique_violation(error: &diesel::result::Error) -> bool {
    matches!(
        error,
        diesel::result::Error::DatabaseError(DatabaseErrorKind::UniqueViolation, _)
    )
}

statement! {
    Mysql;
    /// SET STATEMENT, or a hint, can't be added to a query of the DSL.
    PermitBigSelects {} -> Integer,
    |self| {
        "SET @diesel_locks_big_selects = @@SESSION.sql_big_selects, SESSION sql_big_selects = 1"
    }

    /// Has no effect unless [`PermitBigSelects`] has run before.
    RestoreBigSelects {} -> Integer,
    |self| {
        "SET SESSION sql_big_selects = \
         CAST(COALESCE(@diesel_locks_big_selects, @@SESSION.sql_big_selects) AS UNSIGNED), \
         @diesel_locks_big_selects = NULL"
    }
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    pub(crate) async fn load<Q, T>(&mut self, query: Q) -> Result<Vec<T>, MysqlError>
    where
        Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
        Mysql: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Mysql> + Send,
    {
        match self.0.load(query).await {
            Ok(rows) => Ok(rows),
            Err(error) => Err(self.with_reset_cache(error).await),
        }
    }

    pub(crate) async fn get_optional<Q, T>(&mut self, query: Q) -> Result<Option<T>, MysqlError>
    where
        Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
        Mysql: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Mysql> + Send,
    {
        Ok(self.load(query).await?.into_iter().next())
    }

    pub(crate) async fn get_result<Q, T>(&mut self, query: Q) -> Result<T, MysqlError>
    where
        Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
        Mysql: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Mysql> + Send,
    {
        self.get_optional(query).await.and_then(present)
    }

    /// [`get_optional`](Self::get_optional) with a time limit in milliseconds. Also returns how long the query took, without
    /// the statements that set and restore the limit, to which it does not apply.
    pub(crate) async fn get_within<Q, T>(
        &mut self,
        limit: Option<i32>,
        query: Q,
    ) -> (Result<Option<T>, MysqlError>, Duration)
    where
        Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
        Mysql: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Mysql> + Send,
    {
        let mut took = Duration::ZERO;
        let row = caught(async {
            if let Some(millis) = limit {
                // `lock_wait_timeout` is in seconds.
                let seconds = millis.saturating_add(999) / 1000;
                self.execute(SetLimit { millis, seconds }).await?;
            }
            let started = Instant::now();
            let row = self.get_optional(query).await;
            took = started.elapsed();
            row
        });
        let row = row.await;
        let row = match limit {
            // Also after an error of SET, which may have taken effect.
            Some(_) => self.restore_by(&RestoreLimit {}, row).await,
            None => row.unwrap_or_else(|panic| resume_unwind(panic)),
        };
        (row, took)
    }

    pub(crate) async fn execute(
        &mut self,
        statement: impl QueryFragment<Mysql> + QueryId + Send,
    ) -> Result<usize, MysqlError> {
        match self.0.execute(statement).await {
            Ok(count) => Ok(count),
            Err(error) => Err(self.with_reset_cache(error).await),
        }
    }

    /// Keeps the statement cache after an error: for a statement that often fails, and returns no rows on any server.
    pub(crate) async fn execute_cached(
        &mut self,
        statement: impl QueryFragment<Mysql> + QueryId + Send,
    ) -> Result<usize, MysqlError> {
        match self.0.execute(statement).await {
            Ok(count) => Ok(count),
            Err(error) => Err(self.with_errno(error).await),
        }
    }

    /// Loads an operator's list, again with `sql_big_selects` if the server has refused it because of `max_join_size`.
    pub(crate) async fn load_list<Q, T>(
        &mut self,
        query: impl Fn() -> Q + Send,
    ) -> Result<Vec<T>, MysqlError>
    where
        Q: AsQuery<Query: QueryFragment<Mysql> + QueryId + Send> + Send,
        Mysql: QueryMetadata<Q::SqlType>,
        T: FromSqlRow<Q::SqlType, Mysql> + Send,
    {
        match self.load(query()).await {
            Err(refused) if refused.number == Some(TOO_BIG_SELECT) => {
                let result = caught(async {
                    self.execute(PermitBigSelects {}).await?;
                    self.load(query()).await
                });
                let result = result.await;
                self.restore_by(&RestoreBigSelects {}, result).await
            }
            result => result,
        }
    }

    pub(crate) async fn restore_by<T, E: From<MysqlError>>(
        &mut self,
        statement: &(impl QueryFragment<Mysql> + QueryId + Sync),
        result: thread::Result<Result<T, E>>,
    ) -> Result<T, E> {
        let restored = self.restore(statement).await;
        let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
        restored.map_err(MysqlError::of)?;
        Ok(value)
    }

    /// Empties the cache of prepared statements: an error can come in place of rows, and the next execution of the statement
    /// would wait for rows forever (see "Errors" in DESIGN.md). A row found by its whole key is locked before the columns are
    /// sent, but on Galera the abort of a transaction can still come in place of the row.
    async fn with_reset_cache(&mut self, error: diesel::result::Error) -> MysqlError {
        // The number must be read before the next statement.
        let failure = self.with_errno(error).await;
        if let diesel::result::Error::DatabaseError(..) = failure.error {
            self.0.reset_statement_cache();
        }
        failure
    }

    pub(crate) async fn with_errno(&mut self, error: diesel::result::Error) -> MysqlError {
        let mut failure = MysqlError::of(error);
        // Only for unknown texts, because reading the number takes four round trips.
        if let diesel::result::Error::DatabaseError(kind, information) = &mut failure.error
            && failure.class == ErrorClass::Other
            && let Some(number) = self.error_number().await
        {
            failure.number = Some(number);
            failure.class = class_of_errno(number, information.message());
            // A node of Galera may report so that another node has ended a transaction.
            if number == INTERRUPTED && GALERA_FOUND.load(Ordering::Relaxed) {
                failure.class = ErrorClass::SerializationFailure;
                // By its kind it is known in a closure of the application too.
                *kind = DatabaseErrorKind::SerializationFailure;
            }
        }
        failure
    }

    /// Reads the number of the last statement's error; `None` when that fails.
    pub(crate) async fn error_number(&mut self) -> Option<i64> {
        self.0.batch(KEEP_ERROR_NUMBER).await.ok()?;
        // Not by the engine's own `load`, which would read the number of this statement's own error.
        // All rows are read, so that none is left for the next statement.
        let rows: diesel::QueryResult<Vec<_>> = self.0.load(ErrorNumber {}).await;
        let Ok(rows) = rows else {
            self.0.reset_statement_cache();
            return None;
        };
        rows.into_iter().next().flatten()
    }

    /// Whether a lock wait time-out ends the transaction and not only the statement (`innodb_rollback_on_timeout`).
    pub(crate) async fn timeout_rolls_back(&mut self) -> Result<bool, MysqlError> {
        let set: i64 = self.get_result(RollbackOnTimeout {}).await?;
        Ok(set == 1)
    }

    pub(crate) async fn check_client_library(&mut self) -> Result<(), Error> {
        let text: String = self.get_result(AnyText {}).await?;
        assert_read([text.as_bytes()])
    }

    /// Ends a transaction at READ COMMITTED. Returns `None` if it is to be restarted: the server has aborted it, to break a
    /// deadlock or for a conflict with another node, or another node has inserted the same row first.
    pub(crate) async fn end_or_restart<T>(
        &mut self,
        work: Result<T, MysqlError>,
    ) -> Result<Option<T>, Error> {
        let (restart, error) = match work {
            Ok(value) => match self.commit().await {
                Ok(()) => return Ok(Some(value)),
                Err(error) => (is_conflict(&error), error),
            },
            Err(failure) => {
                let restart = failure.is_retryable() || failure.is_duplicate();
                (restart, failure.into())
            }
        };
        ending::roll_back(self).await;
        // Not on a connection that its rollback has found to be lost.
        if restart && depth::depth(self.0.status()).is_ok() {
            return Ok(None);
        }
        Err(error)
    }
}

/// Whether COMMIT has failed for a transaction on another node.
fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Database(source) if is_unique_violation(source))
        || error.is_retryable()
        || error.is_transaction_aborted()
}

pub(crate) fn present<T>(row: Option<T>) -> Result<T, MysqlError> {
    row.ok_or_else(|| MysqlError::of(diesel::result::Error::NotFound))
}

pub(crate) fn unless_ended<T>(result: Result<T, MysqlError>) -> Result<Option<T>, MysqlError> {
    match result {
        Err(failure) if failure.is_end_of_wait() => Ok(None),
        result => result.map(Some),
    }
}

/// Fails for the empty values that a broken client library returns in place of texts and bytes.
pub(crate) fn assert_read<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Error> {
    if values.into_iter().any(<[u8]>::is_empty) {
        return Err(Error::BrokenClientLibrary);
    }
    Ok(())
}

/// The value of a column that is never empty.
#[derive(Debug, FromSqlRow)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl FromSql<Binary, Mysql> for Bytes {
    fn from_sql(value: MysqlValue<'_>) -> deserialize::Result<Self> {
        let bytes = <Vec<u8> as FromSql<Binary, Mysql>>::from_sql(value)?;
        assert_read([bytes.as_slice()])?;
        Ok(Self(bytes))
    }
}
