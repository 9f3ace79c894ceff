//! What instances on one database share, and what tells them apart.

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
