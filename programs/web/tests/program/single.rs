//! What single requests are answered, and how an instance ends.

use std::process::Stdio;

use diesel_locks::ObjectId;
use program_support::testing::http::{get, send, send_json};
use program_support::testing::{Signal, wait_until};
use serde_json::{Value, json};

use crate::client::{document, post, send_document, send_transfer};
use crate::holder::Holder;
use crate::instance::Instance;

on_all_engines!(
    documents_keep_the_newest_version,
    the_wait_for_a_lock_ends,
    errors_are_problems,
    metrics_tell_what_happens,
    sigterm_releases_slots_and_ends_waits,
);

fn documents_keep_the_newest_version(url: &str) {
    let [first, second] = Instance::two(url, &[]);
    let id = "%C3%84%2Fa%20";
    for (address, changed, status) in [
        (first.address, 10, 201),
        (second.address, 5, 204),
        (second.address, 10, 204),
        (second.address, 20, 200),
    ] {
        let answer = send_document(address, id, changed).answer();
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let stored = get(first.address, &format!("/documents/{id}"));
    assert_eq!(stored.status, 200);
    assert_eq!(stored.header("content-type"), Some("application/xml"));
    assert_eq!(stored.body, document(20));
    // Ids are compared as bytes.
    let absent = get(first.address, "/documents/%C3%84%2Fa");
    absent.assert_problem(404, "no document \"Ä/a\"");
}

fn the_wait_for_a_lock_ends(url: &str) {
    let instance = Instance::start(url, &["--wait-seconds", "8", "--max-waiting", "1"]);
    let holder = Holder::acquire(url, ObjectId::new("Document", "held"));
    let waiter = send_document(instance.address, "held", 1);
    instance.await_waiting(1);
    let too_many = send_document(instance.address, "other", 1).answer();
    too_many.assert_problem(503, "1 requests use the database");
    let answer = waiter.answer();
    let timed_out = "the object lock \"Document:held\": not acquired within ";
    answer.assert_problem(409, timed_out);
    assert_eq!(answer.header("retry-after"), Some("1"));
    holder.release();
}

fn errors_are_problems(url: &str) {
    let mut instance = Instance::start_with_log(url, &["--max-body", "1000"], Stdio::piped());
    let ask = |method, path: &str, body: &str, status, detail: &str| {
        let answer = send(instance.address, method, path, &[], body).answer();
        println!("{method} {path}: {answer:?}");
        answer.assert_problem(status, detail);
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'"), "{policy}");
        answer
    };
    let long = "a".repeat(256);
    let large = document(1).replace("4711", &"x".repeat(2000));
    let changed = document(1);
    let undated = changed.replace("2026-", "");
    let poor = r#"{"from":1,"to":2,"amount":1001}"#;
    ask("GET", "/nowhere", "", 404, "/nowhere");
    ask("GET", "/documents/absent", "", 404, "absent");
    ask("POST", "/transfers", poor, 415, "application/json");
    let refused = ask("DELETE", "/documents/a", "", 405, "/documents/a");
    assert!(refused.header("allow").expect("methods").contains("PUT"));
    for (document, body, status, detail) in [
        ("a", "no XML", 422, "not well-formed XML"),
        ("a", "<a/>", 422, "the root has no child <cbc:IssueDate>"),
        ("a", &undated, 422, "neither an xs:date nor an xs:dateTime"),
        ("a", &large, 413, "1000 bytes"),
        ("a?hold_ms=x", &changed, 400, "hold_ms"),
        ("a?hold_ms=50001", &changed, 400, "50000"),
        ("%FF", &changed, 400, ""),
        ("a%00b", &changed, 400, "NUL"),
        (&long, &changed, 400, "255"),
    ] {
        let path = format!("/documents/{document}");
        ask("PUT", &path, body, status, detail);
    }
    for (site, status) in [
        ("cross-site", 403),
        ("same-site", 403),
        ("same-origin", 201),
    ] {
        let headers = [("Sec-Fetch-Site", site)];
        let answer = send(instance.address, "POST", "/meetings/1/passes", &headers, "").answer();
        assert_eq!(answer.status, status, "{site}: {answer:?}");
    }
    for (body, status, detail) in [
        ("{", 400, "JSON"),
        (r#"{"from":1}"#, 422, "to"),
        (poor, 422, "account 1 has 1000, not 1001"),
        (r#"{"from":1,"to":99,"amount":1}"#, 404, "no account 99"),
        (r#"{"from":1,"to":2,"amount":0}"#, 422, "amount=0"),
        (r#"{"from":1,"to":1,"amount":1}"#, 422, "both 1"),
    ] {
        let answer = send_json(instance.address, "/transfers", &[], body).answer();
        answer.assert_problem(status, detail);
    }
    for (path, detail) in [
        (&format!("/meetings/{long}/passes")[..], "255"),
        (&format!("/jobs/{long}"), "255"),
        ("/jobs/a%00b", "NUL"),
        ("/jobs/a?seconds=-1", "3600"),
        ("/jobs/a?seconds=NaN", "3600"),
    ] {
        ask("POST", path, "", 400, detail);
    }
    // The errors of clients are none of the service.
    assert_eq!(instance.terminate(), "");
}

fn metrics_tell_what_happens(url: &str) {
    let mut instance = Instance::start(url, &["--permits", "1", "--name", "node-1"]);
    assert_eq!(send_document(instance.address, "a", 1).answer().status, 201);
    assert_eq!(send_transfer(instance.address, 1, 2).answer().status, 200);
    assert_eq!(post(instance.address, "/jobs/a?seconds=60").status, 202);
    assert_eq!(post(instance.address, "/jobs/a").status, 429);
    let metrics = get(instance.address, "/metrics").body;
    for line in [
        r#"diesel_locks_requests_total{kind="object_lock",outcome="granted"} 2"#,
        r#"diesel_locks_wait_seconds_count{kind="object_lock"} 2"#,
        r#"diesel_locks_hold_seconds_count{kind="object_lock"} 2"#,
        r#"diesel_locks_requests_total{kind="slot",semaphore="a",outcome="granted"} 1"#,
        r#"diesel_locks_requests_total{kind="slot",semaphore="a",outcome="refused"} 1"#,
        r#"diesel_locks_inside_requests{kind="slot",semaphore="a"} 1"#,
    ] {
        let is_told = metrics.lines().any(|told| told == line);
        assert!(is_told, "{line} in\n{metrics}");
    }
    instance.await_lists(|lists| lists["semaphores"]["rows"][0]["slots"][0]["holder"] == "node-1");
    let requests = instance.state()["requests"].take();
    let subject = requests["rows"][0]["subject"].as_str();
    assert_eq!(subject, Some("a slot of the semaphore \"a\" (1 permit)"));
    let mut rows = Value::Null;
    wait_until("the history", || {
        rows = instance.state()["history"]["rows"].take();
        rows[1]["most_inside"] == 1.0
    });
    let counted = |row: usize| ["name", "granted", "refused"].map(|field| rows[row][field].clone());
    assert_eq!(counted(0), [Value::Null, json!(2.0), json!(0.0)]);
    assert_eq!(counted(1), [json!("a"), json!(1.0), json!(1.0)]);
    instance.terminate();
}

fn sigterm_releases_slots_and_ends_waits(url: &str) {
    // Without the release, the slots are free after an hour.
    let hour = ["--lease-seconds", "3600", "--wait-seconds", "3600"];
    let [mut first, second] = Instance::two(url, &[&hour[..], &["--permits", "2"]].concat());
    let start = |instance: &Instance| post(instance.address, "/jobs/collate?seconds=3600").status;
    assert_eq!([start(&first), start(&first)], [202; 2]);
    assert_eq!(start(&second), 429);
    let holder = Holder::acquire(url, ObjectId::new("Document", "held"));
    let waiter = send_document(first.address, "held", 1);
    first.await_waiting(1);
    first.signal(Signal::TERM);
    // While the lock is held.
    waiter.answer().assert_problem(503, "shutting down");
    // On SQLite nobody else can write, and release slots, while the lock is held.
    holder.release();
    first.await_end();
    assert_eq!([start(&second), start(&second)], [202; 2]);
    assert_eq!(get(second.address, "/documents/held").status, 404);
}
