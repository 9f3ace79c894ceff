//! The lists of the page: slots and object locks with their holders, sequences.

use std::time::Duration;

use diesel::Connection;
use diesel_locks::prelude::*;
use serde_json::json;

use super::page::{Page, row};

/// A holder appears, its time left counts down, the next one replaces it, and an operator releases that one.
fn holders_come_and_go(page: &mut Page) {
    let semaphore = Semaphore::from_static("collate", 1);
    let first = page.acquire(&semaphore, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    let fence = format!("{} td:nth-child(5)", row("collate", 1));
    page.wait_for_text(&fence, &first.fence().to_string());
    let counted_down = "const [, left] = /^(\\d+) s$/.exec(document.querySelector(arguments[0]).textContent); \
         return left < 29";
    let left = format!("{} td:nth-child(4)", row("collate", 1));
    page.browser
        .wait("other time left", counted_down, &[json!(left)]);

    page.conn.release_slot(first).expect("released");
    page.wait_until_free("collate", 1);
    page.hold(&semaphore, "node-2");
    page.wait_for_holder("collate", 1, "node-2");

    page.browser.click(&format!("{} button", row("collate", 1)));
    page.confirm();
    page.wait_until_free("collate", 1);
    assert_eq!(page.held("collate"), 0);
    page.assert_console_is_empty();
}

#[test]
fn holders_come_and_go_on_sqlite() {
    holders_come_and_go(&mut Page::on_sqlite());
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers {
    use std::thread;

    use diesel_locks::ObjectId;
    use program_support::on_servers;

    use super::super::holder::Holder;
    use super::Page;

    on_servers!(holders_come_and_go, object_locks_are_shown);

    fn holders_come_and_go(url: &str) {
        super::holders_come_and_go(&mut Page::on(url));
    }

    /// A held object lock is shown with its session and the one that waits, until it is released.
    fn object_locks_are_shown(url: &str) {
        let page = Page::on(url);
        let document = || ObjectId::new("Document", 4711);
        let holder = Holder::acquire(url, document());
        thread::scope(|scope| {
            scope.spawn(|| Holder::acquire(url, document()).release());
            let shown = "const row = document.querySelector('#object-locks tr'); \
                 return row?.cells[0].textContent === 'Document:4711' && /^\\d+ for /.test(row.cells[3].textContent)";
            page.browser.wait("lock", shown, &[]);
            holder.release();
        });
        let gone = "return !document.querySelector('#object-locks tr')";
        page.browser.wait("end of the lock", gone, &[]);
        page.assert_console_is_empty();
    }
}

#[test]
fn names_are_text() {
    let mut page = Page::on_sqlite();
    let script = "<script>alert(1)</script>";
    let image = "<img src=x onerror=alert(1)>";
    page.hold(&Semaphore::new(image, 2), script);
    page.wait_for_holder(image, 1, script);
    let elements = "return document.querySelectorAll('main script, main img').length";
    assert_eq!(page.browser.run(elements, &[]), json!(0));
    page.browser.click(&format!("{} button", row(image, 1)));
    assert!(page.text("#dialog-title").contains(image));
    assert!(page.text("#dialog-holders").contains(script));
    page.assert_console_is_empty();
}

#[test]
fn released_slots_count_down_until_they_are_free() {
    let mut page = Page::on_sqlite();
    let hour = Duration::from_secs(3600);
    let lease = LeaseOptions::new(hour).hold_at_least(hour).holder("node-1");
    let semaphore = Semaphore::from_static("nightly", 1);
    let slot = page.conn.acquire_slot(&semaphore, lease, Wait::No);
    let slot = slot.expect("a free slot");
    page.wait_for_holder("nightly", 1, "node-1");
    let button = format!("{} button", row("nightly", 1));
    assert!(page.shows(&button));
    page.conn.release_slot(slot).expect("released");
    page.wait_for_holder("nightly", 1, "released by node-1");
    // A release by an operator would do nothing.
    assert!(!page.shows(&button));
    let left = page.text(&format!("{} td:nth-child(4)", row("nightly", 1)));
    assert!(left.starts_with("free in 59 min "), "{left}");
    page.wait_for_text("tbody td:nth-child(2)", "0 of 1 held");
    page.assert_console_is_empty();
}

#[test]
fn lists_without_content_say_so_and_sequences_appear() {
    let mut page = Page::on_sqlite();
    for section in 1..=3 {
        let section = format!("section:nth-child({section})");
        assert!(page.shows(&format!("{section} .empty")), "{section}");
        assert!(!page.shows(&format!("{section} table")), "{section}");
    }
    let sequence = Sequence::new("pass").for_key("meeting 4711");
    for _ in 0..17 {
        let drawn = page.conn.transaction(|conn| conn.next_number(&sequence));
        drawn.expect("a number");
    }
    for (cell, text) in [(1, "pass"), (2, "meeting 4711"), (3, "17")] {
        page.wait_for_text(&format!("#sequences td:nth-child({cell})"), text);
    }
    assert!(!page.shows("section:nth-child(3) .empty"));
    page.assert_console_is_empty();
}
