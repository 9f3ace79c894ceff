//! What the page shows while it gets no data.

use diesel::connection::SimpleConnection;
use diesel_locks::{Semaphore, SemaphoreExt};
use program_support::testing::Signal;

use super::instance::Instance;
use super::page::Page;

const COLLATE: Semaphore = Semaphore::from_static("collate", 1);

#[test]
fn page_says_that_it_reconnects_and_recovers() {
    let mut page = Page::on_sqlite();
    page.hold(&COLLATE, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    page.assert_console_is_empty();
    let address = page.service.address.to_string();
    page.service.signal(Signal::KILL);
    page.wait_for_text("#connection", "Reconnecting");
    assert!(page.shows("#stale"));
    // What was shown stays, with its age.
    page.wait_for_holder("collate", 1, "node-1");
    let age = "return /^[1-9]\\d* s$/.test(document.getElementById('age').textContent)";
    page.browser.wait("age", age, &[]);

    page.service = Instance::start(&page.url, &["--listen", &address]);
    page.wait_for_text("#connection", "Live");
    assert!(!page.shows("#stale"));
    page.conn
        .force_release_all(COLLATE.name())
        .expect("released");
    page.hold(&COLLATE, "node-2");
    page.wait_for_holder("collate", 1, "node-2");
}

#[test]
fn database_that_does_not_answer_is_not_a_lost_connection() {
    let mut page = Page::on_sqlite();
    page.hold(&COLLATE, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    let away = "ALTER TABLE diesel_locks_sequences RENAME TO away";
    page.conn.batch_execute(away).expect("renamed");
    page.wait_for_text("#connection", "Database down");
    assert!(page.shows("#stale"));
    let why = "The database can't be read, and the service's log says why.";
    page.wait_for_text("#stale-why", why);
    page.wait_for_holder("collate", 1, "node-1");
    let back = "ALTER TABLE away RENAME TO diesel_locks_sequences";
    page.conn.batch_execute(back).expect("renamed");
    page.wait_for_text("#connection", "Live");
    assert!(!page.shows("#stale"));
    page.assert_console_is_empty();
}

#[test]
fn silent_service_is_noticed() {
    let page = Page::on_sqlite();
    page.service.signal(Signal::STOP);
    page.wait_for_text("#connection", "Reconnecting");
    assert!(page.shows("#stale"));
    page.service.signal(Signal::CONT);
    page.wait_for_text("#connection", "Live");
    assert!(!page.shows("#stale"));
}
