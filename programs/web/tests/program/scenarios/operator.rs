//! Releases by an operator, and who may send them.

use diesel::prelude::*;
use diesel_locks::prelude::*;
use program_support::testing::wait_until;
use serde_json::{Value, json};

use crate::client::{Answer, get, post, post_json, send, send_document};
use crate::holder::Holder;
use crate::instance::Instance;

const RELEASE: &str = "/admin/semaphores/a/release";

/// Starts a job that does not end by itself, and returns its grant.
fn job(instance: &Instance) -> Value {
    let started = post(instance.address, "/jobs/a?seconds=3600");
    assert_eq!(started.status, 202, "{started:?}");
    let started = started.json();
    json!({ "slot": started["slot"], "fence": started["fence"] })
}

fn release(instance: &Instance, headers: &[(&str, &str)], grants: &[Value]) -> Answer {
    let body = json!({ "grants": grants });
    post_json(instance.address, RELEASE, headers, &body)
}

pub(crate) fn an_operator_releases_slots<C>(url: &str) {
    let instance = Instance::start(url, &["--permits", "2", "--operator-token", "secret"]);
    assert_eq!(instance.state()["guarded"], true);
    let grants = [job(&instance), job(&instance)];
    let release = |headers: &[(&str, &str)]| release(&instance, headers, &grants);
    // Before anything is said about its body.
    post(instance.address, RELEASE).assert_problem(401, "token");
    release(&[]).assert_problem(401, "token");
    for wrong in ["Bearer secrets", "Bearer ", "secret"] {
        release(&[("Authorization", wrong)]).assert_problem(401, "token");
    }
    assert_eq!(post(instance.address, "/jobs/a").status, 429);
    let released = release(&[("Authorization", "Bearer secret")]);
    assert_eq!(released.status, 200, "{released:?}");
    assert_eq!(released.json()["released"], 2);
    job(&instance);
}

pub(crate) fn an_operator_releases_nobody_unseen<C>(url: &str) {
    let instance = Instance::start(url, &["--permits", "2"]);
    let seen = [job(&instance), job(&instance)];
    // The operator sees both, and one is followed by another holder.
    let one = release(&instance, &[], &seen[..1]);
    assert_eq!(one.json()["released"], 1, "{one:?}");
    let unseen = job(&instance);
    assert_eq!(unseen["slot"], seen[0]["slot"]);
    let both = release(&instance, &[], &seen);
    assert_eq!(both.status, 200, "{both:?}");
    assert_eq!(both.json()["released"], 1);
    assert_eq!(both.json()["gone"], 1);
    instance.await_state(|state| {
        let slots = state["semaphores"][0]["slots"]
            .as_array()
            .into_iter()
            .flatten();
        let held: Vec<_> = slots.filter(|slot| slot["state"] == "held").collect();
        held.len() == 1 && held[0]["fence"] == unseen["fence"]
    });
    release(&instance, &[], &seen).assert_problem(409, "no slot of \"a\"");
    release(&instance, &[], &[]).assert_problem(422, "no grants");
    let rounded = json!({ "slot": 1, "fence": 1.5 });
    release(&instance, &[], &[rounded]).assert_problem(422, "fence");
    post(instance.address, RELEASE).assert_problem(415, "application/json");
}

pub(crate) fn pages_of_other_sites_change_nothing<C>(url: &str) {
    let instance = Instance::start(url, &["--permits", "1"]);
    let address = instance.address;
    let grant = job(&instance);
    let other: &[_] = &[("Origin", "http://evil.example")];
    release(&instance, other, std::slice::from_ref(&grant)).assert_problem(403, "other sites");
    for (method, path) in [
        ("POST", "/jobs/b"),
        ("POST", "/meetings/1/passes"),
        ("PUT", "/documents/a"),
        ("POST", "/transfers"),
    ] {
        let refused = send(address, method, path, other, b"").answer();
        refused.assert_problem(403, "other sites");
    }
    assert_eq!(post(address, "/jobs/a").status, 429);
    let own = format!("http://{address}");
    let released = release(&instance, &[("Origin", &own)], &[grant]);
    assert_eq!(released.status, 200, "{released:?}");
}

/// A page of another site that lets its name point to this machine is one of this service's to a browser.
pub(crate) fn unknown_hosts_are_refused<C>(url: &str) {
    let instance = Instance::start(url, &["--host", "web.example"]);
    let ask =
        |method, path, host| send(instance.address, method, path, &[("Host", host)], b"").answer();
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/page/page.js"),
        ("GET", "/events"),
        ("GET", "/api/state"),
        ("GET", "/accounts"),
        ("GET", "/documents/a"),
        ("PUT", "/documents/a"),
        ("POST", "/transfers"),
        ("POST", "/meetings/1/passes"),
        ("POST", "/jobs/a"),
        ("POST", RELEASE),
        ("POST", "/admin/semaphores/a/slots/1/release?fence=1"),
    ] {
        ask(method, path, "evil.example").assert_problem(403, "\"evil.example\"");
    }
    for path in ["/health", "/metrics"] {
        assert_eq!(ask("GET", path, "evil.example").status, 200, "{path}");
    }
    for host in ["web.example", "Web.Example:80", "localhost", "[::1]:8080"] {
        assert_eq!(ask("GET", "/", host).status, 200, "{host}");
    }
}

pub(crate) fn releases_do_not_depend_on_waiting_requests<C: ObjectLockExt + Connection>(url: &str) {
    let instance = Instance::start(url, &["--max-waiting", "1", "--wait-seconds", "120"]);
    let grant = job(&instance);
    let holder = Holder::acquire::<C>(url, ObjectId::new("Document", "held"));
    let waiter = send_document(instance.address, "held", 1);
    instance.await_waiting(1);
    assert_eq!(post(instance.address, "/jobs/a").status, 503);
    let body = json!({ "grants": [grant] }).to_string();
    let json = [("Content-Type", "application/json")];
    let release = send(instance.address, "POST", RELEASE, &json, body.as_bytes());
    let engine = instance.state()["engine"].to_string();
    if engine.contains("SQLite") {
        // Nobody else can write on SQLite while the lock is held. The release is accepted, and waits.
        let metrics = || get(instance.address, "/metrics").body;
        wait_until("a release runs", || {
            metrics()
                .lines()
                .any(|line| line == "web_running_releases 1")
        });
        holder.release();
        assert_eq!(release.answer().status, 200);
    } else {
        assert_eq!(release.answer().status, 200);
        holder.release();
    }
    assert_eq!(waiter.answer().status, 201);
}
