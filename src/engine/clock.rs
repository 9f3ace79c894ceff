//! The database's clock, as expressions of Diesel's DSL.

use diesel::backend::Backend;
use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};

/// The SQL of an engine's clock.
pub(in crate::engine) trait Clock: Backend {
    /// Microseconds since 1970 UTC at the time of the statement, not at the start of its transaction.
    const NOW: &'static str;
    /// The function that returns the larger of two values.
    const GREATEST: &'static str;
    /// Whether the index may contain many old versions of a row. If so, statements look for the newest entry only.
    const STALE_INDEX_ENTRIES: bool = false;
    /// A condition that holds if a statement outside a transaction is committed at once; `None` where it always is.
    const COMMITTED_AT_ONCE: Option<&'static str> = None;
    /// Whether an UPDATE may count the rows that it has changed, and not those that it has found: without the flag
    /// `CLIENT_FOUND_ROWS`, which is the application's choice on a connection that it has opened itself.
    const COUNTS_CHANGED_ROWS: bool = false;
    /// After the name of a table: has an UPDATE find rows by the primary key.
    const BY_PRIMARY_KEY: &'static str = "";
}

/// Defines an expression of type BIGINT that the DSL accepts in any query: it declares no columns.
macro_rules! clock_expression {
    (
        $(#[$doc:meta])*
        $name:ident $(($field:ident))?, |$self:ident, $out:ident| $walk:block
    ) => {
        $(#[$doc])*
        #[allow(dead_code, reason = "no engine needs all")]
        #[derive(Clone, Copy, Debug, QueryId)]
        pub(in crate::engine) struct $name {
            $(pub(in crate::engine) $field: i64,)?
        }

        impl Expression for $name {
            type SqlType = BigInt;
        }

        impl<QS> AppearsOnTable<QS> for $name {}
        impl<QS> SelectableExpression<QS> for $name {}

        impl<GB> ValidGrouping<GB> for $name {
            type IsAggregate = is_aggregate::Never;
        }

        impl<DB> QueryFragment<DB> for $name
        where
            DB: Clock + HasSqlType<BigInt>,
            i64: ToSql<BigInt, DB>,
        {
            fn walk_ast<'b>(&'b $self, mut $out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
                $walk
                Ok(())
            }
        }
    };
}

clock_expression! {
    /// The time.
    DbNow, |self, out| {
        out.push_sql(DB::NOW);
    }
}

clock_expression! {
    /// The time minus a number of microseconds.
    DbNowMinus(micros), |self, out| {
        out.push_sql(DB::NOW);
        out.push_sql(" - ");
        out.push_bind_param::<BigInt, _>(&self.micros)?;
    }
}

clock_expression! {
    /// The time plus a number of microseconds.
    DbNowPlus(micros), |self, out| {
        out.push_sql(DB::NOW);
        out.push_sql(" + ");
        out.push_bind_param::<BigInt, _>(&self.micros)?;
    }
}

clock_expression! {
    /// The end of the minimum hold time of a lease that begins now: 0 without such a time. The time of the grant would lie
    /// in the future if the clock were moved back later.
    DbHoldUntil(micros), |self, out| {
        // Not two texts: the expression has one key in the cache of statements.
        out.push_sql("CASE WHEN ");
        out.push_bind_param::<BigInt, _>(&self.micros)?;
        out.push_sql(" > 0 THEN ");
        out.push_sql(DB::NOW);
        out.push_sql(" ELSE 0 END + ");
        out.push_bind_param::<BigInt, _>(&self.micros)?;
    }
}

clock_expression! {
    /// The remaining microseconds of a lease.
    LeaseRemaining, |self, out| {
        out.push_sql("expires_us - ");
        out.push_sql(DB::NOW);
    }
}
