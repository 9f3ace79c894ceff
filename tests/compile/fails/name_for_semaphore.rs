//! A name alone does not say how many permits there are.
//~ expected `&Semaphore`, found `&str`

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn tick(conn: &mut PgConnection) -> diesel_locks::Result<Option<()>> {
    conn.try_with_slot("timer", |_| Ok(()))
}

fn main() {}
