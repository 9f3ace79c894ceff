//! The variants that are compared: a transaction with one kind of lock, or with none.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The transaction alone.
    Baseline,
    /// The 2010 insert-delete baseline: insert and delete a row of a lock table, by hand.
    InsertDelete,
    /// The engine's advisory lock, by a statement that Diesel caches.
    Advisory,
    /// `with_object_lock` that leaves no row.
    Transient,
    /// `with_object_lock` on a row that stays.
    Kept,
}

impl Variant {
    pub(crate) const ALL: &[Self] = &[
        Self::Baseline,
        Self::InsertDelete,
        Self::Advisory,
        Self::Transient,
        Self::Kept,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::InsertDelete => "insert-delete",
            Self::Advisory => "advisory",
            Self::Transient => "transient",
            Self::Kept => "kept",
        }
    }

    /// The ids that the connections lock. They differ by variant: a row that one variant keeps would
    /// exist for the next.
    pub(crate) fn ids(self, connections: usize) -> Vec<String> {
        (0..connections)
            .map(|connection| format!("BondBO:{}-{connection}", self.name()))
            .collect()
    }
}
