//! What differs per engine for sequences.
//!
//! A sequence is a row with the number drawn last. A draw changes the row, and so keeps it from others
//! until its transaction ends.

use crate::migrate::MigrationBackend;
use crate::{Error, Sequence};

/// The sequence store of an engine. Sealed, as [`MigrationBackend`] is.
pub trait SequenceBackend: MigrationBackend {
    /// Adds to the number drawn last, or makes the row. `None`, and nothing changed, when the row has more
    /// than [`max_last`](DrawRequest::max_last). Waits for the transaction that drew before.
    fn draw(conn: &mut Self, draw: &DrawRequest<'_>) -> Result<Option<i64>, Error>;

    /// The number drawn last, of the draws that are committed and our own.
    fn last(conn: &mut Self, sequence: &Sequence) -> Result<Option<i64>, Error>;
}

/// A draw that is asked for, checked.
#[derive(Clone, Copy, Debug)]
pub struct DrawRequest<'a> {
    pub(crate) sequence: &'a Sequence,
    pub(crate) count: i64,
    /// The number drawn last after the very first draw.
    pub(crate) initial_last: i64,
    /// The largest number drawn last that leaves enough.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite")),
        allow(dead_code, reason = "InnoDB finds out by itself")
    )]
    pub(crate) max_last: i64,
}
