//! The crate lacks the feature of the engine.
//@ features: sqlite
//~ `diesel-locks` has no engine for `
//~ PgConnection`
//~ enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`

use diesel::prelude::*;

fn start(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    diesel_locks::migrate(conn)?;
    Ok(())
}

fn main() {}
