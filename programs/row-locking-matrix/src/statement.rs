//! A statement of fixed text, with a number in the place of `?`.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};

/// All ways send statements of this type, which Diesel prepares once for each connection, other than
/// `sql_query` and an UPDATE of the DSL: so times tell something about the ways.
pub(crate) struct Statement {
    pub(crate) text: &'static str,
    /// Not sent when there is no `?`.
    pub(crate) number: i64,
}

impl<DB> QueryFragment<DB> for Statement
where
    DB: Backend + HasSqlType<BigInt>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let (before, after) = match self.text.split_once('?') {
            Some((before, after)) => (before, Some(after)),
            None => (self.text, None),
        };
        out.push_sql(before);
        if let Some(after) = after {
            out.push_bind_param::<BigInt, _>(&self.number)?;
            out.push_sql(after);
        }
        Ok(())
    }
}

impl QueryId for Statement {
    type QueryId = ();
    /// The text tells statements apart.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Statement {
    type SqlType = BigInt;
}

impl<C> RunQueryDsl<C> for Statement {}
