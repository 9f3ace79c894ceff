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
    let whole = "return document.querySelector(arguments[0]).title";
    let fence = json!(format!("{} .fence", row("collate", 1)));
    let fence = page.browser.run(whole, &[fence]);
    assert_eq!(fence, json!(first.fence().to_string()));
    let counted_down = "const [, left] = /^(\\d+) s$/.exec(document.querySelector(arguments[0]).textContent); \
         return left < 29";
    let left = format!("{} td:nth-child(4)", row("collate", 1));
    page.browser
        .wait("other time left", counted_down, &[json!(left)]);

    page.conn.release_slot(first).expect("released");
    page.wait_until_free("collate", 1);
    page.hold(&semaphore, "node-2");
    page.wait_for_holder("collate", 1, "node-2");

    page.click_release("collate", 1);
    page.confirm();
    page.wait_until_free("collate", 1);
    assert_eq!(page.held("collate"), 0);
    page.assert_console_is_empty();
}

#[test]
fn holders_come_and_go_on_sqlite() {
    holders_come_and_go(&mut Page::on_sqlite());
}

/// What the metrics of the process say of the last hour: of object locks, and of the semaphores that were in use.
#[test]
fn history_shows_the_last_hour() {
    let page = Page::on_sqlite();
    let metrics = |granted: u32, refused: u32, inside: u32, waited: f64| {
        let slot = "kind=\"slot\",semaphore=\"collate\"";
        let unused = "kind=\"slot\",semaphore=\"other\"";
        let locks = "kind=\"object_lock\"";
        [
            format!(
                "diesel_locks_requests_total{{{locks},outcome=\"granted\"}} {}",
                2 * granted
            ),
            format!("diesel_locks_requests_total{{{slot},outcome=\"granted\"}} {granted}"),
            format!("diesel_locks_requests_total{{{slot},outcome=\"refused\"}} {refused}"),
            format!(
                "diesel_locks_requests_total{{{slot},outcome=\"failed\"}} {}",
                refused / 3
            ),
            format!("diesel_locks_requests_total{{{unused},outcome=\"granted\"}} 0"),
            format!("diesel_locks_wait_seconds_sum{{{slot}}} {waited}"),
            format!("diesel_locks_wait_seconds_count{{{slot}}} {granted}"),
            format!("diesel_locks_inside_requests{{{slot}}} {inside}"),
        ]
        .join("\n")
    };
    let set = |text| *page.service.metrics.lock().expect("unpoisoned") = text;
    page.wait_for_text("#history .empty", "No request has ended, and none waits.");
    set(metrics(1000, 0, 3, 25.0));
    let row = "#history tbody tr:nth-child(2)";
    page.wait_for_text(&format!("{row} td:nth-child(2)"), "1,000");
    page.browser.run(
        "document.querySelector('#history tbody tr:nth-child(2)').marked = true",
        &[],
    );
    set(metrics(2000, 7, 1, 50.0));
    page.wait_for_text(&format!("{row} td:nth-child(2)"), "2,000");
    let cells = "return [...document.querySelectorAll('#history tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))";
    let expected = json!([
        ["Object locks", "4,000", "0", "0", "0", "", "0", "at most 0"],
        ["collate", "2,000", "7", "0", "2", "25 ms", "0", "at most 3"],
    ]);
    assert_eq!(page.browser.run(cells, &[]), expected);
    let kept = "return document.querySelector('#history tbody tr:nth-child(2)').marked";
    assert_eq!(page.browser.run(kept, &[]), json!(true), "a row is kept");
    let marks = "return document.querySelectorAll('#history tr:nth-child(2) path')[1].getAttribute('d').length > 0";
    assert_eq!(page.browser.run(marks, &[]), json!(true));
    page.browser.type_into("#prefix", "co");
    page.wait_for_text("#history tbody tr:first-child td:first-child", "collate");
    page.assert_console_is_empty();
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers {
    use std::sync::mpsc::channel;
    use std::thread;

    use diesel_locks::Error;
    use diesel_locks::prelude::*;
    use program_support::on_servers;

    use super::Page;

    on_servers!(holders_come_and_go, object_locks_are_shown);

    fn holders_come_and_go(url: &str) {
        super::holders_come_and_go(&mut Page::on(url));
    }

    /// A held object lock is shown with its session and the one that waits, until it is released; the requests of the process
    /// are shown without the database.
    fn object_locks_are_shown(url: &str) {
        let mut page = Page::on(url);
        let document = || ObjectId::new("Document", 4711);
        let (hold, is_held) = channel();
        let (release, ended) = channel::<()>();
        let locks = page.service.locks.clone();
        let (browser, conn) = (&page.browser, &mut page.conn);
        thread::scope(|scope| {
            scope.spawn(move || {
                let worked = locks.with_object_lock(document(), |_| {
                    hold.send(()).expect("the test");
                    // Until the test has ended, also by a panic.
                    let _ = ended.recv();
                    Ok::<_, Error>(())
                });
                worked.expect("the lock is free");
            });
            is_held.recv().expect("held");
            scope.spawn(|| conn.with_object_lock(document(), |_| Ok::<_, Error>(())));
            let shown = "const row = document.querySelector('#object-locks tbody tr'); \
                 return row?.cells[0].textContent === 'Document:4711' && /^\\d+ .* for /.test(row.cells[3].textContent)";
            browser.wait("lock", shown, &[]);
            let shown = "const row = document.querySelector('#requests tbody tr'); \
                 return row?.cells[0].textContent === 'The object lock \"Document:4711\"' \
                     && row.cells[1].textContent.startsWith('inside for ')";
            browser.wait("request", shown, &[]);
            drop(release);
        });
        let gone = "return !document.querySelector('#object-locks tbody tr')";
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
    page.click_release(image, 1);
    assert!(page.text("#dialog-title").contains(image));
    assert!(page.text("#dialog-holder").contains(script));
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
    page.wait_for_text("tbody th small", "0 held");
    page.assert_console_is_empty();
}

#[test]
fn lists_without_content_say_so_and_sequences_appear() {
    let mut page = Page::on_sqlite();
    for section in ["requests", "semaphores", "sequences"] {
        assert!(page.shows(&format!("#{section} .empty")), "{section}");
        assert!(!page.shows(&format!("#{section} table")), "{section}");
    }
    // SQLite does not show them.
    assert!(!page.shows("#object-locks .empty"));
    let refusal = page.text("#object-locks .refusal");
    assert!(refusal.starts_with("Not shown: SQLite "), "{refusal}");
    let sequence = Sequence::new("pass").for_key("meeting 4711");
    for _ in 0..17 {
        let drawn = page.conn.transaction(|conn| conn.next_number(&sequence));
        drawn.expect("a number");
    }
    for (cell, text) in [(1, "pass"), (2, "meeting 4711"), (3, "17")] {
        page.wait_for_text(&format!("#sequences tbody td:nth-child({cell})"), text);
    }
    assert!(!page.shows("#sequences .empty"));
    page.assert_console_is_empty();
}

#[test]
fn filter_and_groups_find_what_an_operator_looks_for() {
    let mut page = Page::on_sqlite();
    let of = |name| Semaphore::new(name, 2);
    let free = [of("report:a"), of("report:b"), of("mail:a"), of("alone")];
    page.conn.register_semaphores(&free).expect("registered");
    page.hold(&of("report:c"), "node-1");
    page.hold(&of("mail:b"), "node-1");
    page.wait_for_holder("report:c", 1, "node-1");
    page.wait_for_text("#semaphores h2 small", "6 of 6 shown");
    let group = |name| format!("#semaphores div[data-key='{name}']");
    page.wait_for_text(
        &format!("{} summary", group("report:")),
        "2 semaphores without a lease",
    );
    assert!(!page.shows(&format!("{} li", group("report:"))));
    page.browser.click(&format!("{} summary", group("report:")));
    page.wait_for_text(&format!("{} li", group("report:")), "report:a (2 permits)");
    // A holder has one letter and one colour.
    let marks = "const marks = [...document.querySelectorAll('.slots .holder')].map(({ dataset, style }) => \
         dataset.letter + style.getPropertyValue('--hue')); return marks.length === 2 && marks[0] === marks[1]";
    assert_eq!(page.browser.run(marks, &[]), json!(true));

    page.browser.type_into("#prefix", "report:");
    page.wait_for_text("#semaphores h2 small", "3 of 3 shown");
    assert!(!page.shows(&group("mail:")));
    // The filter is part of the URL.
    page.open("?prefix=mail:b");
    page.wait_for_text("#semaphores h2 small", "1 of 1 shown");
    page.wait_for_holder("mail:b", 1, "node-1");
    page.assert_console_is_empty();
}
