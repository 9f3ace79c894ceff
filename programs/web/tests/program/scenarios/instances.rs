//! What instances on one database share, and what tells them apart.

use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;

use crate::client::post;
use crate::instance::Instance;

pub(crate) fn instances_share_their_permits<C>(url: &str) {
    let mut first = Instance::start(url, &["--permits", "2"]);
    let mut second = Instance::start(url, &[]);
    for instance in [&first, &second] {
        assert_eq!(post(instance.address, "/jobs/a?seconds=3600").status, 202);
    }
    for instance in [&first, &second] {
        let refused = post(instance.address, "/jobs/a");
        refused.assert_problem(429, "2 jobs \"a\" run already");
    }
    let (code, text) = Instance::refused(url, &["--permits", "1"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("have --permits 2, not 1"), "{text}");
    for instance in [&mut first, &mut second] {
        instance.terminate();
        assert!(instance.wait().success());
    }
    let first = Instance::start(url, &["--permits", "1", "--change-permits"]);
    let second = Instance::start(url, &["--permits", "1"]);
    assert_eq!(post(first.address, "/jobs/a?seconds=3600").status, 202);
    let refused = post(second.address, "/jobs/a");
    refused.assert_problem(429, "1 jobs \"a\" run already");
}

pub(crate) fn instances_are_told_apart_by_their_names<C>(url: &str) {
    let instances = [
        Instance::start(url, &[]),
        Instance::start(url, &[]),
        Instance::start(url, &["--name", "node 3"]),
    ];
    let name_of = |instance: &Instance| instance.state()["instance"].as_str().map(str::to_owned);
    let names = instances.each_ref().map(|it| name_of(it).expect("a name"));
    assert!(
        names[0].ends_with(&format!("-{}", instances[0].process())),
        "{names:?}"
    );
    assert!(names[0] != names[1], "{names:?}");
    assert_eq!(names[2], "node 3");
    for instance in &instances {
        assert_eq!(post(instance.address, "/jobs/a?seconds=3600").status, 202);
    }
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    instances[0].await_state(|state| {
        let slots = state["semaphores"][0]["slots"]
            .as_array()
            .into_iter()
            .flatten();
        let mut holders: Vec<_> = slots.filter_map(|slot| slot["holder"].as_str()).collect();
        holders.sort_unstable();
        holders == sorted
    });
    for name in ["", "a\nb", "a\u{1b}b"] {
        let (code, text) = Instance::refused(url, &["--name", name]);
        assert_eq!(code, Some(2), "{name:?}: {text}");
    }
}

pub(crate) fn released_slots_are_free_after_their_minimum_hold_time<C>(url: &str)
where
    C: SemaphoreExt + Connection,
{
    let instance = Instance::start(url, &[]);
    let mut conn = C::establish(url).expect("the database answers");
    let hour = Duration::from_secs(3600);
    let lease = LeaseOptions::new(hour).hold_at_least(hour).holder("node-1");
    let semaphore = Semaphore::from_static("nightly", 1);
    let slot = conn.acquire_slot(&semaphore, lease, Wait::AtMost(hour));
    let slot = slot.expect("it is free");
    let shows = |state: &'static str| {
        instance.await_state(|all| {
            let slot = &all["semaphores"][0]["slots"][0];
            slot["state"] == state && slot["holder"] == "node-1"
        });
    };
    shows("held");
    conn.release_slot(slot).expect("it is held");
    shows("released");
    let state = instance.state();
    let slot = &state["semaphores"][0]["slots"][0];
    assert!(
        slot["free_us"].as_i64() > state["now_us"].as_i64(),
        "{state}"
    );
    // It has ended, as the list of the last minute says.
    instance.await_state(|state| state["handovers"][0]["to_us"].is_i64());
}
