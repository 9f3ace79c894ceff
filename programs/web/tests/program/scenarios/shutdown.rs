//! An instance that ends.

#[cfg(target_os = "linux")]
use std::fs;
#[cfg(target_os = "linux")]
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::time::Instant;

use diesel::prelude::*;
use diesel_locks::prelude::*;

#[cfg(target_os = "linux")]
use crate::client::{Sent, send};
use crate::client::{get, post, send_document};
use crate::holder::Holder;
use crate::instance::Instance;
#[cfg(target_os = "linux")]
use crate::instance::PATIENCE;

pub(crate) fn sigterm_releases_slots_and_ends_waits<C: ObjectLockExt + Connection>(url: &str) {
    // Without the release, the slots are free after an hour.
    let [mut first, second] = Instance::two(
        url,
        &[
            "--permits",
            "2",
            "--lease-seconds",
            "3600",
            "--wait-seconds",
            "3600",
        ],
    );
    for _ in 0..2 {
        let started = post(first.address, "/jobs/collate?seconds=3600");
        assert_eq!(started.status, 202, "{started:?}");
    }
    assert_eq!(post(second.address, "/jobs/collate").status, 429);
    let holder = Holder::acquire::<C>(url, ObjectId::new("Document", "held"));
    let waiter = send_document(first.address, "held", 1);
    first.await_waiting(1);
    first.terminate();
    // While the lock is held.
    waiter.answer().assert_problem(503, "shutting down");
    // On SQLite nobody else can write, and release slots, while the lock is held.
    holder.release();
    assert!(first.wait().success());
    for _ in 0..2 {
        let started = post(second.address, "/jobs/collate?seconds=3600");
        assert_eq!(started.status, 202, "{started:?}");
    }
    assert_eq!(get(second.address, "/documents/held").status, 404);
}

#[cfg(target_os = "linux")]
#[test]
fn a_listener_that_does_not_read_is_not_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("web.sqlite");
    let url = path.to_str().expect("UTF-8");
    // More seconds than the test waits for the end.
    let mut instance = Instance::start(url, &["--permits", "200", "--shutdown-seconds", "3600"]);
    // Snapshots of 600 kB fill the buffers of a connection.
    let long = "%F0%9F%94%92".repeat(255);
    let path = format!("/jobs/{long}?seconds=3600&holder={long}");
    for _ in 0..200 {
        assert_eq!(post(instance.address, &path).status, 202);
    }
    let stalled = send(instance.address, "GET", "/events", &[], b"");
    await_stall(&instance, &stalled);
    instance.terminate();
    assert!(instance.wait().success());
    drop(stalled);
}

/// Waits until the instance can send no more to the listener: several snapshots are made, and the number of bytes in its
/// queue does not change.
#[cfg(target_os = "linux")]
fn await_stall(instance: &Instance, listener: &Sent) {
    let started = Instant::now();
    loop {
        let before = unsent(instance.address, listener.local_address());
        let now = || instance.state()["now_us"].as_i64();
        let later = now().map(|now| now + 2_000_000);
        instance.await_state(|state| state["now_us"].as_i64() > later);
        let after = unsent(instance.address, listener.local_address());
        if before > 0 && before == after {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{before} {after}");
    }
}

/// The bytes that one end of a connection of this machine has written, and the other end has not received.
#[cfg(target_os = "linux")]
fn unsent(from: SocketAddr, to: SocketAddr) -> u64 {
    let table = fs::read_to_string("/proc/net/tcp").expect("Linux");
    let ports = [from.port(), to.port()];
    let found = table.lines().skip(1).find_map(|line| {
        // Its number, the address of this end, that of the other, the state, and the lengths of its queues.
        let columns: Vec<&str> = line.split_whitespace().collect();
        let port = |column: &str| u16::from_str_radix(column.rsplit_once(':')?.1, 16).ok();
        let is_it = port(columns[1]) == Some(ports[0]) && port(columns[2]) == Some(ports[1]);
        let (unsent, _) = columns[4].split_once(':')?;
        is_it.then(|| u64::from_str_radix(unsent, 16).ok())?
    });
    found.expect("it is connected")
}
