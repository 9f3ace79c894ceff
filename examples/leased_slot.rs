//! A semaphore: at most two workers at a time. Each holds a slot by a lease that is renewed in the background.
//!
//! `cargo run --example leased_slot`

mod sqlite;

use std::time::Duration;

use diesel::SqliteConnection;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions, SlotGuard, SlotRenewer};

/// At most two holders, whatever the number of servers.
const IMPORTS: Semaphore = Semaphore::from_static("imports", 2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("app.db").display().to_string();
    let pool = sqlite::pool(&url)?;
    diesel_locks::migrate(&mut pool.get()?)?;
    let renewer = SlotRenewer::new(pool.clone());

    let first = acquire(&renewer, "worker-1")?.expect("a free slot");
    let second = acquire(&renewer, "worker-2")?.expect("a free slot");
    assert!(acquire(&renewer, "worker-3")?.is_none());

    // The renewer renews both leases until their guards are released or dropped. A guard that could not be
    // renewed in time is lost: check it at each step of the work.
    assert!(first.is_held() && second.is_held());

    second.release()?;
    println!("worker-2: released");
    let third = acquire(&renewer, "worker-3")?.expect("the slot that was released");

    // Every grant has a larger fence than all grants whose calls had returned before, also those that are still held. Store it with what the holder writes,
    // and refuse a write with a smaller one: it comes from a holder that has lost its slot.
    assert!(third.fence() > first.fence());

    for held in pool.get()?.held_slots(&ListOptions::new().name(IMPORTS))? {
        println!("slot {}: held by {:?}", held.number, held.holder);
    }
    Ok(())
}

fn acquire(
    renewer: &SlotRenewer<Pool<ConnectionManager<SqliteConnection>>>,
    worker: &str,
) -> Result<Option<SlotGuard>, Error> {
    // When a worker dies, its slot is granted to another after 10 s.
    let lease = LeaseOptions::new(Duration::from_secs(10)).holder(worker);
    let guard = renewer.try_acquire(&IMPORTS, &lease)?;
    println!("{worker}: acquired: {}", guard.is_some());
    Ok(guard)
}
