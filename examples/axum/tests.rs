//! What both services do, shown on PostgreSQL by the program of the package that compiles this file.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions, SlotInfo};
use program_support::testing::{OwnDatabase, Signal, signal, wait_until};

const PROGRAM: &str = env!(concat!("CARGO_BIN_EXE_", env!("CARGO_PKG_NAME")));

/// Takes 60 of 100 pieces.
const TAKE: &str = "POST /stock/1/take/60";
/// How long a request waits for a lock.
const WAIT: Duration = Duration::from_secs(2);
/// That of the leader.
const LEASE: Duration = Duration::from_secs(30);

fn database() -> OwnDatabase<PgConnection> {
    OwnDatabase::create("PG_DATABASE_URL")
}

/// A connection of the test, to the database of a service that has started.
fn with_stock(url: &str) -> PgConnection {
    let mut conn = PgConnection::establish(url).expect("a connection");
    let row = "INSERT INTO stock VALUES (1, 100)";
    conn.batch_execute(row).expect("a row");
    conn
}

/// Begins a transaction that locks the row of the item. Requests that take pieces then wait for the row.
fn lock_row(conn: &mut PgConnection) {
    let lock = "BEGIN; SELECT FROM stock FOR UPDATE";
    conn.batch_execute(lock).expect("the row is free");
}

fn number(conn: &mut PgConnection, query: &str) -> i64 {
    let number = diesel::dsl::sql::<BigInt>(query);
    diesel::select(number).get_result(conn).expect(query)
}

/// The slot of the one that leads, if there is one.
fn leader(conn: &mut PgConnection) -> Option<SlotInfo> {
    let held = conn.held_slots(&ListOptions::new().name("counter"));
    let mut held = held.expect("a list");
    assert!(held.len() <= 1, "{held:?}");
    held.pop()
}

/// A process of the program that listens. Killed when it is dropped.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(url: &str) -> Self {
        let mut process = Command::new(PROGRAM)
            .env("DATABASE_URL", url)
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = process.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let (_, address) = line.trim().rsplit_once("http://").expect("an address");
        Self {
            address: address.to_owned(),
            process,
        }
    }

    /// The answer, from its status line on.
    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let longest = Some(Duration::from_secs(60));
        stream.set_read_timeout(longest).expect("a time-out");
        write!(stream, "{request} HTTP/1.0\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// How many pieces were taken. Repeats a request that is answered 503, as clients do.
    fn take(&self) -> String {
        loop {
            let answer = self.ask(TAKE);
            if !is_refusal(&answer) {
                assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
                return answer.rsplit("\r\n").next().expect("a body").to_owned();
            }
        }
    }

    /// Waits until a request for the item waits for its lock, or is inside.
    fn await_request(&self, state: &str) {
        let line = format!("the object lock \"Item:1\": {state}");
        wait_until(&line, || self.ask("GET /requests").contains(&line));
    }

    fn terminate(&self) {
        signal(self.process.id(), Signal::TERM);
    }

    /// Waits for the end, and asserts that it is orderly.
    fn await_end(&mut self) {
        let status = self.process.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether the client is to try again later.
fn is_refusal(answer: &str) -> bool {
    let refused = answer.starts_with("HTTP/1.0 503 ");
    assert_eq!(refused, answer.contains("retry-after: 1"), "{answer}");
    refused
}

#[test]
fn requests_for_one_item_are_served_one_after_the_other() {
    let database = database();
    let [first, second] = [(); 2].map(|()| Service::start(&database.url));
    let mut conn = with_stock(&database.url);
    lock_row(&mut conn);
    let taken = thread::scope(|scope| {
        let one = scope.spawn(|| first.take());
        first.await_request("inside");
        let other = scope.spawn(|| second.take());
        second.await_request("waits");
        conn.batch_execute("COMMIT").expect("a commit");
        [one, other].map(|taken| taken.join().expect("an answer"))
    });
    assert_eq!(taken, ["60", "40"]);
    assert_eq!(number(&mut conn, "(SELECT pieces FROM stock)"), 0);
    let unknown = first.ask("POST /stock/2/take/1");
    assert!(unknown.starts_with("HTTP/1.0 404 "), "{unknown}");
}

#[test]
fn request_that_waits_too_long_is_refused() {
    let database = database();
    let service = Service::start(&database.url);
    let mut conn = with_stock(&database.url);
    let refused = conn.with_object_lock(ObjectId::new("Item", 1), |_| {
        let started = Instant::now();
        let refused = is_refusal(&service.ask(TAKE));
        assert!(started.elapsed() >= WAIT, "{:?}", started.elapsed());
        Ok::<_, Error>(refused)
    });
    assert!(refused.expect("the lock is free"));
    assert_eq!(number(&mut conn, "(SELECT pieces FROM stock)"), 100);
    assert_eq!(service.take(), "60");
}

#[test]
fn another_service_leads_when_the_leader_has_ended() {
    let database = database();
    let mut services = [(); 2].map(|()| Service::start(&database.url));
    let mut conn = with_stock(&database.url);
    let counts = |conn: &mut PgConnection| number(conn, "(SELECT count(*) FROM counts)");
    wait_until("one counts", || counts(&mut conn) > 0);
    let leads = |slot: &SlotInfo, service: &Service| {
        let process = format!("/{}", service.process.id());
        slot.holder
            .as_ref()
            .is_some_and(|it| it.ends_with(&process))
    };
    let first = leader(&mut conn).expect("one leads");
    services.sort_by_key(|it| leads(&first, it));
    let [other, leader_of_both] = &mut services;
    assert!(leads(&first, leader_of_both) && !leads(&first, other));

    let started = Instant::now();
    leader_of_both.terminate();
    leader_of_both.await_end();
    let counted = counts(&mut conn);
    wait_until("the other one counts", || counts(&mut conn) > counted);
    assert!(started.elapsed() < LEASE / 2, "{:?}", started.elapsed());
    let next = leader(&mut conn).expect("one leads");
    assert!(leads(&next, other) && next.fence > first.fence, "{next:?}");
}

#[test]
fn sigterm_ends_waits_and_lets_requests_end() {
    let database = database();
    let mut service = Service::start(&database.url);
    let mut conn = with_stock(&database.url);
    wait_until("it leads", || leader(&mut conn).is_some());
    let mut holder = PgConnection::establish(&database.url).expect("a connection");
    lock_row(&mut holder);
    thread::scope(|scope| {
        let inside = scope.spawn(|| service.take());
        service.await_request("inside");
        let waiter = scope.spawn(|| service.ask(TAKE));
        service.await_request("waits");
        service.terminate();
        // While the row is locked.
        assert!(is_refusal(&waiter.join().expect("an answer")));
        holder.batch_execute("COMMIT").expect("a commit");
        assert_eq!(inside.join().expect("an answer"), "60");
    });
    service.await_end();
    assert!(leader(&mut conn).is_none());
}
