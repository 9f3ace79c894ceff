//! Releasing a holder.

use diesel_locks::Semaphore;
use serde_json::json;

use super::client::post;
use super::page::{Page, row};

const COLLATE: Semaphore = Semaphore::from_static("collate", 2);
/// `WebDriver`'s codes of keys.
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

#[test]
fn release_asks_and_cancel_does_nothing() {
    let mut page = Page::on_sqlite(&[]);
    assert!(page.shows("#unguarded"));
    page.hold(&COLLATE, "node-1");
    page.hold(&COLLATE, "node-2");
    page.wait_for_holder("collate", 2, "node-2");
    page.browser.click(&format!("{} button", row("collate", 2)));
    assert!(page.shows("#dialog") && !page.shows("#token"));
    assert_eq!(page.text("#dialog-title"), "Release slot 2 of collate?");
    assert!(
        page.text("#dialog-holders")
            .contains("node-2 loses slot 2, fence ")
    );
    page.browser.click("#dialog-cancel");
    assert!(!page.shows("#dialog"));
    assert_eq!(page.held("collate"), 2);

    page.browser.click(&format!("{} button", row("collate", 2)));
    page.browser.click("#dialog-ok");
    page.wait_for_holder("collate", 2, "free");
    assert_eq!(page.text("#result"), "Released slot 2 of collate.");
    // The other holder keeps its slot.
    assert_eq!(page.held("collate"), 1);
    page.wait_for_holder("collate", 1, "node-1");
    page.assert_console_is_empty();
}

#[test]
fn all_holders_are_released_at_once() {
    let mut page = Page::on_sqlite(&[]);
    page.hold(&COLLATE, "node-1");
    page.hold(&COLLATE, "node-2");
    page.wait_for_holder("collate", 2, "node-2");
    page.browser.click(".semaphore .heading button");
    assert_eq!(page.text("#dialog-ok"), "Release 2 holders");
    page.browser.click("#dialog-ok");
    page.wait_for_holder("collate", 1, "free");
    page.wait_for_text("#result", "Released 2 holders of collate.");
    assert_eq!(page.held("collate"), 0);
    page.assert_console_is_empty();
}

/// The page has not shown the last holder when the operator releases.
#[test]
fn release_of_all_leaves_a_holder_that_was_not_shown() {
    let mut page = Page::on_sqlite(&[]);
    let first = page.acquire(&COLLATE, "node-1");
    page.hold(&COLLATE, "node-2");
    page.wait_for_holder("collate", 2, "node-2");
    page.browser.click(".semaphore .heading button");
    // Events arrive, and are not shown any more.
    let freeze = "JSON.parse = () => { throw new Error('frozen'); }";
    page.browser.run(freeze, &[]);
    diesel_locks::SemaphoreExt::release_slot(&mut page.conn, first).expect("released");
    page.hold(&COLLATE, "node-3");
    assert_eq!(page.text("#dialog-ok"), "Release 2 holders");
    page.browser.click("#dialog-ok");
    page.wait_for_text(
        "#result",
        "Released 1 holder of collate. 1 other had gone before.",
    );
    let held = page.held_slots("collate");
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].holder.as_deref(), Some("node-3"));
}

#[test]
fn token_is_asked_for_and_a_wrong_one_is_a_problem() {
    let mut page = Page::on_sqlite(&["--operator-token", "let me in"]);
    assert!(page.shows("#guard") && !page.shows("#unguarded"));
    page.hold(&COLLATE, "node-1");
    page.hold(&COLLATE, "node-2");
    page.wait_for_holder("collate", 2, "node-2");
    page.browser.click(&format!("{} button", row("collate", 1)));
    page.browser.type_into("#token", "wrong");
    page.browser.click("#dialog-ok");
    let problem = "return document.getElementById('dialog-problem').textContent";
    let (problem, _) = page
        .browser
        .wait("problem", &format!("{problem} || null"), &[]);
    assert!(
        problem.as_str().expect("a text").contains("token"),
        "{problem}"
    );
    assert_eq!(page.held("collate"), 2);
    // The browser notes the refused request.
    let console = page.browser.console();
    assert!(
        console.len() == 1 && console[0].contains("401"),
        "{console:?}"
    );

    page.browser.type_into("#token", "let me in");
    page.browser.press(ENTER);
    page.wait_for_holder("collate", 1, "free");
    assert_eq!(page.held("collate"), 1);
    // Kept for the next one, also when the page is loaded again, until it is forgotten.
    page.reload();
    page.wait_for_holder("collate", 2, "node-2");
    page.browser.click("#forget");
    page.browser.click(&format!("{} button", row("collate", 2)));
    assert!(page.shows("#token"));
    page.browser.type_into("#token", "let me in");
    page.browser.click("#dialog-ok");
    page.wait_for_holder("collate", 2, "free");
    page.hold(&COLLATE, "node-3");
    page.wait_for_holder("collate", 1, "node-3");
    page.reload();
    page.wait_for_holder("collate", 1, "node-3");
    page.browser.click(&format!("{} button", row("collate", 1)));
    assert!(!page.shows("#token"));
    page.browser.click("#dialog-ok");
    page.wait_for_holder("collate", 1, "free");
    page.assert_console_is_empty();
}

#[test]
fn dialog_releases_nobody_but_the_holder_that_it_names() {
    let mut page = Page::on_sqlite(&[]);
    let first = page.acquire(&COLLATE, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    page.browser.click(&format!("{} button", row("collate", 1)));
    diesel_locks::SemaphoreExt::release_slot(&mut page.conn, first).expect("released");
    page.hold(&COLLATE, "node-2");
    let disabled = "return document.getElementById('dialog-ok').disabled && document.getElementById('dialog-changed').textContent.includes('node-2')";
    page.browser.wait("warning", disabled, &[]);
    page.browser.press(ESCAPE);
    assert_eq!(page.held("collate"), 1);
    page.assert_console_is_empty();
}

#[test]
fn slot_is_released_by_the_fence_of_its_grant_only() {
    let mut page = Page::on_sqlite(&[]);
    let slot = page.acquire(&COLLATE, "node-1");
    let fence = slot.fence();
    let path = "/admin/semaphores/collate/slots/1/release";
    let release =
        |page: &Page<_>, query: &str| post(page.service.address, &format!("{path}{query}")).status;
    assert_eq!(release(&page, ""), 400);
    assert_eq!(release(&page, &format!("?fence={}", fence - 1)), 409);
    assert_eq!(page.held("collate"), 1);
    assert_eq!(release(&page, &format!("?fence={fence}")), 200);
    assert_eq!(page.held("collate"), 0);
    assert_eq!(release(&page, &format!("?fence={fence}")), 409);
}

#[test]
fn keyboard_and_focus_survive_updates() {
    let mut page = Page::on_sqlite(&[]);
    page.hold(&COLLATE, "node-1");
    page.wait_for_holder("collate", 1, "node-1");
    let button = format!("{} button", row("collate", 1));
    let focus = "window.row = document.querySelector(arguments[0]).closest('tr'); document.querySelector(arguments[0]).focus()";
    page.browser.run(focus, &[json!(button)]);
    // New rows and other times come, and the row with the focus is still the same element.
    page.hold(&COLLATE, "node-2");
    page.hold(&Semaphore::from_static("a", 1), "node-3");
    page.wait_for_holder("collate", 2, "node-2");
    page.wait_for_holder("a", 1, "node-3");
    let kept = "return window.row.isConnected && window.row.contains(document.activeElement)";
    assert_eq!(page.browser.run(kept, &[]), json!(true));

    page.browser.press(ENTER);
    assert!(page.shows("#dialog"));
    let focused = "return document.activeElement.id";
    assert_eq!(page.browser.run(focused, &[]), json!("dialog-cancel"));
    page.browser.press(ESCAPE);
    assert!(!page.shows("#dialog"));
    assert_eq!(page.browser.run(kept, &[]), json!(true));
    assert_eq!(page.held("collate"), 2);
    page.assert_console_is_empty();
}
