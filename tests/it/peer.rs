//! Another process that holds a lock: this test binary, started again for the one test below.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use diesel_locks::prelude::*;

use crate::support::{Backend, mysql::Mysql, postgres::Postgres, sqlite::Sqlite};

const URL: &str = "DIESEL_LOCKS_PEER_URL";
const LOCK: &str = "DIESEL_LOCKS_PEER_LOCK";

pub(crate) struct Peer(Child);

impl Peer {
    /// Returns when the process holds the lock.
    pub(crate) fn holding<B: Backend>(url: &str, id: &str, retention: Retention) -> Self {
        Self::told(url, &format!("{} {retention:?} {id}", B::NAME))
    }

    /// Returns when the process holds the slot, of one permit, by a transaction.
    pub(crate) fn holding_a_slot<B: Backend>(url: &str, semaphore: &str) -> Self {
        Self::told(url, &format!("{} Slot {semaphore}", B::NAME))
    }

    fn told(url: &str, told: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "peer::holds_a_lock_until_it_is_killed",
                "--exact",
                "--nocapture",
            ])
            .env(URL, url)
            .env(LOCK, told)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the peer");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let held = output
            .lines()
            .map(|line| line.expect("text"))
            .any(|line| line.ends_with("held"));
        assert!(held, "the peer ended without the lock");
        Self(child)
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it is gone");
    }
}

fn hold<B: Backend>(url: &str, what: &str, id: &str) {
    let mut conn = B::connect_to(url);
    let work = |conn: &mut B::Conn| {
        B::count_up(conn, 9);
        println!("held");
        // Until the end of the test, should that not kill it.
        std::io::stdin()
            .read_to_end(&mut Vec::new())
            .expect("an end");
        Ok::<_, diesel_locks::Error>(())
    };
    let done = match what {
        "Slot" => conn.with_slot(&Semaphore::named(id, 1), Wait::No, work),
        "Kept" => conn.with_object_lock(ObjectLock::on(id).retention(Retention::Kept), work),
        _ => conn.with_object_lock(id, work),
    };
    done.expect("it is free");
}

/// In the peer it does what it is told; in the test run it checks that a peer's work is undone when it
/// is killed, with SQLite.
#[test]
fn holds_a_lock_until_it_is_killed() {
    if let (Ok(url), Ok(told)) = (std::env::var(URL), std::env::var(LOCK)) {
        let mut told = told.splitn(3, ' ');
        let mut next = || told.next().expect("backend, retention and id");
        let backend = next();
        let (what, id) = (next(), next());
        return match backend {
            Postgres::NAME => hold::<Postgres>(&url, what, id),
            Mysql::NAME => hold::<Mysql>(&url, what, id),
            _ => hold::<Sqlite>(&url, what, id),
        };
    }
    let database = Sqlite::new();
    let peer = Peer::holding::<Sqlite>(&database.url(), "a", Retention::Kept);
    let mut conn = database.connect();
    let tried = conn
        .try_with_object_lock("a", |_| Ok::<_, diesel_locks::Error>(()))
        .expect("an answer");
    assert_eq!(tried, None);
    peer.kill();
    conn.with_object_lock("a", |_| Ok::<_, diesel_locks::Error>(()))
        .expect("free");
    assert_eq!(Sqlite::counter(&mut conn, 9), 0, "undone");
    assert_eq!(database.rows(), 0, "undone");
}
