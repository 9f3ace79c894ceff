//! What is measured: one transaction around some work, with one kind of lock or none.

use diesel::QueryResult;
use diesel_locks::prelude::*;

use super::backend::Backend;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The transaction alone.
    Bare,
    /// Insert and delete, by hand, in the seed's table.
    Seed,
    /// The engine's advisory lock, by a statement that Diesel caches.
    Advisory,
    /// `with_object_lock` that leaves no row.
    Transient,
    /// `with_object_lock` on a row that stays.
    Kept,
}

impl Variant {
    pub(crate) const ALL: &[Self] = &[
        Self::Bare,
        Self::Seed,
        Self::Advisory,
        Self::Transient,
        Self::Kept,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Seed => "seed",
            Self::Advisory => "advisory",
            Self::Transient => "transient",
            Self::Kept => "kept",
        }
    }

    /// The ids that the connections lock. Others for each variant: a row that one keeps would be there
    /// for the next.
    pub(crate) fn ids(self, connections: usize) -> Vec<String> {
        (0..connections)
            .map(|connection| format!("BondBO:{}-{connection}", self.name()))
            .collect()
    }
}

/// What happens under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One row by its primary key.
    ReadOnly,
    /// One row, another for each connection.
    Writing,
}

impl Work {
    pub(crate) const ALL: [Self; 2] = [Self::ReadOnly, Self::Writing];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Writing => "writing",
        }
    }

    pub(crate) fn run<C: Backend>(self, conn: &mut C, connection: usize) -> QueryResult<()> {
        match self {
            Self::ReadOnly => conn.read_bond(connection),
            Self::Writing => conn.write_bond(connection),
        }
    }
}

/// `work` in a transaction, with the lock on `id` that the variant stands for.
pub(crate) fn cycle<C: Backend>(
    conn: &mut C,
    variant: Variant,
    id: &str,
    work: impl FnOnce(&mut C) -> QueryResult<()>,
) -> QueryResult<()> {
    match variant {
        Variant::Bare => conn.transaction(work),
        Variant::Seed => conn.transaction(|conn| {
            conn.insert_and_delete_lock(id)?;
            work(conn)
        }),
        Variant::Advisory => conn.with_advisory_lock(id, work),
        Variant::Transient => conn.with_object_lock(id, work),
        Variant::Kept => {
            conn.with_object_lock(LockRequest::new(id).retention(Retention::Kept), work)
        }
    }
}
