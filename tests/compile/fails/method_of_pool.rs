//! A pool has no methods of a connection.
//~ with_object_lock
//~ Pool<ConnectionManager<

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_locks::prelude::*;

fn close_books(mut pool: Pool<ConnectionManager<PgConnection>>) -> diesel_locks::Result<()> {
    pool.with_object_lock("books", |_| Ok(()))
}

fn main() {}
