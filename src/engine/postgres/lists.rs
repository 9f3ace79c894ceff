//! Lists semaphores, slots and sequences on PostgreSQL.

use diesel::pg::Pg;

use crate::engine::list_queries::{list_queries, list_text_rows};
use crate::engine::retry::autocommit_retry;
use crate::link::{self, Link};

list_queries!(
    postgres,
    Pg,
    impl Link<Backend = Pg>,
    str,
    String,
    Vec<u8>,
    String,
    link,
    diesel::result::Error
);
list_text_rows!(impl Link<Backend = Pg>, autocommit_retry);
