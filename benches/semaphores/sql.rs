//! The other designs' statements: fixed text with bound values, which Diesel prepares once per connection,
//! as it does the crate's own (`sql_query` it would prepare each time).

use std::marker::PhantomData;

use diesel::backend::Backend as Database;
use diesel::connection::SimpleConnection;
use diesel::mysql::Mysql;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType, Text as SqlText};
use diesel_locks::prelude::*;

use crate::support::backend::Backend;

/// A statement. In it `$1` to `$9` are values, `$n` is the time, and `$s` that in ten seconds.
pub(crate) trait Statement: 'static {
    const POSTGRES: &'static str;
    const MYSQL: &'static str;
}

/// One statement for both servers, or that of PostgreSQL and that of MySQL.
macro_rules! statements {
    ($($name:ident = $postgres:literal $(, $mysql:literal)?;)*) => {$(
        pub(crate) struct $name;

        impl $crate::sql::Statement for $name {
            const POSTGRES: &'static str = $postgres;
            #[allow(unused_assignments, reason = "the second is not always there")]
            const MYSQL: &'static str = {
                let text = $postgres;
                $(let _ = text; let text = $mysql;)?
                text
            };
        }
    )*};
}
pub(crate) use statements;

#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

/// A connection on which the other designs run too.
pub(crate) trait Baselines: Backend + SemaphoreExt {
    /// A moment, as a column's type.
    const TIME: &'static str;

    /// Runs a statement, and says how many rows it changed (MySQL: found).
    fn change<S: Statement>(&mut self, values: &[Value<'_>]) -> QueryResult<usize>;

    /// Runs a statement that returns one number or nothing.
    fn number<S: Statement>(&mut self, values: &[Value<'_>]) -> QueryResult<Option<i64>>;

    /// READ COMMITTED from now on, or else the server's default.
    fn set_read_committed(&mut self, committed: bool) -> QueryResult<()>;
}

struct Cached<'a, S> {
    values: &'a [Value<'a>],
    text: PhantomData<S>,
}

impl<S: Statement> QueryId for Cached<'_, S> {
    type QueryId = S;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<S> Query for Cached<'_, S> {
    type SqlType = BigInt;
}

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

fn walk<'b, DB>(
    text: &str,
    [now, soon]: [&str; 2],
    values: &'b [Value<'b>],
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    DB: Database + HasSqlType<SqlText> + HasSqlType<BigInt>,
    str: ToSql<SqlText, DB>,
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
                Value::Text(text) => out.push_bind_param::<SqlText, str>(text)?,
                Value::Number(number) => out.push_bind_param::<BigInt, _>(number)?,
            },
        }
        out.push_sql(rest);
    }
    Ok(())
}

macro_rules! baselines {
    ($connection:ty, $time:literal, |$conn:ident, $committed:ident| $isolation:expr) => {
        impl<S> RunQueryDsl<$connection> for Cached<'_, S> {}

        impl Baselines for $connection {
            const TIME: &'static str = $time;

            fn change<S: Statement>(&mut self, values: &[Value<'_>]) -> QueryResult<usize> {
                let text = PhantomData::<S>;
                Cached { values, text }.execute(self)
            }

            fn number<S: Statement>(&mut self, values: &[Value<'_>]) -> QueryResult<Option<i64>> {
                let text = PhantomData::<S>;
                Cached { values, text }.get_result(self).optional()
            }

            fn set_read_committed(&mut self, $committed: bool) -> QueryResult<()> {
                let $conn = self;
                $isolation
            }
        }
    };
}

// It is PostgreSQL's default.
baselines!(PgConnection, "TIMESTAMPTZ", |_conn, _committed| Ok(()));
baselines!(MysqlConnection, "TIMESTAMP(6) NULL", |conn, committed| {
    let level = if committed {
        "READ COMMITTED"
    } else {
        "REPEATABLE READ"
    };
    conn.batch_execute(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))
});
