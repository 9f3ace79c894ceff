//! Sequences on MySQL and MariaDB: one statement inserts the row or updates it.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use diesel::mysql::Mysql;
use diesel::result::DatabaseErrorKind;
use diesel::sql_types::{BigInt, Binary};
use diesel::{ExpressionMethods, QueryDsl};

use crate::engine::dialect::expression;
use crate::engine::ending;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::MysqlError;
use crate::engine::mysql::object_lock_sql::{AcquireNamedLock, ReleaseNamedLock};
use crate::engine::mysql::sql::{WRITER_UNKNOWN, WriterUnknown};
use crate::engine::sequence_queries::DrawRequest;
use crate::engine::tables::{Name, Named, diesel_locks_sequences};
use crate::link::raw_sql::statement;
use crate::link::{Link, depth};
use crate::rt::{caught, lock};
use crate::{Error, Sequence};

/// One named lock for all sequences not seen before: see "Sequences" in DESIGN.md. Contains a NUL, which no object id does.
const NAMED_LOCK: &[u8] = b"sequences\0";

/// The longest wait for the named lock in seconds: InnoDB does not detect deadlocks that involve it.
const NAMED_LOCK_TIMEOUT: i32 = 5;

/// The error number of a value out of range: the sum exceeds BIGINT.
const OUT_OF_RANGE: i64 = 1690;

/// The error number of NULL in a column that is NOT NULL.
const NULL: i64 = 1048;

#[diesel::declare_sql_function]
extern "SQL" {
    #[sql_name = "COALESCE"]
    fn coalesce_names(given: Name, otherwise: Name) -> Name;
}

expression!(EmptyName -> Name, "x''");

/// The row by its key. The scope may be empty: MariaDB binds an empty text as NULL if `sql_mode` has `EMPTY_STRING_IS_NULL`,
/// but not the literal `x''`.
#[diesel::dsl::auto_type]
pub(crate) fn row<'a>(sequence: &'a Sequence) -> _ {
    let name: Named<'a> = Named(sequence.name());
    let given: Named<'a> = Named(sequence.scope());
    diesel_locks_sequences::table.find((name, coalesce_names(given, EmptyName)))
}

statement! {
    Mysql;
    /// Inserts the row or adds to its number, which only MariaDB returns. Raw, because Diesel does not cache an upsert.
    Add<'a> { draw: &'a DrawRequest<'a> } -> (BigInt, BigInt),
    |self| {
        "INSERT INTO diesel_locks_sequences (name, scope, last) VALUES (", Binary = self.draw.sequence.name().as_bytes();
        // As in `row`.
        ", COALESCE(", Binary = self.draw.sequence.scope().as_bytes(); ", x'')";
        // NULL, which is an error, outside a transaction, where the number could be drawn twice.
        ", /*M!100100 IF(@@in_transaction OR NOT @@autocommit, */", BigInt = &self.draw.initial_last;
        "/*M!100100 , NULL) */) ON DUPLICATE KEY UPDATE last = last + ", BigInt = &self.draw.count;
        " /*M!100500 RETURNING last, "; {WRITER_UNKNOWN}; " */";
    }
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    pub(crate) async fn draw_on_server(
        &mut self,
        draw: &DrawRequest<'_>,
    ) -> Result<Option<i64>, Error> {
        let is_seen = lock(&SEEN).contains(draw.sequence);
        let last = if is_seen {
            self.add(draw).await?
        } else {
            let added = caught(self.add_with_named_lock(draw)).await;
            depth::break_if_panicked(self.0.status(), added)?
        };
        // This draw was not the first: a committed transaction drew before, or this transaction did.
        if !is_seen && last != Some(draw.initial_last) {
            let mut seen = lock(&SEEN);
            if seen.len() >= MAX_SEEN {
                seen.clear();
            }
            seen.insert(draw.sequence.clone());
        }
        Ok(last)
    }

    async fn add_with_named_lock(&mut self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        let (id, seconds) = (NAMED_LOCK, NAMED_LOCK_TIMEOUT);
        let taken: Result<(Option<i64>, i64), MysqlError> =
            self.get_result(AcquireNamedLock { id, seconds }).await;
        let leave = match &taken {
            Ok((taken, _)) => *taken == Some(1),
            // It may have acquired the named lock.
            Err(failure) => failure.is_interrupted(),
        };
        let added = async {
            let (_, unknown) = taken?;
            self.ensure_one_writer(unknown == 1).await?;
            self.add(draw).await
        };
        let added = added.await;
        if leave {
            let left = self.restore(&ReleaseNamedLock { id }).await;
            if added.is_ok() {
                left?;
            }
        }
        added
    }

    async fn add(&mut self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        if !C::IS_OF_DIESEL {
            self.assert_in_transaction(None).await?;
        }
        let mut added = self.get_result(Add { draw }).await;
        if let Err(failure) = &added
            && failure.is_without_rows()
        {
            // diesel-async has executed the statement: on MySQL, which returns no rows. Diesel has not: it first asks for the
            // columns. There are none on MySQL, and on MariaDB until the connection has executed the statement once.
            let executed = if C::IS_OF_DIESEL {
                self.assert_in_transaction(None).await?;
                self.execute(Add { draw }).await
            } else {
                Ok(0)
            };
            added = match executed {
                Ok(_) => self.read_or_undo(draw).await,
                Err(failure) => Err(failure),
            };
        }
        match added {
            Ok((last, unknown)) => {
                if let Err(error) = self.ensure_one_writer(unknown == 1).await {
                    self.undo_or_break(draw, Some(last)).await;
                    return Err(error);
                }
                Ok(Some(last))
            }
            Err(failure) if failure.number == Some(OUT_OF_RANGE) => Ok(None),
            Err(failure) if is_null_refused(&failure) => Err(ending::ended(Some(failure.error))),
            Err(failure) => Err(failure.into()),
        }
    }

    /// The number drawn last, and [`WRITER_UNKNOWN`], after a draw, which an error takes back.
    async fn read_or_undo(&mut self, draw: &DrawRequest<'_>) -> Result<(i64, i64), MysqlError> {
        // Not a plain read, which would take the snapshot for the transaction's later reads.
        let last = row(draw.sequence).select((diesel_locks_sequences::last, WriterUnknown));
        let read = self.get_result(last.for_update()).await;
        if read.is_err() {
            self.undo_or_break(draw, None).await;
        }
        read
    }

    /// Takes the draw back after an error, which the closure may ignore and commit: then there is no gap. If that fails,
    /// the transaction can't be committed any more.
    async fn undo_or_break(&mut self, draw: &DrawRequest<'_>, last: Option<i64>) {
        let undone = caught(self.undo_draw(draw, last)).await;
        if let Err(error) = depth::break_if_panicked(self.0.status(), undone) {
            depth::mark_broken(self.0.status());
            tracing::warn!(%error, "a number can't be taken back: the connection is marked as broken");
        }
    }

    /// Deletes the row if the number drawn last is known to be the first one, and otherwise subtracts what the draw has
    /// added. So a row may stay that has the number before the first. The count of the upsert does not tell whether the row
    /// is new: if the statement returns rows, MariaDB counts one row in both cases. Fails after the end of the transaction,
    /// which has undone the draw: the subtraction would take back another one.
    async fn undo_draw(&mut self, draw: &DrawRequest<'_>, last: Option<i64>) -> Result<(), Error> {
        self.assert_in_transaction(None).await?;
        let row = row(draw.sequence);
        if last == Some(draw.initial_last) {
            self.execute(diesel::delete(row)).await?;
            return Ok(());
        }
        let before = diesel_locks_sequences::last - draw.count;
        let update = diesel::update(row).set(diesel_locks_sequences::last.eq(before));
        self.execute(update).await?;
        Ok(())
    }
}

/// Whether the number would have been drawn outside of a transaction. The error's number is asked of the server, which may not
/// answer any more: then Diesel's classification tells it.
fn is_null_refused(failure: &MysqlError) -> bool {
    failure.number == Some(NULL)
        || matches!(
            failure.error,
            diesel::result::Error::DatabaseError(DatabaseErrorKind::NotNullViolation, _)
        )
}

/// The sequences whose rows existed when this process drew from them. A guess: it is wrong for another
/// database, for a row deleted since, and when the transaction that inserted the row drew again and then rolled back.
/// Then a deadlock is possible.
static SEEN: LazyLock<Mutex<HashSet<Sequence>>> = LazyLock::new(Mutex::default);

/// The most entries of [`SEEN`], which is then cleared.
const MAX_SEEN: usize = 10_000;
