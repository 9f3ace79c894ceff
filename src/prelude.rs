//! What an application imports: `use diesel_locks::prelude::*;`

pub use crate::{
    Isolation, Lease, ObjectId, ObjectLock, ObjectLocks, Retention, Retry, Semaphore, Semaphores,
    Sequence, Sequences, Slot, Transaction, Transactions, Wait,
};
