//! A statement with a fixed text, in which `?` stands for a number.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};

/// All strategies send statements of this type, so that their times can be compared: Diesel prepares it once per connection,
/// unlike `sql_query` and an UPDATE of the DSL.
pub(crate) struct Statement {
    pub(crate) text: &'static str,
    /// Not sent if the text has no `?`.
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
    /// The text identifies the cached statement.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Statement {
    type SqlType = BigInt;
}

impl<C> RunQueryDsl<C> for Statement {}
