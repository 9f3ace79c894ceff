//! What single requests are answered.

use std::io::{BufRead, BufReader, Read, Seek};
use std::process::{Command, Stdio};
use std::thread;

use diesel::prelude::*;
use diesel_locks::prelude::*;
use serde_json::Value;

use crate::client::{document, get, post, send, send_document, send_transfer};
use crate::holder::Holder;
use crate::instance::Instance;

pub(crate) fn documents_keep_the_newest_version<C>(url: &str) {
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

pub(crate) fn the_wait_for_a_lock_ends<C: ObjectLockExt + Connection>(url: &str) {
    let instance = Instance::start(url, &["--wait-seconds", "8", "--max-waiting", "1"]);
    let holder = Holder::acquire::<C>(url, ObjectId::new("Document", "held"));
    let waiter = send_document(instance.address, "held", 1);
    instance.await_waiting(1);
    let too_many = send_document(instance.address, "other", 1).answer();
    too_many.assert_problem(503, "1 requests use the database");
    let answer = waiter.answer();
    answer.assert_problem(
        409,
        "the object lock \"Document:held\": not acquired within ",
    );
    assert_eq!(answer.header("retry-after"), Some("1"));
    holder.release();
}

pub(crate) fn errors_are_problems<C>(url: &str) {
    let mut stderr_file = tempfile::tempfile().expect("a file");
    let stderr = Stdio::from(stderr_file.try_clone().expect("a file"));
    let mut instance = Instance::start_with_log(url, &["--max-body", "1000"], stderr);
    let ask = |method, path: &str, headers: &[_], body: &str, status, detail: &str| {
        let answer = send(instance.address, method, path, headers, body.as_bytes()).answer();
        println!("{method} {path}: {answer:?}");
        answer.assert_problem(status, detail);
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'"), "{policy}");
    };
    let json = ("Content-Type", "application/json");
    let gzip = &[json, ("Content-Encoding", "gzip")];
    let long = "a".repeat(256);
    let large = document(1).replace("<line>", &format!("<line>{}", "x".repeat(2000)));
    let changed = document(1);
    let doctype = format!("<!DOCTYPE order [<!ENTITY a 'b'>]>{changed}");
    let poor = r#"{"from":1,"to":2,"amount":1001}"#;
    ask("GET", "/nowhere", &[], "", 404, "/nowhere");
    ask("DELETE", "/documents/a", &[], "", 405, "/documents/a");
    ask("GET", "/documents/absent", &[], "", 404, "absent");
    ask("PUT", "/documents/a", gzip, &changed, 415, "\"gzip\"");
    ask("POST", "/transfers", gzip, poor, 415, "\"gzip\"");
    ask("POST", "/transfers", &[], poor, 415, "application/json");
    for (document, body, status, detail) in [
        ("a", "no XML", 400, "not well-formed XML"),
        ("a", "<a/>", 422, "changed"),
        ("a", &doctype, 422, "document type"),
        ("a", &large, 413, "1000 bytes"),
        ("a?hold_ms=x", &changed, 400, "hold_ms"),
        ("a?hold_ms=50001", &changed, 400, "50000"),
        ("%FF", &changed, 400, ""),
        ("a%00b", &changed, 400, "NUL"),
        (&long, &changed, 400, "255"),
    ] {
        let path = format!("/documents/{document}");
        ask("PUT", &path, &[], body, status, detail);
    }
    for (body, status, detail) in [
        ("{", 400, "JSON"),
        (r#"{"from":1}"#, 422, "to"),
        (poor, 422, "account 1 has 1000, not 1001"),
        (r#"{"from":1,"to":99,"amount":1}"#, 404, "no account 99"),
        (r#"{"from":1,"to":2,"amount":0}"#, 422, "amount=0"),
        (r#"{"from":1,"to":1,"amount":1}"#, 422, "both 1"),
    ] {
        ask("POST", "/transfers", &[json], body, status, detail);
    }
    for (path, detail) in [
        (&format!("/meetings/{long}/passes")[..], "255"),
        (&format!("/jobs/{long}"), "255"),
        (&format!("/jobs/a?holder={long}"), "255"),
        ("/jobs/a?holder=a%0Ab", "control"),
        ("/jobs/a%00b", "NUL"),
        ("/jobs/a?seconds=-1", "3600"),
        ("/jobs/a?seconds=NaN", "3600"),
    ] {
        ask("POST", path, &[], "", 400, detail);
    }
    let refused = send(instance.address, "DELETE", "/documents/a", &[], b"").answer();
    assert!(refused.header("allow").expect("methods").contains("PUT"));
    // What is supported, for clients that can choose.
    let send_transfer =
        |headers: &[_]| send(instance.address, "POST", "/transfers", headers, b"{}");
    let compressed = send_transfer(gzip).answer();
    assert_eq!(compressed.header("accept-encoding"), Some("identity"));
    let untyped = send_transfer(&[]).answer();
    assert_eq!(untyped.header("accept"), Some("application/json"));
    // The errors of clients are none of the service.
    instance.terminate();
    assert!(instance.wait().success());
    stderr_file.rewind().expect("a file");
    let mut lines = String::new();
    stderr_file.read_to_string(&mut lines).expect("UTF-8");
    let lines: Vec<&str> = lines.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].contains("--operator-token"),
        "{lines:#?}"
    );
}

pub(crate) fn metrics_and_events_tell_what_happens<C>(url: &str) {
    let mut instance = Instance::start(url, &["--permits", "1", "--name", "node-1"]);
    let stream = send(instance.address, "GET", "/events", &[], b"").stream();
    assert_eq!(send_document(instance.address, "a", 1).answer().status, 201);
    assert_eq!(send_transfer(instance.address, 1, 2).answer().status, 200);
    assert_eq!(post(instance.address, "/jobs/a?seconds=60").status, 202);
    assert_eq!(post(instance.address, "/jobs/a").status, 429);
    let metrics = get(instance.address, "/metrics").body;
    for line in [
        r#"diesel_locks_attempts_total{kind="object_lock"} 2"#,
        r#"diesel_locks_outcomes_total{kind="object_lock",outcome="granted"} 2"#,
        r#"diesel_locks_wait_seconds_count{kind="object_lock"} 2"#,
        r#"diesel_locks_hold_seconds_count{kind="object_lock"} 2"#,
        r#"diesel_locks_outcomes_total{kind="slot",outcome="granted"} 1"#,
        r#"diesel_locks_outcomes_total{kind="slot",outcome="refused"} 1"#,
        "web_running_jobs 1",
        "web_running_releases 0",
    ] {
        assert!(
            metrics.lines().any(|told| told == line),
            "{line} in\n{metrics}"
        );
    }
    let reader = thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        let events = lines.filter_map(|line| {
            let event = line.strip_prefix("data: ")?;
            Some(serde_json::from_str::<Value>(event).expect("JSON"))
        });
        events.collect::<Vec<_>>()
    });
    instance.await_state(|state| state["rates"]["attempts_per_s"].as_f64() > Some(0.0));
    instance.terminate();
    assert!(instance.wait().success());
    // The stream has ended, and with it the instance.
    let events = reader.join().expect("the reader");
    assert!(!events.is_empty());
    for event in &events {
        assert!(
            event["now_us"].as_i64() > Some(1_700_000_000_000_000),
            "{event}"
        );
        assert_eq!(event["guarded"], false);
        assert_eq!(event["instance"], "node-1");
        assert!(
            event["engine"].as_str().expect("a text").contains(' '),
            "{event}"
        );
        for list in ["semaphores", "handovers", "sequences"] {
            assert!(event[list].is_array(), "{event}");
        }
        assert!(event["object_locks"]["locks"].is_array(), "{event}");
    }
}

#[test]
fn unusable_token_in_the_environment_is_an_error_at_start() {
    for token in ["", " ", "p\u{e4}ss"] {
        let ended = Command::new(env!("CARGO_BIN_EXE_web"))
            .env("OPERATOR_TOKEN", token)
            .output()
            .expect("web starts");
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(text.contains("OPERATOR_TOKEN: the token"), "{text}");
    }
}
