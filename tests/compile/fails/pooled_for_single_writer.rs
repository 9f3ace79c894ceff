//! A pooled connection for a function that needs the connection itself.
//~ `diesel-locks` has no engine for `
//~ PooledConnection<ConnectionManager<
//~ pass `&mut *conn` for a pooled connection

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, PooledConnection};

fn start(
    mut conn: PooledConnection<ConnectionManager<MysqlConnection>>,
) -> diesel_locks::Result<()> {
    diesel_locks::assume_single_writer(&mut conn)
}

fn main() {}
