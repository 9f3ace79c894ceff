//! A gap-free sequence: a transaction that fails leaves no gap in the numbers of invoices.
//!
//! `cargo run --example invoice_numbers`
#![allow(missing_docs)]

use diesel::prelude::*;
use diesel_locks::RetryPolicy;
use diesel_locks::prelude::*;

diesel::table! { invoices (number) { number -> BigInt, customer -> Text } }

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut conn = SqliteConnection::establish(":memory:")?;
    diesel_locks::migrate(&mut conn)?;
    diesel::sql_query("CREATE TABLE invoices (number BIGINT PRIMARY KEY, customer TEXT NOT NULL)")
        .execute(&mut conn)?;

    for customer in ["Alice", "", "Bob", "Carol"] {
        match issue(&mut conn, customer) {
            Ok(number) => println!("invoice {number} for {customer}"),
            Err(error) => println!("no invoice for {customer:?}: {error}"),
        }
    }

    let numbers: Vec<i64> = invoices::table.select(invoices::number).load(&mut conn)?;
    println!("numbers: {numbers:?}");
    assert_eq!(numbers, [1000, 1001, 1002]);
    Ok(())
}

/// On PostgreSQL, MySQL and MariaDB add `.isolation(IsolationLevel::ReadCommitted)`.
const RETRIED: TransactionOptions = TransactionOptions::new().retry(RetryPolicy::max_attempts(5));

/// Draws the next number and inserts the row that has it, in one transaction.
fn issue(conn: &mut SqliteConnection, customer: &str) -> Result<i64, diesel_locks::Error> {
    conn.run_transaction(RETRIED, |conn| {
        let number = conn.next_number(&Sequence::new("invoice").start_with(1000))?;
        println!("drew {number}");
        if customer.is_empty() {
            // The transaction is rolled back: the next one draws the same number.
            return Err(diesel::result::Error::NotFound.into());
        }
        let row = (invoices::number.eq(number), invoices::customer.eq(customer));
        diesel::insert_into(invoices::table)
            .values(row)
            .execute(conn)?;
        Ok(number)
    })
}
