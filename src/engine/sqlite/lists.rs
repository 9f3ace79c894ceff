//! Lists semaphores, slots and sequences on SQLite.

use diesel::sqlite::Sqlite;

use crate::engine::list_queries::list_queries;
use crate::link::{self, Link};
use crate::semaphore::backend::{HeldRow, SemaphoreRow};

list_queries!(
    sqlite,
    Sqlite,
    impl Link<Backend = Sqlite>,
    str,
    String,
    String,
    SemaphoreRow,
    HeldRow,
    link,
    diesel::result::Error
);
