//! A transaction that is retried: four threads move money, and the database refuses some attempts.
//!
//! `cargo run --example retried_transaction`
#![allow(missing_docs)]

use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{IsolationLevel, RetryPolicy};

diesel::table! { accounts (id) { id -> Integer, money -> Integer } }

const CREATE: &str = "PRAGMA journal_mode = WAL;
    CREATE TABLE accounts (id INTEGER PRIMARY KEY, money INTEGER NOT NULL);
    INSERT INTO accounts VALUES (1, 100), (2, 100)";

/// On PostgreSQL, MySQL and MariaDB the same policy retries deadlocks and serialization failures.
const TRANSFER: TransactionOptions = TransactionOptions::new()
    .isolation(IsolationLevel::Serializable)
    .retry(RetryPolicy::max_attempts(1000));

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("app.db").display().to_string();
    let mut conn = SqliteConnection::establish(&url)?;
    conn.batch_execute(CREATE)?;

    let attempts: u32 = thread::scope(|scope| {
        let threads = [(1, 2), (2, 1), (1, 2), (2, 1)].map(|(from, to)| {
            // An application sets `busy_timeout`. Without it SQLite refuses to begin while another connection writes,
            // and this example has something to retry.
            let mut conn = SqliteConnection::establish(&url).expect("a connection");
            scope.spawn(move || -> u32 {
                let mut transfer = |_| transfer(&mut conn, from, to).expect("a commit");
                (0..25).map(&mut transfer).sum()
            })
        });
        let attempts = threads.map(|thread| thread.join().expect("no panic"));
        attempts.iter().sum()
    });

    println!("100 transfers took {attempts} attempts");
    let money: Vec<i32> = accounts::table.select(accounts::money).load(&mut conn)?;
    println!("money: {money:?}");
    assert_eq!(money, [100, 100]);
    Ok(())
}

/// Returns the number of attempts.
fn transfer(conn: &mut SqliteConnection, from: i32, to: i32) -> QueryResult<u32> {
    let mut attempts = 0;
    conn.run_transaction(TRANSFER, |conn| {
        attempts += 1;
        for (id, change) in [(from, -1), (to, 1)] {
            let account = accounts::table.find(id);
            let money = accounts::money.eq(accounts::money + change);
            diesel::update(account).set(money).execute(conn)?;
        }
        Ok(attempts)
    })
}
