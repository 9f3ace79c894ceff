//! A process that is killed while a task of it waits, or holds a lock: this test program, started again for the same test.

use std::env;
use std::future::pending;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel_async::AsyncConnection;
use diesel_locks::Error;
use diesel_locks::prelude::*;
use tokio::time::{sleep, timeout};

use crate::locks::ID;
use crate::support::after::After;
use crate::support::blocker::Blocker;
use crate::support::dropped::LONG;
use crate::support::engine::Engine;
use crate::support::watch::{Held, Watch};

const URL: &str = "DIESEL_LOCKS_KILLED_PROCESS_URL";
const SESSION: &str = "session: ";
const HOLDS: &str = "it holds the lock";

pub(crate) async fn killed<E: Engine>() {
    if let Ok(url) = env::var(URL) {
        return lock::<E>(&url).await;
    }
    let database = Arc::new(E::new());
    let watch = Watch::new(&*database);
    let held = Held::Object(ID);
    let url = database.url_with_client_checks();

    let mut holder = Process::start::<E>(&url);
    let session = holder.session();
    holder.line_with(HOLDS);
    holder.kill();
    let after = After {
        watch: &watch,
        session,
        place: "a process that held the lock",
    };
    after.until_quiet().await;
    after.until_free(&held).await;

    let blocker = Blocker::acquire(&database, &held).await;
    let mut waiter = Process::start::<E>(&url);
    let session = waiter.session();
    let started = Instant::now();
    while session.is_some() && !watch.waits(session).await {
        assert!(started.elapsed() < LONG, "it does not wait");
        sleep(Duration::from_millis(1)).await;
    }
    waiter.kill();
    let after = After {
        watch: &watch,
        session,
        place: "a process that waited",
    };
    if E::CHECKS_CLIENTS {
        after.until_quiet().await;
    }
    blocker.release().await;
    after.until_quiet().await;
    after.until_free(&held).await;
}

/// What the process does: it holds the lock until it is killed.
async fn lock<E: Engine>(url: &str) {
    let mut conn = E::Conn::establish(url).await.expect("a connection");
    let session = E::session(&mut conn).await;
    println!("\n{SESSION}{}", session.unwrap_or_default());
    let hold = async |_: &mut E::Conn| -> Result<(), Error> {
        println!("\n{HOLDS}");
        pending().await
    };
    // Not for ever, should the test end without killing it.
    let ended = timeout(4 * LONG, conn.with_object_lock(ID, hold)).await;
    assert!(ended.is_err(), "{ended:?}");
}

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start<E: Engine>(url: &str) -> Self {
        let name = format!("{}::processes::killed", E::MIGRATIONS);
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args([&name, "--exact", "--nocapture"])
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the process");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    /// Returns the rest of the next line with this text.
    fn line_with(&mut self, text: &str) -> String {
        let mut lines = self.lines.by_ref().map(|line| line.expect("text"));
        let line = lines.find_map(|line| line.strip_prefix(text).map(str::to_owned));
        line.unwrap_or_else(|| panic!("the process has ended without {text:?}"))
    }

    /// The number of its session; `None` without a server.
    fn session(&mut self) -> Option<i64> {
        let session = self.line_with(SESSION).parse().expect("a number");
        (session != 0).then_some(session)
    }

    /// `kill -9`.
    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
    }
}

/// Also when the test has failed.
impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
