//! A slot that was released can't be renewed.
//~ borrow of moved value: `slot`

use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::Slot;

fn finish(conn: &mut PgConnection, mut slot: Slot) -> diesel_locks::Result<()> {
    conn.release_slot(slot)?;
    conn.renew_slot(&mut slot, Duration::from_secs(9))?;
    Ok(())
}

fn main() {}
