//! The strategies to increment a number, and their statements on each engine.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};
use diesel_locks::Error;
use diesel_locks::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Engine;
use program_support::meeting::Meeting;

/// A strategy to take the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// SELECT, then UPDATE to what was read plus one.
    Plain,
    /// A cursor, then UPDATE .. WHERE CURRENT OF it: the equivalent of JDBC's updatable result set.
    Cursor,
    /// SELECT .. FOR UPDATE, then UPDATE.
    ForUpdate,
    /// A cursor FOR UPDATE, then UPDATE .. WHERE CURRENT OF it.
    CursorForUpdate,
    /// One UPDATE that adds one and returns the result.
    OneUpdate,
    /// `next_number` of diesel-locks.
    NextNumber,
}

const READ: &str = "SELECT n FROM row_locking_counter WHERE id = 1";
const LOCK: &str = "SELECT n FROM row_locking_counter WHERE id = 1 FOR UPDATE";
const WRITE: &str = "UPDATE row_locking_counter SET n = ? WHERE id = 1";
const DECLARE: &str =
    "DECLARE row_locking_cursor CURSOR FOR SELECT n FROM row_locking_counter WHERE id = 1";
const DECLARE_LOCK: &str = "DECLARE row_locking_cursor CURSOR FOR SELECT n FROM row_locking_counter WHERE id = 1 FOR UPDATE";
const FETCH: &str = "FETCH row_locking_cursor";
const WRITE_CURRENT: &str =
    "UPDATE row_locking_counter SET n = ? WHERE CURRENT OF row_locking_cursor";
const ADD: &str = "UPDATE row_locking_counter SET n = n + 1 WHERE id = 1 RETURNING n";
const ADD_MYSQL: &str = "UPDATE row_locking_counter SET n = LAST_INSERT_ID(n + 1) WHERE id = 1";
const ADDED_MYSQL: &str = "SELECT CAST(LAST_INSERT_ID() AS SIGNED)";

impl Strategy {
    pub(crate) const ALL: [Self; 6] = [
        Self::Plain,
        Self::Cursor,
        Self::ForUpdate,
        Self::CursorForUpdate,
        Self::OneUpdate,
        Self::NextNumber,
    ];

    /// The title of its column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Plain => "SELECT, UPDATE",
            Self::Cursor => "cursor",
            Self::ForUpdate => "SELECT FOR UPDATE, UPDATE",
            Self::CursorForUpdate => "cursor FOR UPDATE",
            Self::OneUpdate => "one UPDATE",
            Self::NextNumber => "`next_number`",
        }
    }

    /// The statements of this strategy; `None` if the engine does not have it. The cursors of MySQL and MariaDB live in
    /// stored procedures and are read-only. SQLite has neither cursors nor locks on rows.
    pub(crate) fn increment(self, engine: Engine) -> Option<Increment> {
        let (before, read, write) = match (self, engine) {
            (Self::Plain, _) => (None, READ, Some(WRITE)),
            (Self::ForUpdate, Engine::Postgres | Engine::Mysql) => (None, LOCK, Some(WRITE)),
            (Self::Cursor, Engine::Postgres) => (Some(DECLARE), FETCH, Some(WRITE_CURRENT)),
            (Self::CursorForUpdate, Engine::Postgres) => {
                (Some(DECLARE_LOCK), FETCH, Some(WRITE_CURRENT))
            }
            (Self::OneUpdate, Engine::Mysql) => (Some(ADD_MYSQL), ADDED_MYSQL, None),
            (Self::OneUpdate, _) => (None, ADD, None),
            (Self::NextNumber, _) => return Some(Increment::Draw),
            _ => return None,
        };
        Some(Increment::Statements {
            before,
            read,
            write,
            locks: !self.reads_plainly(),
        })
    }

    /// Whether reading does not lock the row. All connections may read before one writes.
    pub(crate) fn reads_plainly(self) -> bool {
        matches!(self, Self::Plain | Self::Cursor)
    }
}

/// The statements of a strategy on an engine. In their texts `?` stands for the number to write.
#[derive(Clone, Copy)]
pub(crate) enum Increment {
    Statements {
        before: Option<&'static str>,
        read: &'static str,
        /// `None`: the number that was read is already the next one.
        write: Option<&'static str>,
        locks: bool,
    },
    /// `next_number` of diesel-locks.
    Draw,
}

impl Increment {
    /// Takes the next number, in the open transaction.
    pub(crate) fn draw(
        self,
        conn: &mut AnyConnection,
        sequence: &Sequence,
        meeting: &mut Meeting,
    ) -> Result<i64, Error> {
        let Self::Statements {
            before,
            read,
            write,
            locks,
        } = self
        else {
            return conn.next_number(sequence);
        };
        if let Some(before) = before {
            Statement::of(before).execute(conn)?;
        }
        let number: i64 = Statement::of(read).get_result(conn)?;
        if !locks {
            meeting.wait();
        }
        let Some(write) = write else {
            return Ok(number);
        };
        let next = number + 1;
        Statement {
            text: write,
            number: next,
        }
        .execute(conn)?;
        Ok(next)
    }
}

/// A statement with a fixed text, in which `?` stands for a number.
///
/// All strategies send statements of this type, so that their times can be compared: Diesel prepares it once per connection,
/// unlike `sql_query` and an UPDATE of the DSL.
pub(crate) struct Statement {
    pub(crate) text: &'static str,
    /// Not sent if the text has no `?`.
    pub(crate) number: i64,
}

impl Statement {
    /// A statement without a number.
    pub(crate) fn of(text: &'static str) -> Self {
        Self { text, number: 0 }
    }
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
