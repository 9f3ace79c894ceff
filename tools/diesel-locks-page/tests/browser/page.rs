//! The page with its service and a connection to the database, and what is on the page.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use diesel::connection::SimpleConnection;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions, LockPool, Slot, SlotInfo};
use program_support::connection::AnyConnection;
use program_support::database::{Database, Engine};
use program_support::testing::{TempDir, path_in};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::webdriver::Browser;

/// An application that mounts the page under a path.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    /// Whose requests the page shows.
    pub(crate) locks: LockPool<Pool<ConnectionManager<AnyConnection>>>,
    /// The metrics of the application.
    pub(crate) metrics: Arc<Mutex<String>>,
    runtime: Option<Runtime>,
}

impl Service {
    pub(crate) fn start(url: &str, listen: &str) -> Self {
        let database = Database::from_url(url).expect("a URL");
        let pool = Pool::builder()
            .min_idle(Some(0))
            .build_unchecked(ConnectionManager::new(&database.url));
        let locks = LockPool::new(pool.clone());
        let page = diesel_locks_page::Page::new(pool).name("test of the page");
        let requests = locks.clone();
        let metrics = Arc::<Mutex<String>>::default();
        let rendered = Arc::clone(&metrics);
        let page = page
            .token("let-me-in")
            .requests(move || requests.requests())
            .metrics(move || rendered.lock().expect("unpoisoned").clone());
        let runtime = Runtime::new().expect("threads");
        let entered = runtime.enter();
        let app = Router::new().nest("/a/locks", diesel_locks_page::router(page));
        drop(entered);
        let listener = runtime.block_on(TcpListener::bind(listen));
        let listener = listener.expect("the port is free");
        let address = listener.local_addr().expect("bound");
        runtime.spawn(async { axum::serve(listener, app).await });
        Self {
            address,
            locks,
            metrics,
            runtime: Some(runtime),
        }
    }

    /// Ends it, and its connections. Returns where it has listened.
    pub(crate) fn end(&mut self) -> SocketAddr {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(20));
        }
        self.address
    }
}

/// A service, its page in a browser, and a connection with which a test acquires slots.
pub(crate) struct Page {
    pub(crate) browser: Browser,
    pub(crate) service: Service,
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
        let database = Database::from_url(url).expect("a URL");
        let mut conn = AnyConnection::open(&database).expect("the database answers");
        if database.engine == Engine::Sqlite {
            let mode = "PRAGMA journal_mode = WAL";
            conn.batch_execute(mode).expect("a mode");
        }
        diesel_locks::migrate(&mut conn).expect("the tables");
        let service = Service::start(url, "127.0.0.1:0");
        let browser = Browser::start();
        let page = Self {
            browser,
            service,
            conn,
            url: url.to_owned(),
            directory: None,
        };
        page.open("");
        page.wait_for_text("#connection", "Live");
        page
    }

    /// Opens the page with this query.
    pub(crate) fn open(&self, query: &str) {
        let address = self.service.address;
        self.browser
            .open(&format!("http://{address}/a/locks{query}"));
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

    /// Asks for the release of a slot.
    pub(crate) fn click_release(&self, semaphore: &str, slot: u32) {
        let button = format!("{} button:last-child", row(semaphore, slot));
        self.browser.click(&button);
    }

    /// Confirms in the dialog.
    pub(crate) fn confirm(&self) {
        let clear = "document.getElementById('token').value = ''";
        self.browser.run(clear, &[]);
        self.browser.type_into("#token", "let-me-in");
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
