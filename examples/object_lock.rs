//! An object lock: four threads receive versions of one document, and the newest version is kept.
//!
//! `cargo run --example object_lock`
#![allow(missing_docs)]

use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_locks::prelude::*;

diesel::table! { documents (id) { id -> Text, version -> Integer } }

const CREATE: &str = "CREATE TABLE documents (id TEXT PRIMARY KEY, version INTEGER NOT NULL)";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("app.db").display().to_string();
    let mut conn = connect(&url)?;
    diesel_locks::migrate(&mut conn)?;
    conn.batch_execute(CREATE)?;

    thread::scope(|scope| {
        for version in [2, 4, 1, 3] {
            let mut conn = connect(&url).expect("a connection");
            scope.spawn(move || {
                let stored = store(&mut conn, "contract-17", version).expect("no error");
                println!("version {version}: stored: {stored}");
            });
        }
    });

    let kept: Vec<(String, i32)> = documents::table.load(&mut conn)?;
    println!("kept: {kept:?}");
    assert_eq!(kept, [("contract-17".to_owned(), 4)]);
    Ok(())
}

/// Stores this version unless a newer one is there. The document needs no row: the lock is on its id.
fn store(conn: &mut SqliteConnection, id: &str, version: i32) -> QueryResult<bool> {
    conn.with_object_lock(ObjectId::new("Document", id), |conn| {
        let newer = documents::version.gt(version);
        let newer = documents::table.find(id).filter(newer).count();
        if newer.get_result::<i64>(conn)? > 0 {
            return Ok(false);
        }
        let row = (documents::id.eq(id), documents::version.eq(version));
        diesel::replace_into(documents::table)
            .values(row)
            .execute(conn)?;
        Ok(true)
    })
}

fn connect(url: &str) -> Result<SqliteConnection, Box<dyn std::error::Error>> {
    let mut conn = SqliteConnection::establish(url)?;
    diesel_locks::operation::sqlite::prepare(&mut conn)?;
    Ok(conn)
}
