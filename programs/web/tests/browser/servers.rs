//! The page on the servers in `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, each in a separate database.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::Error;
use diesel_locks::prelude::*;
use program_test_support::OwnDatabase;

use super::holders::holders_come_and_go;
use super::page::Page;

const LONG: Wait = Wait::AtMost(Duration::from_secs(60));

#[cfg(feature = "postgres")]
#[test]
fn holders_come_and_go_on_postgres() {
    let database = OwnDatabase::<PgConnection>::create("PG_DATABASE_URL");
    holders_come_and_go::<PgConnection>(&mut Page::on(&database.url, &[]));
}

#[cfg(feature = "mysql")]
#[test]
fn holders_come_and_go_on_mysql() {
    let database = OwnDatabase::<MysqlConnection>::create("MYSQL_DATABASE_URL");
    holders_come_and_go::<MysqlConnection>(&mut Page::on(&database.url, &[]));
}

/// A held object lock is shown with its session and the one that waits, until it is released.
fn object_locks_are_shown<C>(url: &str)
where
    C: Connection + SemaphoreExt + ObjectLockExt,
{
    let page = Page::<C>::on(url, &[]);
    let (held, is_held) = mpsc::channel();
    let (release, is_released) = mpsc::channel::<()>();
    let document = || LockRequest::new(ObjectId::new("Document", 4711)).wait(LONG);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut conn = C::establish(url).expect("the database answers");
            let work = |_: &mut C| {
                held.send(()).expect("the test waits");
                // It ends with the test, also if that fails.
                let _ = is_released.recv();
                Ok::<_, Error>(())
            };
            conn.with_object_lock(document(), work).expect("locked");
        });
        is_held.recv().expect("locked");
        scope.spawn(move || {
            let mut conn = C::establish(url).expect("the database answers");
            let nothing = |_: &mut C| Ok::<_, Error>(());
            conn.with_object_lock(document(), nothing).expect("locked");
        });
        let shown = "const row = document.querySelector('#object-rows tr'); \
             return row?.cells[0].textContent === 'Document:4711' && row.cells[3].textContent.startsWith('session ')";
        let (_, took) = page.browser.wait("lock", shown, &[]);
        println!("a lock with a waiter is shown after {took:?}");
        drop(release);
    });
    let gone = "return document.querySelector('#objects table').hidden";
    page.browser.wait("end of the lock", gone, &[]);
    page.assert_console_is_empty();
}

#[cfg(feature = "postgres")]
#[test]
fn object_locks_are_shown_on_postgres() {
    let database = OwnDatabase::<PgConnection>::create("PG_DATABASE_URL");
    object_locks_are_shown::<PgConnection>(&database.url);
}

#[cfg(feature = "mysql")]
#[test]
fn object_locks_are_shown_on_mysql() {
    let database = OwnDatabase::<MysqlConnection>::create("MYSQL_DATABASE_URL");
    object_locks_are_shown::<MysqlConnection>(&database.url);
}

#[cfg(feature = "postgres")]
#[test]
#[ignore = "writes the pictures in docs; takes a minute"]
fn pictures_on_postgres() {
    let database = OwnDatabase::<PgConnection>::create("PG_DATABASE_URL");
    let page = Page::<PgConnection>::on(&database.url, &super::pictures::ARGUMENTS);
    super::pictures::save(&page, 3);
}
