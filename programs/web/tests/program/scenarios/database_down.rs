//! A database that is down.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::{get, send_document};
use crate::instance::{Instance, PATIENCE};
use crate::proxy::Proxy;

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
    assert!(
        get(instance.address, "/documents/a")
            .body
            .contains("12:00:02Z")
    );
}
