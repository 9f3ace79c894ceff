//! Sequences on PostgreSQL: one statement inserts the row or updates it.

use diesel::pg::Pg;
use diesel::{OptionalExtension, QueryDsl};

use super::lists;
use super::protected::{SEQUENCES, ensure_visible};
use crate::engine::raw_sql::{push, statement};
use crate::engine::retry::autocommit_retry;
use crate::engine::sequence_queries::{last_drawn, upsert_and_return};
use crate::inspect::list_options::ListRequest;
use crate::link::Link;
use crate::sequence::backend::{DrawRequest, SequenceBackend};
use crate::{Error, Sequence};

upsert_and_return!(Pg);
last_drawn!(postgres);

impl<C: Link<Backend = Pg>> SequenceBackend<C> for Pg {
    async fn draw(conn: &mut C, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error> {
        let drawn: Option<i64> = conn.get_result(Draw { draw }).await.optional()?;
        if drawn.is_none() {
            assert_exhausted(draw, Self::last(conn, draw.sequence).await?)?;
        }
        Ok(drawn)
    }

    async fn last(conn: &mut C, sequence: &Sequence) -> Result<Option<i64>, Error> {
        let last = last_drawn(sequence.name(), sequence.scope());
        let last: Option<i64> = conn.get_result(last).await.optional()?;
        ensure_visible(conn, SEQUENCES, last.is_some()).await?;
        Ok(last)
    }

    async fn list_sequences(
        conn: &mut C,
        request: &ListRequest,
    ) -> Result<Vec<(String, String, i64)>, Error> {
        let rows = autocommit_retry!(conn, lists::sequences(conn, request).await)?;
        ensure_visible(conn, SEQUENCES, !rows.is_empty()).await?;
        Ok(rows)
    }
}
