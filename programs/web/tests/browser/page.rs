//! The page with its service and a connection to the database, and what is on the page.

use std::process::Stdio;
use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions, Slot, SlotInfo};
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::testing::{TempDir, path_in};
use serde_json::{Value, json};

use super::instance::Instance;
use super::webdriver::Browser;

/// A service, its page in a browser, and a connection with which a test acquires slots.
pub(crate) struct Page {
    pub(crate) browser: Browser,
    pub(crate) service: Instance,
    pub(crate) conn: AnyConnection,
    pub(crate) url: String,
    directory: Option<TempDir>,
}

impl Page {
    /// On a database of its own.
    pub(crate) fn on_sqlite() -> Self {
        let directory = TempDir::new().expect("a directory");
        let mut page = Self::on(&path_in(&directory, "locks.sqlite"));
        page.directory = Some(directory);
        page
    }

    /// On the database of this URL.
    pub(crate) fn on(url: &str) -> Self {
        let token = ["--operator-token", "let me in"];
        let service = Instance::start_with_log(url, &token, Stdio::null());
        let browser = Browser::start();
        browser.open(&format!("http://{}/", service.address));
        let database = Database::from_url(url).expect("a URL");
        let page = Self {
            browser,
            service,
            conn: AnyConnection::open(&database).expect("the database answers"),
            url: url.to_owned(),
            directory: None,
        };
        page.wait_for_text("#connection", "Live");
        page
    }

    /// Acquires a slot for 30 s.
    pub(crate) fn acquire(&mut self, semaphore: &Semaphore, holder: &str) -> Slot {
        let lease = LeaseOptions::new(Duration::from_secs(30)).holder(holder);
        let slot = self.conn.acquire_slot(semaphore, lease, Wait::No);
        slot.expect("a free slot")
    }

    /// Acquires a slot for 30 s, and keeps it.
    pub(crate) fn hold(&mut self, semaphore: &Semaphore, holder: &str) {
        drop(self.acquire(semaphore, holder));
    }

    /// The held slots.
    pub(crate) fn held_slots(&mut self, semaphore: &str) -> Vec<SlotInfo> {
        let options = ListOptions::new().name(semaphore);
        self.conn.held_slots(&options).expect("a list")
    }

    /// How many slots are held.
    pub(crate) fn held(&mut self, semaphore: &str) -> usize {
        self.held_slots(semaphore).len()
    }

    /// Confirms the release in the dialog.
    pub(crate) fn confirm(&self) {
        self.browser.type_into("#token", "let me in");
        self.browser.click("#dialog-ok");
    }

    /// Waits until a slot is shown with this text as its holder.
    pub(crate) fn wait_for_holder(&self, semaphore: &str, slot: u32, holder: &str) {
        let cell = format!("{} td:nth-child(2)", row(semaphore, slot));
        self.wait_for_text(&cell, holder);
    }

    /// Waits until a slot is not shown.
    pub(crate) fn wait_until_free(&self, semaphore: &str, slot: u32) {
        let script = "return !document.querySelector(arguments[0])";
        let arguments = [json!(row(semaphore, slot))];
        self.browser.wait("free slot", script, &arguments);
    }

    /// Waits until an element has this text.
    pub(crate) fn wait_for_text(&self, selector: &str, text: &str) {
        let script = "return document.querySelector(arguments[0])?.textContent === arguments[1]";
        let arguments = [json!(selector), json!(text)];
        self.browser.wait(text, script, &arguments);
    }

    /// The text of an element.
    pub(crate) fn text(&self, selector: &str) -> String {
        let script = "return document.querySelector(arguments[0]).textContent";
        let text = self.browser.run(script, &[json!(selector)]);
        text.as_str().expect("a text").to_owned()
    }

    /// Whether an element is shown.
    pub(crate) fn shows(&self, selector: &str) -> bool {
        let script = "return document.querySelector(arguments[0])?.checkVisibility() ?? false";
        self.browser.run(script, &[json!(selector)]) == Value::Bool(true)
    }

    /// Asserts that neither the page nor the browser has complained.
    pub(crate) fn assert_console_is_empty(&self) {
        assert_eq!(self.browser.console(), [""; 0]);
    }
}

/// A selector of the row of a slot that is not free.
pub(crate) fn row(semaphore: &str, slot: u32) -> String {
    format!("tbody[data-key={}] tr[data-key='{slot}']", json!(semaphore))
}
