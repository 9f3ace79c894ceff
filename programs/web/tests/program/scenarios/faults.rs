//! An instance that ends, and a database that is down.

use std::time::Instant;
use std::{thread, time::Duration};

use diesel::prelude::*;
use diesel_locks::prelude::*;

use crate::client::{get, post, send_document};
use crate::holder::Holder;
use crate::instance::{Instance, PATIENCE};
use crate::proxy::Proxy;

pub(crate) fn sigterm_releases_slots_and_ends_waits<C: ObjectLockExt + Connection>(url: &str) {
    // Without the release, the slots are free after an hour.
    let [mut first, second] = Instance::two(
        url,
        &["--permits", "2", "--lease-seconds", "3600", "--wait-seconds", "3600"],
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

pub(crate) fn the_service_recovers_with_its_database<C>(url: &str) {
    let (proxy, url) = Proxy::url(url);
    let instance = Instance::start(&url, &[]);
    assert_eq!(get(instance.address, "/health").status, 200);
    assert_eq!(send_document(instance.address, "a", 1).answer().status, 201);
    proxy.cut();
    for path in ["/health", "/accounts", "/documents/a"] {
        let answer = get(instance.address, path);
        answer.assert_problem(503, "");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    let answer = send_document(instance.address, "a", 2).answer();
    answer.assert_problem(503, "");
    instance.await_state(|state| state["error"].is_string());
    proxy.restore();
    let started = Instant::now();
    while get(instance.address, "/health").status != 200 {
        assert!(started.elapsed() < PATIENCE, "no recovery");
        thread::sleep(Duration::from_millis(50));
    }
    // r2d2 opens a connection of the other pool after a pause of its own.
    while send_document(instance.address, "a", 2).answer().status == 503 {
        assert!(started.elapsed() < PATIENCE, "no recovery");
    }
    instance.await_state(|state| state["error"].is_null());
    assert!(get(instance.address, "/documents/a").body.contains("12:00:02Z"));
}
