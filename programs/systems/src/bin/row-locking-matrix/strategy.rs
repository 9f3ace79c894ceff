//! The strategies to increment a number, and their statements on each engine.

use std::fmt;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel};
use program_support::connection::AnyConnection;
use program_support::database::Engine;
use program_support::meeting::Meeting;
use serde::Serialize;

/// A strategy to take the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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

    /// Whether no number may be lost: a strategy that locks what it reads is right at any level, and every strategy is right at
    /// SERIALIZABLE.
    pub(crate) fn must_be_right(self, isolation: IsolationLevel) -> bool {
        !matches!(self, Self::Plain | Self::Cursor) || isolation == IsolationLevel::Serializable
    }

    /// The statements of this strategy; `None` if the engine does not have it. The cursors of MySQL and MariaDB live in
    /// stored procedures and are read-only. SQLite has neither cursors nor locks on rows.
    pub(crate) fn increment(self, engine: Engine) -> Option<Increment> {
        let has_cursors = engine == Engine::Postgres;
        match self {
            Self::Plain => Some(reading(
                "SELECT n FROM row_locking_counter WHERE id = 1",
                false,
            )),
            Self::ForUpdate => (engine != Engine::Sqlite).then(|| {
                let read = "SELECT n FROM row_locking_counter WHERE id = 1 FOR UPDATE";
                reading(read, true)
            }),
            Self::Cursor => has_cursors.then(|| {
                let declare = "DECLARE row_locking_cursor CURSOR FOR \
                     SELECT n FROM row_locking_counter WHERE id = 1";
                fetching(declare, false)
            }),
            Self::CursorForUpdate => has_cursors.then(|| {
                let declare = "DECLARE row_locking_cursor CURSOR FOR \
                     SELECT n FROM row_locking_counter WHERE id = 1 FOR UPDATE";
                fetching(declare, true)
            }),
            Self::OneUpdate if engine == Engine::Mysql => Some(Increment::Add {
                add: "UPDATE row_locking_counter SET n = LAST_INSERT_ID(n + 1) WHERE id = 1",
                result: Some("SELECT CAST(LAST_INSERT_ID() AS SIGNED)"),
            }),
            Self::OneUpdate => Some(Increment::Add {
                add: "UPDATE row_locking_counter SET n = n + 1 WHERE id = 1 RETURNING n",
                result: None,
            }),
            Self::NextNumber => Some(Increment::Draw),
        }
    }
}

fn reading(read: &'static str, locks: bool) -> Increment {
    Increment::ReadThenWrite(Reading {
        declare: None,
        read,
        write: "UPDATE row_locking_counter SET n = ? WHERE id = 1",
        locks,
    })
}

fn fetching(declare: &'static str, locks: bool) -> Increment {
    Increment::ReadThenWrite(Reading {
        declare: Some(declare),
        read: "FETCH row_locking_cursor",
        write: "UPDATE row_locking_counter SET n = ? WHERE CURRENT OF row_locking_cursor",
        locks,
    })
}

/// The statement that starts a transaction at this level; `None` if the engine does not have the level.
pub(crate) fn beginning(engine: Engine, isolation: IsolationLevel) -> Option<String> {
    match engine {
        // Every transaction is serializable. Deferred, because BEGIN IMMEDIATE would prevent all conflicts.
        Engine::Sqlite => (isolation == IsolationLevel::Serializable).then(|| "BEGIN".to_owned()),
        Engine::Postgres => Some(format!("BEGIN ISOLATION LEVEL {isolation}")),
        // The level applies to the next transaction only. Both statements are sent in one message.
        Engine::Mysql => Some(format!(
            "SET TRANSACTION ISOLATION LEVEL {isolation}; BEGIN"
        )),
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

/// The statements of a strategy on an engine. In their texts `?` stands for the number to write.
#[derive(Clone, Copy)]
pub(crate) enum Increment {
    /// Reads the number, then writes the next one.
    ReadThenWrite(Reading),
    /// Adds one in the database.
    Add {
        add: &'static str,
        /// Reads the number, if `add` does not return it.
        result: Option<&'static str>,
    },
    /// `next_number` of diesel-locks.
    Draw,
}

#[derive(Clone, Copy)]
pub(crate) struct Reading {
    declare: Option<&'static str>,
    read: &'static str,
    write: &'static str,
    /// Whether reading locks the row. Otherwise all connections may read before one writes.
    locks: bool,
}

impl Increment {
    /// Takes the next number, in the open transaction.
    pub(crate) fn draw(
        self,
        conn: &mut AnyConnection,
        sequence: &Sequence,
        meeting: &mut Meeting,
    ) -> Result<i64, Error> {
        match self {
            Self::ReadThenWrite(reading) => {
                let number = reading.read(conn)?;
                if !reading.locks {
                    meeting.wait();
                }
                Ok(reading.write(conn, number)?)
            }
            Self::Add { add, result: None } => Ok(Statement::of(add).get_result(conn)?),
            Self::Add {
                add,
                result: Some(result),
            } => {
                Statement::of(add).execute(conn)?;
                Ok(Statement::of(result).get_result(conn)?)
            }
            Self::Draw => conn.next_number(sequence),
        }
    }
}

impl Reading {
    fn read(self, conn: &mut AnyConnection) -> QueryResult<i64> {
        if let Some(declare) = self.declare {
            Statement::of(declare).execute(conn)?;
        }
        Statement::of(self.read).get_result(conn)
    }

    fn write(self, conn: &mut AnyConnection, number: i64) -> QueryResult<i64> {
        let next = number + 1;
        Statement {
            text: self.write,
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
