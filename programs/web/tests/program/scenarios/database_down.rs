//! A database that is down.

use program_support::testing::wait_until;

use crate::client::{get, send_document};
use crate::instance::Instance;
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
    wait_until("it is healthy", || {
        get(instance.address, "/health").status == 200
    });
    // r2d2 opens a connection of the other pool after a pause of its own.
    wait_until("it stores", || {
        send_document(instance.address, "a", 2).answer().status != 503
    });
    instance.await_state(|state| state["error"].is_null());
    assert!(
        get(instance.address, "/documents/a")
            .body
            .contains("12:00:02Z")
    );
}

/// A network that drops everything reports no error. The page and health checks leave silent connections behind.
pub(crate) fn a_silent_network_is_left_behind<C>(url: &str) {
    let (proxy, url) = Proxy::url(url);
    let instance = Instance::start(&url, &[]);
    assert_eq!(get(instance.address, "/health").status, 200);
    instance.await_state(|state| state["error"].is_null());
    proxy.silence();
    instance.await_state(|state| state["error"].is_string());
    let error = instance.state()["error"].to_string();
    assert!(error.contains("answer"), "{error}");
    let health = get(instance.address, "/health");
    health.assert_problem(503, "the database does not answer");
    proxy.restore_new();
    wait_until("it is healthy", || {
        get(instance.address, "/health").status == 200
    });
    instance.await_state(|state| state["error"].is_null());
}

/// A look waits for a locked table without an error.
#[cfg(feature = "postgres")]
pub(crate) fn the_page_says_that_a_table_is_locked<C>(url: &str) {
    use diesel::connection::SimpleConnection;
    use diesel::prelude::*;

    let instance = Instance::start(url, &[]);
    let now = || instance.state()["now_us"].as_i64().expect("a time");
    let mut conn = PgConnection::establish(url).expect("the database answers");
    conn.batch_execute("BEGIN; LOCK TABLE diesel_locks_slots IN ACCESS EXCLUSIVE MODE")
        .expect("locked");
    let before = now();
    // While the look still waits, and before it has failed.
    instance.await_state(|state| {
        let error = state["error"].as_str().unwrap_or_default();
        error.contains("has not answered for ")
    });
    assert!(now() - before > 1_500_000);
    instance.await_state(|state| {
        let error = state["error"].as_str().unwrap_or_default();
        error.contains("the service's log says why")
    });
    conn.batch_execute("ROLLBACK").expect("unlocked");
    instance.await_state(|state| state["error"].is_null());
}
