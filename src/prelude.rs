//! What an application imports: `use diesel_locks::prelude::*;`

pub use crate::{
    Lease, ObjectId, ObjectLock, ObjectLocks, Retention, Semaphore, Semaphores, Sequence,
    Sequences, Slot, Wait,
};
