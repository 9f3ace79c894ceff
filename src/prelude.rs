//! The names that an application imports: `use diesel_locks::prelude::*;`

pub use crate::{
    IsolationLevel, LeaseOptions, LockRequest, ObjectId, ObjectLockExt, Retention, RetryPolicy,
    Semaphore, SemaphoreExt, Sequence, SequenceExt, Slot, TransactionExt, TransactionOptions, Wait,
};
