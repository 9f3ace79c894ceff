//! The page on the servers in `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, each in a separate database.

use std::thread;

use diesel::prelude::*;
use diesel_locks::prelude::*;
use program_support::testing::OwnDatabase;

use super::holder::Holder;
use super::holders::holders_come_and_go;
use super::page::Page;

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
    let document = || ObjectId::new("Document", 4711);
    let holder = Holder::acquire::<C>(url, document());
    thread::scope(|scope| {
        scope.spawn(|| Holder::acquire::<C>(url, document()).release());
        let shown = "const row = document.querySelector('#object-rows tr'); \
             return row?.cells[0].textContent === 'Document:4711' && row.cells[3].textContent.startsWith('session ')";
        let (_, took) = page.browser.wait("lock", shown, &[]);
        println!("a lock with a waiter is shown after {took:?}");
        holder.release();
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
