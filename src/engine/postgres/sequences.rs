//! Sequences on PostgreSQL: one statement inserts the row or updates it.

use diesel::prelude::*;

use super::lists;
use crate::engine::raw_sql::{push, statement};
use crate::engine::sequence_queries::{last_drawn, upsert_and_return};
use crate::inspect::list_options::ListRequest;
use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::{Error, Sequence};

upsert_and_return!(diesel::pg::Pg, PgConnection);
last_drawn!(postgres, str);

impl SequenceBackend for PgConnection {
    fn draw(conn: &mut Self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        Ok(Draw { draw }.get_result(conn).optional()?)
    }

    fn last(conn: &mut Self, sequence: &Sequence) -> Result<Option<i64>, Error> {
        let last = last_drawn(sequence.name(), sequence.scope());
        Ok(last.get_result(conn).optional()?)
    }

    fn list_sequences(
        conn: &mut Self,
        request: &ListRequest,
    ) -> Result<Vec<(String, String, i64)>, Error> {
        lists::list_sequences(conn, request)
    }
}
