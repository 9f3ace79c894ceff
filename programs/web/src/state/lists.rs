//! What the database says about semaphores, locks and sequences.

use diesel_locks::Error;

use super::snapshot::{ObjectLocks, Semaphore, Sequence};
use crate::store::Store;

/// What a snapshot needs of the database.
#[derive(Default)]
pub(super) struct Lists {
    pub(super) now_us: i64,
    pub(super) semaphores: Vec<Semaphore>,
    pub(super) object_locks: ObjectLocks,
    pub(super) sequences: Vec<Sequence>,
}

impl Lists {
    pub(super) fn read<C: Store>(conn: &mut C) -> Result<Self, Error> {
        Ok(Self {
            now_us: conn.now_us()?,
            ..Self::default()
        })
    }
}
