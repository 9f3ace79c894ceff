//! The names that an application imports: `use diesel_locks::prelude::*;`

pub use crate::{
    LeaseOptions, LockRequest, ObjectId, ObjectLockExt, Semaphore, SemaphoreExt, Sequence,
    SequenceExt, TransactionExt, TransactionOptions, Wait,
};
