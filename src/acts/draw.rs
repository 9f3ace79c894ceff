//! Draws numbers.

use std::ops::RangeInclusive;

use crate::acts::transaction::assert_in_transaction;
use crate::engine::Engine;
use crate::engine::operations::DrawRequest;
use crate::{Error, Sequence};

pub(crate) async fn draw_range(
    engine: &mut dyn Engine,
    sequence: &Sequence,
    count: u32,
) -> Result<RangeInclusive<i64>, Error> {
    if count == 0 {
        return Err(Error::InvalidCount {
            sequence: sequence.to_string(),
            count,
        });
    }
    let last = draw(engine, "next_numbers", sequence, count).await?;
    Ok(last - i64::from(count) + 1..=last)
}

pub(crate) async fn draw(
    engine: &mut dyn Engine,
    method: &'static str,
    sequence: &Sequence,
    count: u32,
) -> Result<i64, Error> {
    sequence.validate()?;
    assert_in_transaction(engine, method).await?;
    let exhausted = |last| Error::SequenceExhausted {
        sequence: sequence.to_string(),
        count,
        last,
    };
    let first = sequence.start();
    let initial_last = match first.checked_add(i64::from(count) - 1) {
        Some(last) => last,
        // Too many for the first draw. A sequence with a row continues from its number: the inserted value is
        // not used.
        None if engine.last(sequence).await?.is_some() => i64::MAX,
        None => return Err(exhausted(first - 1)),
    };
    let draw = DrawRequest {
        sequence,
        count: count.into(),
        initial_last,
        max_last: i64::MAX - i64::from(count),
    };
    if let Some(last) = engine.draw(&draw).await? {
        return Ok(last);
    }
    let last = engine.last(sequence).await?.unwrap_or(first - 1);
    Err(exhausted(last))
}
