//! Lists semaphores, slots and sequences on PostgreSQL.

use diesel::pg::Pg;

use crate::engine::list_queries::list_queries;
use crate::link::{self, Link};
use crate::semaphore::backend::{HeldRow, SemaphoreRow};

list_queries!(
    postgres,
    Pg,
    impl Link<Backend = Pg>,
    str,
    String,
    String,
    SemaphoreRow,
    HeldRow,
    link,
    diesel::result::Error
);
