//! The designs that are compared: a transaction that draws a number and inserts a row.

use diesel::QueryResult;
use diesel_locks::prelude::*;

use crate::comparison::Compared;
use crate::sql::{Baselines, statements};
use crate::support::engine_filter::Engine;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Design {
    /// `next_number`.
    Ours,
    /// One statement that changes the row and returns the number.
    UpdateReturning,
    /// One statement that inserts or changes the row and returns the number.
    UpsertReturning,
    /// A read that locks, then a change.
    ForUpdate,
    /// One change, and the session is asked for the number.
    LastInsertId,
    /// A change to a row that no other connection uses, which gives no number: the limit.
    OwnRow,
}

// Each inserts into a table of its own, so that none finds the others' rows in its way.
statements! {
    InsertOurs = "INSERT INTO pass_ours VALUES ($1, $2)";

    Returning = "UPDATE next_returning SET n = n + 1 WHERE id = $1 RETURNING n";
    InsertReturning = "INSERT INTO pass_returning VALUES ($1, $2)";

    Upsert = "INSERT INTO next_upsert VALUES ($1, 1) \
              ON CONFLICT (id) DO UPDATE SET n = next_upsert.n + 1 RETURNING n";
    InsertUpsert = "INSERT INTO pass_upsert VALUES ($1, $2)";

    ReadForUpdate = "SELECT n + 1 FROM next_for_update WHERE id = $1 FOR UPDATE";
    SetNumber = "UPDATE next_for_update SET n = $2 WHERE id = $1";
    InsertForUpdate = "INSERT INTO pass_for_update VALUES ($1, $2)";

    Add = "UPDATE next_last_insert_id SET n = LAST_INSERT_ID(n + 1) WHERE id = $1";
    Added = "SELECT CAST(LAST_INSERT_ID() AS SIGNED)";
    InsertLastInsertId = "INSERT INTO pass_last_insert_id VALUES ($1, $2)";

    Touch = "UPDATE next_own_row SET n = n + 1 WHERE id = $1";
    InsertOwnRow = "INSERT INTO pass_own_row VALUES ($1, $2)";
}

impl Compared for Design {
    const OURS: Self = Self::Ours;

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "next_number",
            Self::UpdateReturning => "UPDATE .. RETURNING",
            Self::UpsertReturning => "INSERT .. ON CONFLICT .. RETURNING",
            Self::ForUpdate => "SELECT FOR UPDATE, UPDATE",
            Self::LastInsertId => "UPDATE, LAST_INSERT_ID()",
            Self::OwnRow => "UPDATE of its own row",
        }
    }
}

impl Design {
    /// The baselines for one sequence.
    pub(crate) fn for_one_sequence(engine: Engine) -> &'static [Self] {
        match engine {
            Engine::Postgres => &[
                Self::UpdateReturning,
                Self::UpsertReturning,
                Self::ForUpdate,
                Self::Ours,
            ],
            Engine::Mysql => &[Self::LastInsertId, Self::ForUpdate, Self::Ours],
            Engine::Sqlite => &[Self::UpdateReturning, Self::UpsertReturning, Self::Ours],
        }
    }

    pub(crate) const MANY_SEQUENCES: &[Self] = &[Self::OwnRow, Self::Ours];

    /// Its tables have names that end so.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::UpdateReturning => "returning",
            Self::UpsertReturning => "upsert",
            Self::ForUpdate => "for_update",
            Self::LastInsertId => "last_insert_id",
            Self::OwnRow => "own_row",
        }
    }

    /// One transaction. `unique` is a number that was not there before.
    pub(crate) fn cycle<C: Baselines>(
        self,
        conn: &mut C,
        sequence: &Sequence,
        id: i64,
        unique: i64,
    ) -> QueryResult<()> {
        let inserted = conn.transaction(|conn| match self {
            Self::Ours => {
                let number = conn.next_number(sequence)?;
                conn.change::<InsertOurs>(&[id, number])
            }
            Self::UpdateReturning => {
                let number = conn.number::<Returning>(&[id])?;
                conn.change::<InsertReturning>(&[id, number])
            }
            Self::UpsertReturning => {
                let number = conn.number::<Upsert>(&[id])?;
                conn.change::<InsertUpsert>(&[id, number])
            }
            Self::ForUpdate => {
                let number = conn.number::<ReadForUpdate>(&[id])?;
                conn.change::<SetNumber>(&[id, number])?;
                conn.change::<InsertForUpdate>(&[id, number])
            }
            Self::LastInsertId => {
                conn.change::<Add>(&[id])?;
                let number = conn.number::<Added>(&[])?;
                conn.change::<InsertLastInsertId>(&[id, number])
            }
            Self::OwnRow => {
                conn.change::<Touch>(&[id])?;
                conn.change::<InsertOwnRow>(&[id, unique])
            }
        })?;
        assert_eq!(inserted, 1, "{} inserted a row", self.name());
        Ok(())
    }
}
