//! A job that the application's own timer starts on every node, and that one node runs. Without a timer of its own the
//! application calls `SlotRenewer::run_on_timer`.
//!
//! `cargo run --example job_on_one_node`

mod sqlite;

use std::time::Duration;

use diesel::SqliteConnection;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_locks::SlotRenewer;
use diesel_locks::prelude::*;

const NIGHTLY_REPORT: Semaphore = Semaphore::from_static("nightly-report", 1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("app.db").display().to_string();
    diesel_locks::migrate(&mut sqlite::pool(&url)?.get()?)?;

    // The clocks of the nodes differ: the last timer fires when the first node has finished.
    let mut reports = Vec::new();
    for node in ["node-1", "node-2", "node-3"] {
        // Each node has a renewer with a small pool of its own.
        let renewer = SlotRenewer::new(sqlite::pool(&url)?);
        if timer_fires(&renewer, node)? {
            reports.push(node);
        }
    }
    assert_eq!(reports, ["node-1"]);
    Ok(())
}

/// Returns whether this node ran the job.
fn timer_fires(
    renewer: &SlotRenewer<Pool<ConnectionManager<SqliteConnection>>>,
    node: &str,
) -> Result<bool, diesel_locks::Error> {
    // The renewer renews the lease while the job runs; when the node dies, the lease ends after 2 min. When the job ends
    // early, the slot stays held for 1 min: longer than the clocks differ, and shorter than the timer's period.
    let lease = LeaseOptions::new(Duration::from_secs(120))
        .hold_at_least(Duration::from_secs(60))
        .holder(node);
    let report = renewer.try_run(
        &NIGHTLY_REPORT,
        &lease,
        |guard| -> diesel_locks::Result<_> {
            let mut pages = 0;
            while pages < 42 {
                guard.ensure_held()?; // no report of some of the pages
                pages += 1; // a step of the work
            }
            Ok(pages)
        },
    )?;
    match report {
        Some(pages) => println!("{node}: made the report, {pages} pages"),
        None => println!("{node}: another node makes the report, or has made it"),
    }
    Ok(report.is_some())
}
