//! A pool of connections that block, where a function needs one of diesel-async.
//~ <ConnectionManager<
//~ Style == Async

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_locks::{Async, LockPool};

fn serve(_: LockPool<impl diesel_locks::Pool<Style = Async>>) {}

fn start(pool: Pool<ConnectionManager<PgConnection>>) {
    serve(LockPool::new(pool));
}

fn main() {}
