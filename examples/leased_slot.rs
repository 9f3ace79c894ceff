//! A semaphore: at most two workers at a time. Each holds a slot by a lease that it renews.
//!
//! `cargo run --example leased_slot`

use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;

/// At most two holders, whatever the number of servers.
const IMPORTS: Semaphore = Semaphore::from_static("imports", 2);
const TEN_SECONDS: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut conn = SqliteConnection::establish(":memory:")?;
    diesel_locks::migrate(&mut conn)?;

    let mut first = acquire(&mut conn, "worker-1")?.expect("a free slot");
    let second = acquire(&mut conn, "worker-2")?.expect("a free slot");
    assert!(acquire(&mut conn, "worker-3")?.is_none());

    // A holder renews its lease as long as it works. Without that the slot is granted to another after 10 s.
    conn.renew_slot(&mut first, TEN_SECONDS)?;
    println!("worker-1: renewed");

    conn.release_slot(second)?;
    println!("worker-2: released");
    let third = acquire(&mut conn, "worker-3")?.expect("the slot that was released");

    // Every grant has a larger fence than those that had ended before. Store it with what the holder writes,
    // and refuse a write with a smaller one: it comes from a holder that has lost its slot.
    assert!(third.fence() > first.fence());

    for held in conn.held_slots(IMPORTS.name())? {
        println!("slot {}: held by {:?}", held.number, held.holder);
    }
    Ok(())
}

fn acquire(conn: &mut SqliteConnection, worker: &str) -> Result<Option<Slot>, diesel_locks::Error> {
    let slot = conn.try_acquire_slot(&IMPORTS, LeaseOptions::new(TEN_SECONDS).holder(worker))?;
    match &slot {
        Some(slot) => println!("{worker}: acquired slot {}", slot.number()),
        None => println!("{worker}: no slot is free"),
    }
    Ok(slot)
}
