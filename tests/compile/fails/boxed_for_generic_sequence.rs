//! A boxed connection for a function that is generic over its connection.
//~ `diesel-locks` has no engine for `
//~ PgConnection>`
//~ pass `&mut *conn` for a pooled connection

use diesel::prelude::*;
use diesel_locks::prelude::*;

fn work<C: SequenceExt>(conn: &mut C) -> diesel_locks::Result<()> {
    conn.last_number(&Sequence::new("a")).map(drop)
}

fn start(mut conn: Box<PgConnection>) -> diesel_locks::Result<()> {
    work(&mut conn)
}

fn main() {}
