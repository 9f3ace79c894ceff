//! Acts upon a holder.

use diesel_locks::{Semaphore, SemaphoreExt};
use serde_json::json;

use super::page::{Page, row};

const COLLATE: Semaphore = Semaphore::from_static("collate", 2);
/// `WebDriver`'s codes of keys.
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// A page with two holders.
fn page_with_holders() -> Page {
    let mut page = Page::on_sqlite();
    page.hold(&COLLATE, "node-1");
    page.hold(&COLLATE, "node-2");
    page.wait_for_holder("collate", 2, "node-2");
    page
}

#[test]
fn release_asks_and_cancel_does_nothing() {
    let mut page = page_with_holders();
    page.click_release("collate", 2);
    assert_eq!(page.text("#dialog-title"), "Release slot 2 of collate?");
    let holder = page.text("#dialog-holder");
    assert!(holder.starts_with("Held by node-2, fence "), "{holder}");
    page.browser.click("#dialog-cancel");
    assert!(!page.shows("#dialog"));
    assert_eq!(page.held("collate"), 2);

    page.click_release("collate", 2);
    page.confirm();
    page.wait_until_free("collate", 2);
    page.wait_for_text("#result", "Released slot 2 of collate.");
    // The other holder keeps its slot.
    assert_eq!(page.held("collate"), 1);
    page.wait_for_holder("collate", 1, "node-1");
    page.assert_console_is_empty();
}

#[test]
fn requested_release_is_shown_and_releases_nothing() {
    let mut page = page_with_holders();
    page.browser.click(&format!("{} button", row("collate", 1)));
    let title = page.text("#dialog-title");
    assert_eq!(title, "Request release of slot 1 of collate?");
    page.confirm();
    page.wait_for_text("#result", "Requested the release of slot 1 of collate.");
    let shown = "return document.querySelector(arguments[0]).textContent.includes('node-1\\nrelease requested ')";
    let holder = json!(format!("{} .holder", row("collate", 1)));
    page.browser.wait("request", shown, &[holder]);
    let held = page.held_slots("collate");
    let requested = held.iter().map(|it| it.release_requested_at.is_some());
    assert_eq!(requested.collect::<Vec<_>>(), [true, false]);
    page.assert_console_is_empty();
}

#[test]
fn refused_release_is_a_problem_in_the_dialog() {
    let mut page = page_with_holders();
    page.click_release("collate", 1);
    page.browser.type_into("#token", "wrong");
    page.browser.click("#dialog-ok");
    let told =
        "return document.getElementById('dialog-problem').textContent.includes(arguments[0])";
    page.browser.wait("problem", told, &[json!("token")]);
    assert_eq!(page.held("collate"), 2);
    // The browser notes the refused request.
    let console = page.browser.console();
    assert!(
        console.len() == 1 && console[0].contains("401"),
        "{console:?}"
    );
    // The dialog names a holder that has ended.
    page.conn
        .force_release_all(COLLATE.name())
        .expect("released");
    page.hold(&COLLATE, "node-3");
    page.confirm();
    page.browser
        .wait("problem", told, &[json!("is not held with the fence")]);
    assert_eq!(page.held("collate"), 1);
}

#[test]
fn keyboard_and_focus_survive_updates() {
    let mut page = page_with_holders();
    let button = format!("{} button", row("collate", 1));
    let focus = "window.row = document.querySelector(arguments[0]).closest('tr'); \
         document.querySelector(arguments[0]).focus()";
    page.browser.run(focus, &[json!(button)]);
    // New rows and other times come, and the row with the focus is still the same element.
    page.hold(&Semaphore::from_static("a", 1), "node-3");
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
