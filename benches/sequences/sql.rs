//! The statements by hand: fixed text with bound numbers, which Diesel prepares once per connection, as it
//! does the crate's own (`sql_query` it would prepare each time).

use std::marker::PhantomData;

use diesel::backend::Backend as Database;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};
use diesel_locks::prelude::*;

use crate::support::backend::Backend;

/// A statement, in which `$1` and `$2` are numbers.
pub(crate) trait Statement: 'static {
    const SQL: &'static str;
}

macro_rules! statements {
    ($($name:ident = $sql:literal;)*) => {$(
        pub(crate) struct $name;

        impl $crate::sql::Statement for $name {
            const SQL: &'static str = $sql;
        }
    )*};
}
pub(crate) use statements;

/// A connection on which the statements by hand run too.
pub(crate) trait Baselines: Backend + SequenceExt {
    /// Runs a statement, and says how many rows it changed.
    fn change<S: Statement>(&mut self, values: &[i64]) -> QueryResult<usize>;

    /// Runs a statement that returns one number.
    fn number<S: Statement>(&mut self, values: &[i64]) -> QueryResult<i64>;
}

struct Cached<'a, S> {
    values: &'a [i64],
    text: PhantomData<S>,
}

impl<S: Statement> QueryId for Cached<'_, S> {
    type QueryId = S;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<S> Query for Cached<'_, S> {
    type SqlType = BigInt;
}

impl<S, DB> QueryFragment<DB> for Cached<'_, S>
where
    S: Statement,
    DB: Database + HasSqlType<BigInt>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut parts = S::SQL.split('$');
        out.push_sql(parts.next().unwrap_or_default());
        for part in parts {
            let (number, rest) = part.split_at(1);
            let place: usize = number.parse().expect("a digit");
            out.push_bind_param::<BigInt, _>(&self.values[place - 1])?;
            out.push_sql(rest);
        }
        Ok(())
    }
}

macro_rules! baselines {
    ($($connection:ty),*) => {$(
        impl<S> RunQueryDsl<$connection> for Cached<'_, S> {}

        impl Baselines for $connection {
            fn change<S: Statement>(&mut self, values: &[i64]) -> QueryResult<usize> {
                let text = PhantomData::<S>;
                Cached { values, text }.execute(self)
            }

            fn number<S: Statement>(&mut self, values: &[i64]) -> QueryResult<i64> {
                let text = PhantomData::<S>;
                Cached { values, text }.get_result(self)
            }
        }
    )*};
}

baselines!(PgConnection, MysqlConnection, SqliteConnection);
