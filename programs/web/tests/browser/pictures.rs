//! Makes the pictures in `docs`, of a service that is busy for a minute.
//!
//! Run by hand, as docs/programs.md says.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use diesel::prelude::*;
use diesel_locks::Error;
use diesel_locks::prelude::*;
use program_support::testing::OwnDatabase;

use super::client::{post, send};
use super::page::Page;

/// The arguments of the service.
const ARGUMENTS: [&str; 6] = [
    "--operator-token",
    "let me in",
    "--permits",
    "2",
    "--name",
    "web-1",
];
/// As long as the lanes of the page.
const BUSY: Duration = Duration::from_secs(62);
const STEP: Duration = Duration::from_millis(400);
/// A job, its holder, and the seconds that it takes. The next one is asked for when this one has got a slot.
type Job = (&'static str, f32);
const COLLATE: [Job; 7] = [
    ("node-1", 9.0),
    ("node-2", 13.0),
    ("node-4", 6.5),
    ("node-3", 11.0),
    ("node-2", 7.0),
    ("node-1", 15.0),
    ("node-4", 4.5),
];
const REPORT: [Job; 3] = [("node-3", 21.0), ("node-1", 14.0), ("node-4", 17.5)];

/// How many sessions lock one object by turns, and how many clients store one document.
const LOCKERS: u32 = 3;

/// Keeps the service busy, and saves the pictures.
fn save(page: &Page<PgConnection>) {
    let ended = AtomicBool::new(false);
    let url = page.url.as_str();
    let address = page.service.address;
    thread::scope(|scope| {
        for _ in 0..LOCKERS {
            scope.spawn(|| lock_by_turns(url, &ended));
            scope.spawn(|| store_by_turns(address, &ended));
        }
        scope.spawn(|| scan_by_turns(url, &ended));
        let mut jobs = [
            ("collate-logs", COLLATE.iter().cycle().peekable()),
            ("nightly-report", REPORT.iter().cycle().peekable()),
        ];
        let mut busy = |duration| {
            let start = Instant::now();
            while start.elapsed() < duration {
                for (name, jobs) in &mut jobs {
                    let (holder, seconds) = jobs.peek().expect("they start over");
                    let path = format!("/jobs/{name}?holder={holder}&seconds={seconds}");
                    if post(address, &path).status == 202 {
                        jobs.next();
                    }
                    post(address, "/meetings/4711/passes");
                }
                thread::sleep(STEP);
            }
        };
        busy(BUSY);
        for (name, width, height, scheme) in [
            ("wide-light", 1280, 1100, "light"),
            ("wide-dark", 1280, 1100, "dark"),
            ("narrow-light", 360, 860, "light"),
            ("narrow-dark", 360, 860, "dark"),
        ] {
            page.browser.show_as(width, height, scheme);
            busy(STEP * 4);
            save_one(&format!("web-{name}.png"), &page.browser.picture());
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// Holds one object's lock now and then, for longer than the others can wait without being seen.
fn lock_by_turns(url: &str, ended: &AtomicBool) {
    let mut conn = PgConnection::establish(url).expect("the database answers");
    while !ended.load(Ordering::Relaxed) {
        let wait = LockRequest::new(ObjectId::new("Invoice", "2026-117")).wait(Wait::AtMost(BUSY));
        let _ = conn.with_object_lock(wait, |_conn| {
            thread::sleep(Duration::from_millis(1800));
            Ok::<_, Error>(())
        });
    }
}

/// Stores one document, which others store too.
fn store_by_turns(address: SocketAddr, ended: &AtomicBool) {
    let document = "<document changed=\"2026-01-31T12:00:00Z\"/>";
    while !ended.load(Ordering::Relaxed) {
        send(
            address,
            "PUT",
            "/documents/4711?hold_ms=700",
            &[],
            document.as_bytes(),
        )
        .answer();
    }
}

/// Holds the only slot of a semaphore, as different holders.
fn scan_by_turns(url: &str, ended: &AtomicBool) {
    let mut conn = PgConnection::establish(url).expect("the database answers");
    let semaphore = Semaphore::from_static("document:Invoice/2026-117", 1);
    for holder in ["scanner-berlin", "<script>alert(1)</script>", "archive"]
        .iter()
        .cycle()
    {
        let lease = LeaseOptions::new(Duration::from_secs(20)).holder(*holder);
        let slot = conn.acquire_slot(&semaphore, lease, Wait::Forever);
        for _ in 0..50 {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(STEP);
        }
        if let Ok(slot) = slot {
            let _ = conn.release_slot(slot);
        }
    }
}

fn save_one(name: &str, base64: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    fs::write(&path, BASE64_STANDARD.decode(base64).expect("Base64")).expect("a file");
    println!("{}", path.display());
}

#[test]
#[ignore = "writes the pictures in docs; takes a minute"]
fn pictures_on_postgres() {
    let database = OwnDatabase::<PgConnection>::create("PG_DATABASE_URL");
    save(&Page::on(&database.url, &ARGUMENTS));
}
