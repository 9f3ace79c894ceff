//! Slots and who holds them.

use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;
use serde_json::{Value, json};

use super::page::{Page, row};

/// A holder appears, its time left counts down, the next one replaces it, and an operator releases that one.
pub(crate) fn holders_come_and_go<C: Connection + SemaphoreExt>(page: &mut Page<C>) {
    let semaphore = Semaphore::from_static("collate", 1);
    let first = page.acquire(&semaphore, "node-1");
    let shown = page.wait_for_holder("collate", 1, "node-1");
    println!("a new holder is shown after {shown:?}");
    assert_eq!(
        page.text(&format!("{} .fence", row("collate", 1))),
        first.fence().to_string()
    );

    let left = format!("{} .left", row("collate", 1));
    let before = seconds(&page.text(&left));
    let changed = "const text = document.querySelector(arguments[0]).textContent; return text !== arguments[1] && text";
    let arguments = [json!(left), json!(page.text(&left))];
    let (after, took) = page.browser.wait("other time left", changed, &arguments);
    println!("the time left has changed after {took:?}");
    let after = seconds(after.as_str().expect("a text"));
    assert!(after < before && before <= 30.0, "{before} {after}");

    page.conn.release_slot(first).expect("released");
    page.wait_for_holder("collate", 1, "free");
    page.hold(&semaphore, "node-2");
    page.wait_for_holder("collate", 1, "node-2");
    let bars = format!("{} .bar .name", row("collate", 1));
    let names = page.browser.run(
        "return [...document.querySelectorAll(arguments[0])].map((bar) => bar.textContent)",
        &[json!(bars)],
    );
    assert_eq!(names, json!(["node-1", "node-2"]));
    page.browser.click("#handovers summary");
    let listed = page.browser.run(
        "return [...document.querySelectorAll('#handover-rows tr')].map((row) => [2, 5].map((cell) => row.cells[cell].querySelector('.name').textContent))",
        &[],
    );
    assert_eq!(
        listed,
        json!([["node-2", "still held"], ["node-1", "node-2"]])
    );

    page.browser.click(&format!("{} button", row("collate", 1)));
    page.browser.click("#dialog-ok");
    let released = page.wait_for_holder("collate", 1, "free");
    println!("a release is shown after {released:?}");
    assert_eq!(page.held("collate"), 0);
    page.assert_console_is_empty();
}

/// The number in `12 s`.
fn seconds(text: &str) -> f64 {
    let number = text.strip_suffix(" s").unwrap_or_default();
    number
        .parse()
        .unwrap_or_else(|_| panic!("no seconds: {text}"))
}

#[test]
fn holders_come_and_go_on_sqlite() {
    holders_come_and_go(&mut Page::on_sqlite(&[]));
}

#[test]
fn names_are_text() {
    let mut page = Page::on_sqlite(&[]);
    let script = "<script>alert(1)</script>";
    let image = "<img src=x onerror=alert(1)>";
    page.hold(&Semaphore::new(image, 2), script);
    page.wait_for_holder(image, 1, script);
    // Each hidden character is spelled out, and the text beside it keeps its order.
    page.hold(&Semaphore::new(image, 2), "report\u{202e}txt.exe\u{200b}");
    page.wait_for_holder(image, 2, "reportU+202Etxt.exeU+200B");
    let elements = "return document.querySelectorAll('main script, main img').length";
    assert_eq!(page.browser.run(elements, &[]), json!(0));
    page.browser.click(&format!("{} button", row(image, 1)));
    assert!(page.text("#dialog-title").contains(image));
    assert!(page.text("#dialog-holders").contains(script));
    page.assert_console_is_empty();
}

#[test]
fn released_slots_count_down_until_they_are_free() {
    let mut page = Page::on_sqlite(&[]);
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
    let left = page.text(&format!("{} .left", row("nightly", 1)));
    assert!(left.starts_with("free in 59 min "), "{left}");
    assert_eq!(
        page.text(".permits"),
        "0 of 1 permit held, 1 released and not free yet"
    );
    page.assert_console_is_empty();
}

#[test]
fn page_says_that_it_shows_only_the_newest_holders() {
    let mut page = Page::on_sqlite(&[]);
    let semaphore = Semaphore::from_static("wide", 600);
    for _ in 0..600 {
        page.hold(&semaphore, "node-1");
    }
    page.wait_for_text(".permits", "600 of 600 permits held");
    assert!(!page.shows("#lanes-cut"));
    page.conn
        .force_release_all(semaphore.name())
        .expect("released");
    page.wait_for_text(".permits", "0 of 600 permits held");
    assert!(page.shows("#lanes-cut"));
    assert!(
        page.text("#handovers-title")
            .starts_with("More than 500 holds ")
    );
    page.browser.click("#handovers summary");
    assert_eq!(
        page.text("#handovers-cut"),
        "Only the newest 100 are listed."
    );
    page.assert_console_is_empty();
}

#[test]
fn sections_without_content_say_what_they_would_show() {
    let page = Page::on_sqlite(&[]);
    assert!(
        page.text("#semaphores > .empty")
            .contains("its semaphore appears here")
    );
    assert!(page.shows("#semaphores > .empty"));
    assert!(page.shows("#sequences .empty") && !page.shows("#sequences table"));
    assert!(!page.shows("#objects table"));
    page.assert_console_is_empty();
}

#[test]
fn sequences_are_shown_with_their_last_numbers() {
    let mut page = Page::on_sqlite(&[]);
    let sequence = Sequence::new("pass").for_key("meeting 4711");
    for _ in 0..17 {
        let drawn = page.conn.transaction(|conn| conn.next_number(&sequence));
        drawn.expect("a number");
    }
    let cells = "const row = document.querySelector('#sequence-rows tr'); \
         return row && row.cells[2].textContent === '17' && [...row.cells].map((cell) => cell.textContent)";
    let (shown, _) = page.browser.wait("sequence", cells, &[]);
    assert_eq!(shown, json!(["pass", "meeting 4711", "17"]));
    page.assert_console_is_empty();
}

#[test]
fn many_slots_are_listed_only_if_they_are_held() {
    let mut page = Page::on_sqlite(&[]);
    page.hold(&Semaphore::from_static("wide", 100), "node-1");
    page.wait_for_holder("wide", 1, "node-1");
    let rows = "return document.querySelectorAll('.slots tbody tr').length";
    assert_eq!(page.browser.run(rows, &[]), Value::from(1));
    assert!(page.text(".more").starts_with("99 more slots"));
}
