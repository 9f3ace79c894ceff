//! Sequences on SQLite: one statement inserts the row or updates it.

use diesel::sqlite::Sqlite;
use diesel::{OptionalExtension, QueryDsl};

use super::lists;
use crate::engine::raw_sql::{push, statement};
use crate::engine::sequence_queries::{last_drawn, upsert_and_return};
use crate::inspect::list_options::ListRequest;
use crate::link::Link;
use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::{Error, Sequence};

upsert_and_return!(Sqlite);
last_drawn!(sqlite);

impl<C: Link<Backend = Sqlite>> SequenceBackend<C> for Sqlite {
    async fn draw(conn: &mut C, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        let drawn: Option<i64> = conn.get_result(Draw { draw }).await.optional()?;
        if drawn.is_none() {
            assert_exhausted(draw, Self::last(conn, draw.sequence).await?)?;
        }
        Ok(drawn)
    }

    async fn last(conn: &mut C, sequence: &Sequence) -> Result<Option<i64>, Error> {
        let last = last_drawn(sequence.name(), sequence.scope());
        Ok(conn.get_result(last).await.optional()?)
    }

    async fn list_sequences(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<(String, String, i64)>, Error> {
        Ok(lists::sequences(conn, request).await?)
    }
}
