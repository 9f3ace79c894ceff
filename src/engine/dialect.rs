//! What is different on each database, and expressions of Diesel's DSL with its clock.

use std::future::ready;

use diesel::backend::Backend;
use diesel::sql_types::{BigInt, HasSqlType};
use diesel_migrations::EmbeddedMigrations;

use crate::Error;
use crate::engine::tables::Name;
use crate::error::classify::{ErrorClass, classify};
use crate::link::Link;

/// A back end of Diesel. Sealed: the module is private.
pub trait Dialect: Backend + HasSqlType<Name> {
    /// Microseconds since 1970 UTC at the time of the statement, not at the start of its transaction.
    const NOW: &'static str;
    const GREATEST: &'static str;
    /// Whether the index may contain many old versions of a row. If so, statements look for the newest entry only.
    const STALE_INDEX_ENTRIES: bool = false;
    /// A condition that holds if a statement outside a transaction is committed at once; `None` where it always is.
    const COMMITTED_AT_ONCE: Option<&'static str> = None;
    /// Whether an UPDATE may count the rows that it has changed, and not those that it has found: without the flag
    /// `CLIENT_FOUND_ROWS`, which is the application's choice on a connection that it has opened itself.
    const COUNTS_CHANGED_ROWS: bool = false;
    /// Whether DDL commits the transaction in which it runs.
    const COMMITS_DDL: bool = false;
    /// After the name of a table: has an UPDATE find rows by the primary key.
    const BY_PRIMARY_KEY: &'static str = "";

    const MIGRATIONS: EmbeddedMigrations;

    /// The columns and functions that the migrations create, in the words of the engine's catalog. Later versions may add some.
    fn parts() -> &'static [String];

    /// Begins the transaction of a migration of the application. Fails if the session no longer has the lock of the migrations.
    fn begin_migration(
        conn: &mut impl Link<Db = Self>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(conn.begin_nested().await?) }
    }

    /// Where the session has no lock of the migrations: a lock for one that runs outside of a transaction, until it is dropped.
    fn lock_migration(
        _conn: &mut impl Link<Db = Self>,
    ) -> impl Future<Output = Result<Option<Box<dyn Send>>, Error>> + Send {
        ready(Ok(None))
    }

    /// Removes what an interrupted migration outside of a transaction may have left, and could not use again.
    fn clear_interrupted(
        _conn: &mut impl Link<Db = Self>,
        _sql: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// The class of the error of the last statement, which is one of a migration.
    fn class_of_failure(
        _conn: &mut impl Link<Db = Self>,
        error: &diesel::result::Error,
    ) -> impl Future<Output = ErrorClass> + Send {
        ready(classify(error))
    }
}

/// Defines an expression of fixed text that the DSL accepts in any query: it declares no columns.
macro_rules! expression {
    ($name:ident -> $sql_type:ty, $($text:expr),+) => {
        #[derive(Clone, Copy, Debug, diesel::query_builder::QueryId)]
        pub(crate) struct $name;

        impl diesel::expression::Expression for $name {
            type SqlType = $sql_type;
        }

        impl<QS> diesel::expression::AppearsOnTable<QS> for $name {}
        impl<QS> diesel::expression::SelectableExpression<QS> for $name {}

        impl<GB> diesel::expression::ValidGrouping<GB> for $name {
            type IsAggregate = diesel::expression::is_aggregate::Never;
        }

        impl<DB: crate::engine::dialect::Dialect> diesel::query_builder::QueryFragment<DB> for $name {
            fn walk_ast<'b>(
                &'b self,
                mut out: diesel::query_builder::AstPass<'_, 'b, DB>,
            ) -> diesel::QueryResult<()> {
                $(out.push_sql($text);)+
                Ok(())
            }
        }
    };
}
pub(crate) use expression;

expression!(DbNow -> BigInt, DB::NOW);
expression!(LeaseRemaining -> BigInt, "expires_us - ", DB::NOW);
