//! The page on the servers in `PG_DATABASE_URL` and `MYSQL_DATABASE_URL`, each in a separate database.

use diesel::prelude::*;
use program_test_support::OwnDatabase;

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

#[cfg(feature = "postgres")]
#[test]
#[ignore = "writes the pictures in docs; takes a minute"]
fn pictures_on_postgres() {
    let database = OwnDatabase::<PgConnection>::create("PG_DATABASE_URL");
    let page = Page::<PgConnection>::on(&database.url, &super::pictures::ARGUMENTS);
    super::pictures::save(&page, 3);
}
