//! Releases by an operator.

use diesel_locks::ObjectId;
use program_support::testing::http::{Answer, Sent, send_json};
use serde_json::{Value, json};

use crate::client::{post, send_document};
use crate::holder::Holder;
use crate::instance::Instance;

const GUARDED: [&str; 2] = ["--operator-token", "secret"];

/// Starts a job that does not end by itself, and returns its grant.
fn job(instance: &Instance) -> Value {
    let started = post(instance.address, "/jobs/a?seconds=3600");
    assert_eq!(started.status, 202, "{started:?}");
    let started = started.json();
    json!({ "slot": started["slot"], "fence": started["fence"] })
}

fn send_release(instance: &Instance, authorization: &str, grant: &Value) -> Sent {
    let headers = [("Authorization", authorization)];
    let mut grant = grant.clone();
    grant["semaphore"] = "a".into();
    send_json(
        instance.address,
        "/locks/release",
        &headers,
        &grant.to_string(),
    )
}

fn release(instance: &Instance, grant: &Value) -> Answer {
    send_release(instance, "Bearer secret", grant).answer()
}

on_all_engines!(
    an_operator_releases_slots,
    an_operator_releases_nobody_unseen,
    releases_do_not_depend_on_waiting_requests,
);

fn an_operator_releases_slots(url: &str) {
    let unguarded = Instance::start(url, &[]);
    let guarded = Instance::start(url, &[&GUARDED[..], &["--permits", "1"]].concat());
    let grant = job(&guarded);
    release(&unguarded, &grant).assert_problem(403, "only reads");
    assert_eq!(unguarded.state()["may_act"], false);
    for wrong in ["", "Bearer secrets", "Bearer ", "secret"] {
        let refused = send_release(&guarded, wrong, &grant).answer();
        refused.assert_problem(401, "token");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(post(guarded.address, "/jobs/a").status, 429);
    let released = release(&guarded, &grant);
    assert_eq!(released.status, 200, "{released:?}");
    job(&guarded);
}

fn an_operator_releases_nobody_unseen(url: &str) {
    let instance = Instance::start(url, &[&GUARDED[..], &["--permits", "2"]].concat());
    // The operator sees both, and one is followed by another holder.
    let seen = [job(&instance), job(&instance)];
    assert_eq!(release(&instance, &seen[0]).status, 200);
    let unseen = job(&instance);
    assert_eq!(unseen["slot"], seen[0]["slot"]);
    release(&instance, &seen[0]).assert_problem(409, "is not held with the fence");
    assert_eq!(release(&instance, &seen[1]).status, 200);
    instance.await_lists(|lists| {
        let slots = &lists["semaphores"]["rows"][0]["slots"];
        slots[0]["fence"] == unseen["fence"] && slots[1].is_null()
    });
    // A number is rounded by JavaScript.
    let rounded = json!({ "slot": 1, "fence": 15 });
    release(&instance, &rounded).assert_problem(422, "fence");
}

fn releases_do_not_depend_on_waiting_requests(url: &str) {
    let limits = ["--max-waiting", "1", "--wait-seconds", "120"];
    let instance = Instance::start(url, &[&GUARDED[..], &limits].concat());
    let grant = job(&instance);
    let holder = Holder::acquire(url, ObjectId::new("Document", "held"));
    let waiter = send_document(instance.address, "held", 1);
    instance.await_waiting(1);
    assert_eq!(post(instance.address, "/jobs/a").status, 503);
    let released = send_release(&instance, "Bearer secret", &grant);
    if url.contains("://") {
        assert_eq!(released.answer().status, 200);
        holder.release();
    } else {
        // Nobody else can write on SQLite while the lock is held.
        holder.release();
        assert_eq!(released.answer().status, 200);
    }
    assert_eq!(waiter.answer().status, 201);
}
