//! A database that is down.

use program_support::on_servers;
use program_support::testing::http::get;
use program_support::testing::wait_until;

use crate::client::send_document;
use crate::instance::Instance;
use crate::proxy::Proxy;

on_servers!(
    the_service_recovers_with_its_database,
    a_silent_network_is_left_behind,
);

fn await_health(instance: &Instance, status: u16) {
    wait_until(&format!("health checks get {status}"), || {
        get(instance.address, "/health").status == status
    });
}

fn the_service_recovers_with_its_database(url: &str) {
    let (proxy, url) = Proxy::start(url);
    let instance = Instance::start(&url, &[]);
    await_health(&instance, 200);
    assert_eq!(send_document(instance.address, "a", 1).answer().status, 201);
    proxy.cut();
    for path in ["/accounts", "/documents/a"] {
        let answer = get(instance.address, path);
        answer.assert_problem(503, "");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    let answer = send_document(instance.address, "a", 2).answer();
    answer.assert_problem(503, "");
    await_health(&instance, 503);
    get(instance.address, "/locks/state").assert_problem(503, "no connection");
    proxy.restore();
    await_health(&instance, 200);
    // r2d2 opens a connection of the other pool after a pause of its own.
    wait_until("it stores", || {
        send_document(instance.address, "a", 2).answer().status != 503
    });
    let stored = get(instance.address, "/documents/a");
    assert!(stored.body.contains("12:00:02Z"), "{stored:?}");
}

/// A network that drops everything reports no error. The page and health checks leave silent connections behind.
fn a_silent_network_is_left_behind(url: &str) {
    let (proxy, url) = Proxy::start(url);
    let instance = Instance::start(&url, &[]);
    await_health(&instance, 200);
    proxy.silence();
    await_health(&instance, 503);
    let health = get(instance.address, "/health");
    health.assert_problem(503, "the database does not answer");
    proxy.restore();
    await_health(&instance, 200);
}
