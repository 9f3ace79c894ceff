//! The draw of numbers, and the statements for sequences that several engines send.

use diesel::backend::Backend;
use diesel::dsl::auto_type;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Text};

use crate::engine::tables::{Named, SEQUENCES, diesel_locks_sequences as sequences, protected};
use crate::link::raw_sql::push;
use crate::{Error, Sequence};

/// A validated draw.
#[derive(Clone, Copy, Debug)]
pub struct DrawRequest<'a> {
    pub(crate) sequence: &'a Sequence,
    pub(crate) count: i64,
    /// The last number of this draw if it is the sequence's first.
    pub(crate) initial_last: i64,
    /// The largest number drawn last from which this draw does not overflow.
    pub(crate) max_last: i64,
}

/// A sequence: name, key (empty without one) and last number.
pub(crate) type SequenceRow = (String, String, i64);

/// The number drawn last that this transaction can see.
#[auto_type]
pub(crate) fn last_drawn<'a>(name: Named<'a>, scope: Named<'a>) -> _ {
    sequences::table.find((name, scope)).select(sequences::last)
}

#[auto_type]
pub(crate) fn list_sequences(limit: i64) -> _ {
    sequences::table
        .order((sequences::name, sequences::scope))
        .select((sequences::name, sequences::scope, sequences::last))
        .limit(limit)
}

/// The draw on PostgreSQL and SQLite: returns its last number; no row when too few numbers are left. Raw, because Diesel
/// does not cache an upsert written in its DSL.
pub(crate) struct Upsert<'a>(pub(crate) &'a DrawRequest<'a>);

impl QueryId for Upsert<'_> {
    type QueryId = Upsert<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Upsert<'_> {
    type SqlType = BigInt;
}

impl<DB: Backend> QueryFragment<DB> for Upsert<'_>
where
    str: ToSql<Text, DB>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let DrawRequest {
            sequence,
            count,
            initial_last,
            max_last,
        } = self.0;
        push!(out;
            "INSERT INTO diesel_locks_sequences (name, scope, last) VALUES (", Text = sequence.name();
            ", ", Text = sequence.scope();
            ", ", BigInt = initial_last;
            ") ON CONFLICT (name, scope) DO UPDATE SET last = diesel_locks_sequences.last + ", BigInt = count;
            " WHERE diesel_locks_sequences.last <= ", BigInt = max_last;
            " RETURNING last";
        );
        Ok(())
    }
}

/// Fails if enough numbers are left after an [`Upsert`] that has changed nothing: a trigger or a rule suppresses it.
pub(crate) fn assert_exhausted(draw: &DrawRequest<'_>, last: Option<i64>) -> Result<(), Error> {
    if last.is_some_and(|last| last > draw.max_last) {
        return Ok(());
    }
    Err(protected(SEQUENCES))
}
