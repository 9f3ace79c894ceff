//! Statements by hand: fixed text with bound values, which Diesel prepares once per connection, as it does the crate's own
//! (`sql_query` it would prepare each time).

use std::marker::PhantomData;

use diesel::backend::Backend as Database;
use diesel::mysql::Mysql;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType, Text};
use diesel::sqlite::Sqlite;

/// A statement. In it `$1` to `$9` are values, `$n` is the time, and `$s` that in ten seconds.
pub(crate) trait Statement: 'static {
    /// For SQLite too.
    const POSTGRES: &'static str;
    const MYSQL: &'static str = Self::POSTGRES;
}

/// One statement for all engines, or that of PostgreSQL and that of MySQL.
macro_rules! statements {
    ($($name:ident = $postgres:literal $(, $mysql:literal)?;)*) => {$(
        pub(crate) struct $name;

        impl $crate::harness::Statement for $name {
            const POSTGRES: &'static str = $postgres;
            $(const MYSQL: &'static str = $mysql;)?
        }
    )*};
}
pub(crate) use statements;

#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

/// A statement with its values. It has a type of its own, by which Diesel finds it among those that are prepared.
pub(crate) struct Cached<'a, S> {
    values: &'a [Value<'a>],
    text: PhantomData<S>,
}

impl<'a, S> Cached<'a, S> {
    pub(crate) fn new(values: &'a [Value<'a>]) -> Self {
        let text = PhantomData;
        Self { values, text }
    }
}

impl<S: Statement> QueryId for Cached<'_, S> {
    type QueryId = S;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<S> Query for Cached<'_, S> {
    type SqlType = BigInt;
}

impl<S, C> RunQueryDsl<C> for Cached<'_, S> {}

impl<S: Statement> QueryFragment<Pg> for Cached<'_, S> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let times = ["now()", "now() + interval '10 seconds'"];
        walk(S::POSTGRES, times, self.values, out)
    }
}

impl<S: Statement> QueryFragment<Mysql> for Cached<'_, S> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Mysql>) -> QueryResult<()> {
        let times = ["NOW(6)", "NOW(6) + INTERVAL 10 SECOND"];
        walk(S::MYSQL, times, self.values, out)
    }
}

impl<S: Statement> QueryFragment<Sqlite> for Cached<'_, S> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        let times = ["CURRENT_TIMESTAMP", "datetime('now', '+10 seconds')"];
        walk(S::POSTGRES, times, self.values, out)
    }
}

fn walk<'b, DB>(
    text: &str,
    [now, soon]: [&str; 2],
    values: &'b [Value<'b>],
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    DB: Database + HasSqlType<Text> + HasSqlType<BigInt>,
    str: ToSql<Text, DB>,
    i64: ToSql<BigInt, DB>,
{
    let mut parts = text.split('$');
    out.push_sql(parts.next().unwrap_or_default());
    for part in parts {
        let (what, rest) = part.split_at(1);
        match what {
            "n" => out.push_sql(now),
            "s" => out.push_sql(soon),
            number => match &values[number.parse::<usize>().expect("a digit") - 1] {
                Value::Text(text) => out.push_bind_param::<Text, str>(text)?,
                Value::Number(number) => out.push_bind_param::<BigInt, _>(number)?,
            },
        }
        out.push_sql(rest);
    }
    Ok(())
}
