//! What the page shows while it gets no data.

use diesel::connection::SimpleConnection;
use diesel_locks::Semaphore;
use program_support::testing::{Signal, signal};

use super::instance::Instance;
use super::page::Page;

const COLLATE: Semaphore = Semaphore::from_static("collate", 1);

#[test]
fn page_says_that_it_reconnects_and_recovers() {
    let mut page = Page::on_sqlite(&[]);
    page.hold(&COLLATE, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    page.assert_console_is_empty();
    let address = page.service.address.to_string();
    signal(page.service.process(), Signal::KILL);
    println!(
        "reconnecting after {:?}",
        page.wait_for_state("Reconnecting")
    );
    assert!(page.shows("#stale"));
    // What was shown stays, with its age.
    page.wait_for_holder("collate", 1, "node-1");
    let age = "return /^[1-9]\\d* s$/.test(document.getElementById('age').textContent)";
    page.browser.wait("age", age, &[]);

    page.service = Instance::start(&page.url, &["--listen", &address]);
    println!("live again after {:?}", page.wait_for_state("Live"));
    assert!(!page.shows("#stale"));
    let live = "return document.getElementById('announcements').textContent";
    assert_eq!(page.browser.run(live, &[]), "The page is live again.");
    diesel_locks::SemaphoreExt::force_release_all(&mut page.conn, COLLATE.name())
        .expect("released");
    page.hold(&COLLATE, "node-2");
    page.wait_for_holder("collate", 1, "node-2");
}

#[test]
fn database_that_does_not_answer_is_not_a_lost_connection() {
    let mut page = Page::on_sqlite(&[]);
    page.hold(&COLLATE, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    let away = "ALTER TABLE diesel_locks_sequences RENAME TO away";
    page.conn.batch_execute(away).expect("renamed");
    page.wait_for_state("Database down");
    assert!(page.shows("#stale"));
    let why = page.text("#stale-why");
    assert_eq!(
        why,
        "The database can't be read, and the service's log says why."
    );
    page.wait_for_holder("collate", 1, "node-1");
    let back = "ALTER TABLE away RENAME TO diesel_locks_sequences";
    page.conn.batch_execute(back).expect("renamed");
    page.wait_for_state("Live");
    assert!(!page.shows("#stale"));
    page.assert_console_is_empty();
}

#[test]
fn silent_service_is_noticed() {
    let page = Page::on_sqlite(&[]);
    signal(page.service.process(), Signal::STOP);
    println!(
        "reconnecting after {:?}",
        page.wait_for_state("Reconnecting")
    );
    assert!(page.shows("#stale"));
    signal(page.service.process(), Signal::CONT);
    println!("live again after {:?}", page.wait_for_state("Live"));
    assert!(!page.shows("#stale"));
}
