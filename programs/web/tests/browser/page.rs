//! The page with its service and a connection to the database, and what is on the page.

use std::process::Stdio;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions, Slot, SlotInfo};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::instance::Instance;
use super::webdriver::Browser;

/// A service, its page in a browser, and a connection with which a test acquires slots.
pub(crate) struct Page<C> {
    pub(crate) browser: Browser,
    pub(crate) service: Instance,
    pub(crate) conn: C,
    pub(crate) url: String,
    directory: Option<TempDir>,
}

impl Page<SqliteConnection> {
    /// On a database of its own.
    pub(crate) fn on_sqlite(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("locks.sqlite");
        let mut page = Self::on(path.to_str().expect("UTF-8"), arguments);
        // The service writes too.
        let wait = "PRAGMA busy_timeout = 10000";
        page.conn.batch_execute(wait).expect("a time-out");
        page.directory = Some(directory);
        page
    }
}

impl<C: Connection + SemaphoreExt> Page<C> {
    /// On the database of this URL.
    pub(crate) fn on(url: &str, arguments: &[&str]) -> Self {
        let service = Instance::start_with_log(url, arguments, Stdio::null());
        let browser = Browser::start();
        browser.show_as(1280, 900, "light");
        browser.open(&format!("http://{}/", service.address));
        let page = Self {
            browser,
            service,
            conn: C::establish(url).expect("the database answers"),
            url: url.to_owned(),
            directory: None,
        };
        page.wait_for_state("Live");
        page
    }

    /// Loads the page again.
    pub(crate) fn reload(&self) {
        self.browser
            .open(&format!("http://{}/", self.service.address));
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

    /// Waits until the page says this about its connection. Returns how long that took.
    pub(crate) fn wait_for_state(&self, state: &str) -> Duration {
        let script =
            "return document.getElementById('connection-text').textContent === arguments[0]";
        self.browser.wait(state, script, &[json!(state)]).1
    }

    /// Waits until a slot is shown with this text as its holder. Returns how long that took.
    pub(crate) fn wait_for_holder(&self, semaphore: &str, slot: u32, holder: &str) -> Duration {
        let script = "return document.querySelector(arguments[0])?.textContent === arguments[1]";
        let holder_of = format!("{} .holder .name", row(semaphore, slot));
        let arguments = [json!(holder_of), json!(holder)];
        self.browser.wait(holder, script, &arguments).1
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
        let script = "return document.querySelector(arguments[0])?.checkVisibility({ visibilityProperty: true }) ?? false";
        self.browser.run(script, &[json!(selector)]) == Value::Bool(true)
    }

    /// Asserts that neither the page nor the browser has complained.
    pub(crate) fn assert_console_is_empty(&self) {
        assert_eq!(self.browser.console(), [""; 0]);
    }
}

/// A selector of the row of a slot.
pub(crate) fn row(semaphore: &str, slot: u32) -> String {
    let label = json!(format!("Slots of {semaphore}"));
    format!("table[aria-label={label}] tbody tr:nth-child({slot})")
}
