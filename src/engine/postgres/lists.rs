//! Lists semaphores, slots and sequences on PostgreSQL.

use diesel::pg::{Pg, PgConnection};

use crate::engine::list_queries::{list_queries, list_text_rows};
use crate::engine::retry::autocommit_retry;

list_queries!(
    postgres,
    Pg,
    PgConnection,
    str,
    String,
    Vec<u8>,
    String,
    diesel::RunQueryDsl,
    diesel::result::Error
);
list_text_rows!(PgConnection, autocommit_retry);
