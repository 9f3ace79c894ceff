//! An instance that ends.

use diesel::prelude::*;
use diesel_locks::prelude::*;

use crate::client::{get, post, send_document};
use crate::holder::Holder;
use crate::instance::Instance;

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
