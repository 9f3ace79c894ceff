//! What the page shows while it gets no data.

use std::net::TcpListener;

use diesel::connection::SimpleConnection;
use diesel_locks::{Semaphore, SemaphoreExt};

use super::page::{Page, Service};

const COLLATE: Semaphore = Semaphore::from_static("collate", 1);

#[test]
fn page_says_that_it_reconnects_and_recovers() {
    let mut page = Page::on_sqlite();
    page.hold(&COLLATE, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    page.assert_console_is_empty();
    let address = page.service.end();
    page.wait_for_text("#connection", "Reconnecting");
    assert!(page.shows("#stale"));
    // What was shown stays, with its age.
    page.wait_for_holder("collate", 1, "node-1");
    let age = "return /^[1-9]\\d* s$/.test(document.getElementById('age').textContent)";
    page.browser.wait("age", age, &[]);

    // One that listens, and does not answer.
    let silent = TcpListener::bind(address).expect("the port is free");
    let (asked, _) = silent.accept().expect("the page asks");
    page.wait_for_text("#connection", "Reconnecting");
    drop((asked, silent));

    page.service = Service::start(&page.url, &address.to_string());
    page.wait_for_text("#connection", "Live");
    assert!(!page.shows("#stale"));
    page.conn
        .force_release_all(COLLATE.name())
        .expect("released");
    page.hold(&COLLATE, "node-2");
    page.wait_for_holder("collate", 1, "node-2");
}

#[test]
fn database_that_can_not_be_read_is_not_a_lost_connection() {
    let mut page = Page::on_sqlite();
    page.hold(&COLLATE, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    let away = "ALTER TABLE diesel_locks_sequences RENAME TO away";
    page.conn.batch_execute(away).expect("renamed");
    page.wait_for_text("#connection", "Not read");
    assert!(page.shows("#stale"));
    let why = page.text("#stale-why");
    assert!(why.contains("tables of diesel-locks"), "{why}");
    page.wait_for_holder("collate", 1, "node-1");
    let back = "ALTER TABLE away RENAME TO diesel_locks_sequences";
    page.conn.batch_execute(back).expect("renamed");
    page.wait_for_text("#connection", "Live");
    assert!(!page.shows("#stale"));
}
