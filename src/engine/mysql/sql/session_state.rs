//! What statements return about the session besides their rows.

use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::mysql::Mysql;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Nullable};

use crate::engine::raw_sql::{push, statement};

/// 1 if the session does not know yet that there is one writer.
pub(in crate::engine::mysql) const WRITER_UNKNOWN: &str = "@diesel_locks_one_writer IS NULL";

/// 1 in a transaction, 0 outside; NULL on MySQL.
pub(in crate::engine::mysql) const IN_TRANSACTION: &str =
    "CAST(/*!80000 NULL *//*M!100100 @@in_transaction */ AS SIGNED)";

/// The session's isolation level, 1 to 4 as in `LEVELS`. A number, because a broken client library loses texts
/// (`Error::BrokenClientLibrary`). A level that `SET TRANSACTION` has set for one transaction is not visible without
/// the privilege PROCESS. MariaDB has had the newer name of the variable only since 11.1, and still has the older.
pub(super) const ISOLATION_LEVEL: &str = "FIELD(/*!80000 @@SESSION.transaction_isolation *//*M!100100 @@SESSION.tx_isolation */, \
     'READ-UNCOMMITTED', 'READ-COMMITTED', 'REPEATABLE-READ', 'SERIALIZABLE')";

/// Makes an expression of the DSL from one of the texts above.
macro_rules! expression {
    ($(#[$doc:meta])* $name:ident: $sql_type:ty = $sql:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, QueryId)]
        pub(in crate::engine::mysql) struct $name;

        impl Expression for $name {
            type SqlType = $sql_type;
        }

        impl<QS> AppearsOnTable<QS> for $name {}
        impl<QS> SelectableExpression<QS> for $name {}

        impl<GB> ValidGrouping<GB> for $name {
            type IsAggregate = is_aggregate::Never;
        }

        impl QueryFragment<Mysql> for $name {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
                out.push_sql($sql);
                Ok(())
            }
        }
    };
}

expression! {
    /// [`WRITER_UNKNOWN`].
    WriterUnknown: BigInt = WRITER_UNKNOWN
}
expression! {
    /// [`IN_TRANSACTION`].
    InTransaction: Nullable<BigInt> = IN_TRANSACTION
}
expression! {
    /// [`ISOLATION_LEVEL`].
    SessionLevel: BigInt = ISOLATION_LEVEL
}

/// The session's isolation level, and whether a transaction is open if the server reports it.
pub(in crate::engine::mysql) type Session = (i64, Option<i64>);

statement! {
    Mysql;
    /// Reads [`Session`].
    SessionState {} -> (BigInt, Nullable<BigInt>),
    |self, out| {
        push!(out; "SELECT "; {ISOLATION_LEVEL}; ", "; {IN_TRANSACTION});
    }
}
