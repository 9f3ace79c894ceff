//! A job that a timer starts on every node, and that one node runs.
//!
//! `cargo run --example job_on_one_node`

use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;

const NIGHTLY_REPORT: Semaphore = Semaphore::from_static("nightly-report", 1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("app.db").display().to_string();
    diesel_locks::migrate(&mut SqliteConnection::establish(&url)?)?;

    // The clocks of the nodes differ: the last timer fires when the first node has finished.
    let mut reports = Vec::new();
    for node in ["node-1", "node-2", "node-3"] {
        let mut conn = SqliteConnection::establish(&url)?;
        if timer_fires(&mut conn, node)? {
            reports.push(node);
        }
    }
    assert_eq!(reports, ["node-1"]);
    Ok(())
}

/// Returns whether this node ran the job.
fn timer_fires(conn: &mut SqliteConnection, node: &str) -> Result<bool, diesel_locks::Error> {
    // When the node dies, the lease ends after 10 min. When the job ends early, the slot stays held for 1 min,
    // longer than the clocks differ and shorter than the timer's period.
    let lease = LeaseOptions::new(Duration::from_secs(600))
        .hold_at_least(Duration::from_secs(60))
        .holder(node);
    let Some(slot) = conn.try_acquire_slot(&NIGHTLY_REPORT, lease)? else {
        println!("{node}: another node runs the job, or has run it");
        return Ok(false);
    };
    println!("{node}: runs the job");
    conn.release_slot(slot)?;
    Ok(true)
}
