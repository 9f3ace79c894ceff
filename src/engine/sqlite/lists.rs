//! Lists semaphores, slots and sequences on SQLite.

use diesel::sqlite::Sqlite;

use crate::engine::list_queries::{list_queries, list_text_rows};
use crate::link::{self, Link};

list_queries!(
    sqlite,
    Sqlite,
    impl Link<Backend = Sqlite>,
    str,
    String,
    Vec<u8>,
    String,
    link,
    diesel::result::Error
);
/// A read does not conflict with other transactions.
macro_rules! once {
    ($conn:expr, $statement:expr) => {
        $statement.map_err(crate::Error::from)
    };
}

list_text_rows!(impl Link<Backend = Sqlite>, once);
