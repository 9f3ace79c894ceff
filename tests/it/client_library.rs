//! The client library of MySQL and MariaDB, which Diesel uses.
//!
//! libmariadb 3.3.19 and 3.4.9 return empty texts to Diesel up to 2.3.14. This test loads a library before the correct
//! one, which makes that one return empty texts too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, Retention, SlotRenewer};

use crate::behaviour::slots::{one_hour, single_slot, slots_of};
use crate::subprocess::RENEWED_LEASE;
use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::threads::LONG;

const URL: &str = "DIESEL_LOCKS_EMPTY_TEXTS_URL";

/// `cargo xtask test` runs this one before all others.
#[test]
fn client_library_hands_out_texts() {
    let database = Mysql::empty();
    if let Err(error) = diesel_locks::migrate(&mut database.connect()) {
        panic!("{error}");
    }
}

#[test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "libraries are preloaded in another way"
)]
fn locks_leases_and_sequences_work_without_texts_and_the_rest_names_the_library() {
    if let Ok(url) = std::env::var(URL) {
        return without_texts(&url);
    }
    let database = Mysql::new();
    let directory = tempfile::tempdir().expect("a directory");
    let name = module_path!().split_once("::").expect("a module").1;
    let test = "locks_leases_and_sequences_work_without_texts_and_the_rest_names_the_library";
    let output = Command::new(std::env::current_exe().expect("this binary"))
        .args([&format!("{name}::{test}"), "--exact", "--nocapture"])
        .env("LD_PRELOAD", library(directory.path()))
        .env(URL, database.url())
        .output()
        .expect("this binary");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

/// The library with the defect.
fn library(directory: &Path) -> PathBuf {
    let library = directory.join("empty_texts.so");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/client_library/empty_texts.c"
    );
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", source, "-o"]);
    compiler.arg(&library).args(flags().split_whitespace());
    let output = compiler.output().expect("a C compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    library
}

/// Where the client library's header is.
fn flags() -> String {
    for name in ["libmariadb", "mysqlclient", "mariadb"] {
        let asked = Command::new("pkg-config").args(["--cflags", name]).output();
        if let Ok(output) = asked
            && output.status.success()
        {
            return String::from_utf8(output.stdout).expect("text");
        }
    }
    let asked = Command::new("mysql_config").arg("--include").output();
    String::from_utf8(asked.expect("mysql_config").stdout).expect("text")
}

fn without_texts(url: &str) {
    let mut conn = Mysql::connect_to(url);
    let conn = &mut conn;
    let text: String = diesel::select(sql::<Text>("'a text'"))
        .get_result(conn)
        .expect("a row");
    assert_eq!(text, "", "the library hands out no texts");

    locks_work(conn);
    leases_work(url, conn);
    sequences_work(conn);
    assert_eq!(conn.purge_object_locks().expect("no text is read"), 1);

    let refused = [
        diesel_locks::migrate(conn).err(),
        conn.held_slots(&slots_of(single_slot())).err(),
        conn.purge_slots(Duration::ZERO).err(),
    ];
    for error in refused {
        let error = error.expect("an error");
        assert!(matches!(error, Error::BrokenClientLibrary), "{error:?}");
        for said in ["3.3.19", "3.4.9", "3.3.20", "3.4.10", "2.3.14"] {
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}

fn locks_work(conn: &mut MysqlConnection) {
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = || LockRequest::new("account").retention(retention);
        for _ in 0..2 {
            conn.with_object_lock(lock(), |conn| conn.lock_object("another"))
                .expect("free");
        }
        let error = conn
            .transaction(|conn| conn.lock_object(lock()))
            .expect_err("REPEATABLE READ");
        assert!(error.to_string().contains("REPEATABLE-READ"), "{error}");
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL";
        Mysql::sql(conn, &format!("{level} READ COMMITTED"));
        conn.transaction(|conn| conn.lock_object(lock()))
            .expect("READ COMMITTED");
        Mysql::sql(conn, &format!("{level} REPEATABLE READ"));
    }
}

fn leases_work(url: &str, conn: &mut MysqlConnection) {
    let mut slot = conn
        .acquire_slot(&single_slot(), one_hour().holder("node"), Wait::No)
        .expect("free");
    conn.renew_slot(&mut slot, Duration::from_secs(60))
        .expect("ours");
    assert!(
        conn.try_acquire_slot(&single_slot(), one_hour())
            .expect("an answer")
            .is_none()
    );
    conn.transaction(|conn| conn.pin_slot(&slot)).expect("ours");
    conn.release_slot(slot).expect("ours");

    // Renewed beside one that was lost.
    let renewer = SlotRenewer::new(Mysql::pool_to(url, 2));
    let short = LeaseOptions::new(RENEWED_LEASE);
    let [kept, lost] = ["kept", "lost"].map(|name| {
        renewer
            .acquire(&Semaphore::new(name, 1), &short, Wait::No)
            .expect("free")
    });
    conn.force_release_all("lost").expect("taken away");
    let started = Instant::now();
    while lost.is_held() {
        assert!(started.elapsed() < LONG, "its loss is not noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let end = "SELECT MAX(expires_us) FROM diesel_locks_slots WHERE name = 'kept'";
    let first = Mysql::number(conn, end);
    while Mysql::number(conn, end) == first {
        assert!(started.elapsed() < LONG, "the other is not renewed");
        std::thread::sleep(Duration::from_millis(5));
    }
    kept.release().expect("ours");
    // For those who look.
    let _held = conn
        .acquire_slot(&single_slot(), one_hour().holder("node"), Wait::No)
        .expect("free");
}

fn sequences_work(conn: &mut MysqlConnection) {
    let numbers = Sequence::new("number");
    for expected in 1..=2 {
        let number = conn.transaction(|conn| conn.next_number(&numbers));
        assert_eq!(number.expect("a number"), expected);
    }
}
