//! The designs that are compared: a transaction that draws a number and inserts a row.

use clap::ValueEnum;
use diesel::QueryResult;
use diesel_locks::prelude::*;

use crate::harness::{Backend, Engine, Statement, Value, Variant, statements};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Design {
    #[value(name = "next_number")]
    Ours,
    /// One statement that changes the row and returns the number.
    #[value(name = "UPDATE .. RETURNING")]
    Returning,
    /// A read that locks, then a change.
    #[value(name = "SELECT FOR UPDATE, UPDATE")]
    ForUpdate,
    /// A change to a row that no other connection uses, which gives no number: the limit.
    #[value(name = "UPDATE of its own row")]
    OwnRow,
}

// Each inserts into a table of its own, so that none finds the others' rows in its way.
statements! {
    InsertOurs = "INSERT INTO pass_ours VALUES ($1, $2)";

    Returning = "UPDATE next_returning SET n = n + 1 WHERE id = $1 RETURNING n";
    InsertReturning = "INSERT INTO pass_returning VALUES ($1, $2)";

    ReadForUpdate = "SELECT n + 1 FROM next_for_update WHERE id = $1 FOR UPDATE";
    SetNumber = "UPDATE next_for_update SET n = $2 WHERE id = $1";
    InsertForUpdate = "INSERT INTO pass_for_update VALUES ($1, $2)";

    Touch = "UPDATE next_own_row SET n = n + 1 WHERE id = $1";
    InsertOwnRow = "INSERT INTO pass_own_row VALUES ($1, $2)";
}

impl Variant for Design {}

impl Design {
    /// The baselines for one sequence.
    pub(crate) fn for_one_sequence(engine: Engine) -> &'static [Self] {
        match engine {
            Engine::Postgres => &[Self::Returning, Self::ForUpdate, Self::Ours],
            Engine::Mysql => &[Self::ForUpdate, Self::Ours],
            Engine::Sqlite => &[Self::Returning, Self::Ours],
        }
    }

    /// Its tables have names that end so.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Returning => "returning",
            Self::ForUpdate => "for_update",
            Self::OwnRow => "own_row",
        }
    }

    /// One transaction. `unique` is a number that was not there before.
    pub(crate) fn cycle<C: Backend>(
        self,
        conn: &mut C,
        sequence: &Sequence,
        id: i64,
        unique: i64,
    ) -> QueryResult<()> {
        let id = Value::Number(id);
        let inserted = conn.transaction(|conn| match self {
            Self::Ours => {
                let number = conn.next_number(sequence)?;
                conn.change::<InsertOurs>(&[id, Value::Number(number)])
            }
            Self::Returning => {
                let number = number::<C, Returning>(conn, &[id])?;
                conn.change::<InsertReturning>(&[id, Value::Number(number)])
            }
            Self::ForUpdate => {
                let number = number::<C, ReadForUpdate>(conn, &[id])?;
                conn.change::<SetNumber>(&[id, Value::Number(number)])?;
                conn.change::<InsertForUpdate>(&[id, Value::Number(number)])
            }
            Self::OwnRow => {
                conn.change::<Touch>(&[id])?;
                conn.change::<InsertOwnRow>(&[id, Value::Number(unique)])
            }
        })?;
        assert_eq!(inserted, 1, "{} inserted a row", self.name());
        Ok(())
    }
}

/// The number that a statement returns.
fn number<C: Backend, S: Statement>(conn: &mut C, values: &[Value<'_>]) -> QueryResult<i64> {
    conn.number::<S>(values)?.ok_or(diesel::NotFound)
}
