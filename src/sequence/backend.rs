//! The operations that engines implement for sequences.
//!
//! A sequence is a row with the last number drawn. A draw updates the row, which locks it until the transaction ends.

use crate::inspect::list_options::ListRequest;
use crate::{Error, Sequence};

/// The sequences of an engine. Sealed, as [`HasEngine`](crate::engine::HasEngine) is.
pub trait SequenceBackend<C> {
    /// Adds to the last number, or inserts the row; returns the last number of this draw. Returns `None`, and changes
    /// nothing, when the number is larger than [`max_last`](DrawRequest::max_last). Waits for the transaction of the
    /// previous draw.
    fn draw(
        conn: &mut C,
        draw: &DrawRequest<'_>,
    ) -> impl Future<Output = Result<Option<i64>, Error>> + Send;

    /// Returns the last number drawn, by committed transactions or this one. Does not wait.
    fn last(
        conn: &mut C,
        sequence: &Sequence,
    ) -> impl Future<Output = Result<Option<i64>, Error>> + Send;

    /// Lists sequences: name, key (empty without one) and last number.
    fn list_sequences(
        conn: &mut C,
        request: &ListRequest,
    ) -> impl Future<Output = Result<Vec<(String, String, i64)>, Error>> + Send;
}

/// A validated draw.
#[derive(Clone, Copy, Debug)]
pub struct DrawRequest<'a> {
    pub(crate) sequence: &'a Sequence,
    pub(crate) count: i64,
    /// The last number of this draw if it is the sequence's first.
    pub(crate) initial_last: i64,
    /// The largest number drawn last from which this draw does not overflow.
    #[cfg_attr(
        not(any(feature = "_postgres", feature = "_sqlite")),
        allow(dead_code, reason = "InnoDB finds out by itself")
    )]
    pub(crate) max_last: i64,
}
