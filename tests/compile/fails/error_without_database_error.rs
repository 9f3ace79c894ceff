//! The error of a retried closure does not show the database's.
//~ `AppError` does not implement `TransactionError`
//~ implement `diesel_locks::TransactionError` (one method)

use diesel::prelude::*;
use diesel_locks::prelude::*;

struct AppError;

impl From<diesel_locks::Error> for AppError {
    fn from(_: diesel_locks::Error) -> Self {
        Self
    }
}

fn close_books(conn: &mut PgConnection) -> Result<(), AppError> {
    conn.run_transaction(TransactionOptions::new(), |_| Err(AppError))
}

fn main() {}
