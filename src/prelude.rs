//! What an application imports: `use diesel_locks::prelude::*;`

pub use crate::{ObjectId, ObjectLock, ObjectLocks, Retention, Wait};
