//! Releases by an operator.

use diesel_locks::ObjectId;
use serde_json::{Value, json};

use crate::client::{Answer, Sent, post, send_document, send_json};
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

fn send_release(instance: &Instance, authorization: &str, grants: &[Value]) -> Sent {
    let body = json!({ "grants": grants }).to_string();
    let headers = [("Authorization", authorization)];
    send_json(
        instance.address,
        "/admin/semaphores/a/release",
        &headers,
        &body,
    )
}

fn release(instance: &Instance, grants: &[Value]) -> Answer {
    send_release(instance, "Bearer secret", grants).answer()
}

on_all_engines!(
    an_operator_releases_slots,
    an_operator_releases_nobody_unseen,
    releases_do_not_depend_on_waiting_requests,
);

fn an_operator_releases_slots(url: &str) {
    let unguarded = Instance::start(url, &["--permits", "2"]);
    let guarded = Instance::start(url, &[&GUARDED[..], &["--permits", "2"]].concat());
    let grants = [job(&unguarded), job(&guarded)];
    release(&unguarded, &grants).assert_problem(403, "--operator-token");
    for wrong in ["", "Bearer secrets", "Bearer ", "secret"] {
        let refused = send_release(&guarded, wrong, &grants).answer();
        refused.assert_problem(401, "token");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(post(guarded.address, "/jobs/a").status, 429);
    let released = release(&guarded, &grants);
    assert_eq!(released.status, 200, "{released:?}");
    assert_eq!(released.json()["released"], 2);
    job(&guarded);
}

fn an_operator_releases_nobody_unseen(url: &str) {
    let instance = Instance::start(url, &[&GUARDED[..], &["--permits", "2"]].concat());
    let seen = [job(&instance), job(&instance)];
    // The operator sees both, and one is followed by another holder.
    let one = release(&instance, &seen[..1]);
    assert_eq!(one.json()["released"], 1, "{one:?}");
    let unseen = job(&instance);
    assert_eq!(unseen["slot"], seen[0]["slot"]);
    let both = release(&instance, &seen);
    assert_eq!(both.status, 200, "{both:?}");
    assert_eq!(both.json()["released"], 1);
    assert_eq!(both.json()["gone"], 1);
    instance.await_state(|state| {
        let slots = &state["semaphores"][0]["slots"];
        slots[0]["fence"] == unseen["fence"] && slots[1].is_null()
    });
    release(&instance, &seen).assert_problem(409, "no slot of \"a\"");
    // A number is rounded by JavaScript.
    let rounded = json!({ "slot": 1, "fence": 15 });
    release(&instance, &[rounded]).assert_problem(422, "fence");
}

fn releases_do_not_depend_on_waiting_requests(url: &str) {
    let limits = ["--max-waiting", "1", "--wait-seconds", "120"];
    let instance = Instance::start(url, &[&GUARDED[..], &limits].concat());
    let grant = job(&instance);
    let holder = Holder::acquire(url, ObjectId::new("Document", "held"));
    let waiter = send_document(instance.address, "held", 1);
    instance.await_waiting(1);
    assert_eq!(post(instance.address, "/jobs/a").status, 503);
    let released = send_release(&instance, "Bearer secret", &[grant]);
    if instance.state()["engine"] == "sqlite" {
        // Nobody else can write on SQLite while the lock is held.
        holder.release();
        assert_eq!(released.answer().status, 200);
    } else {
        assert_eq!(released.answer().status, 200);
        holder.release();
    }
    assert_eq!(waiter.answer().status, 201);
}
