//! A leader with automatic fail-over: two nodes stand for election, and when the first one is shut down, the other leads.
//!
//! `cargo run --example leader`

mod sqlite;

use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, Shutdown, SlotRenewer};

const LEADER: Semaphore = Semaphore::from_static("mail-queue-leader", 1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("app.db").display().to_string();
    diesel_locks::migrate(&mut sqlite::pool(&url)?.get()?)?;

    // In an application each node is a process with a `Shutdown` and a renewer.
    let nodes = [Shutdown::new(), Shutdown::new()];
    let (steps, made) = channel();
    scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        for (number, shutdown) in nodes.iter().enumerate() {
            let renewer = shutdown.add_renewer(&SlotRenewer::new(sqlite::pool(&url)?));
            let steps = steps.clone();
            scope.spawn(move || {
                let lease =
                    LeaseOptions::new(Duration::from_secs(15)).holder(format!("node-{number}"));
                renewer.run_as_leader(&LEADER, &lease, |leader| {
                    while leader.sleep(Duration::from_millis(10)) {
                        // A step of the leader's work. Store the fence with what it writes.
                        let _ = steps.send((number, leader.fence()));
                    }
                    Ok::<_, Error>(()) // it stands for election again, unless it is shut down
                })
            });
        }
        let (first, fence) = made.recv()?;
        println!("node {first} leads");

        // SIGTERM to the leader.
        let left = nodes[first].shut_down(Duration::from_secs(5));
        assert!(left.is_empty(), "{left:?}");
        let (second, next_fence) = made.iter().find(|(node, _)| *node != first).ok_or("none")?;
        println!("node {second} leads");
        assert!(next_fence > fence);
        assert!(nodes[second].shut_down(Duration::from_secs(5)).is_empty());
        Ok(())
    })
}
