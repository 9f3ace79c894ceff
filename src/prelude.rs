//! The names that an application imports: `use diesel_locks::prelude::*;`

#[cfg(feature = "_async")]
pub use crate::{AsyncObjectLockExt, AsyncSemaphoreExt, AsyncSequenceExt, AsyncTransactionExt};
pub use crate::{
    LeaseOptions, LockRequest, ObjectId, ObjectLockExt, Semaphore, SemaphoreExt, Sequence,
    SequenceExt, TransactionExt, TransactionOptions, Wait,
};
