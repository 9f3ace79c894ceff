//! `?` makes the error of the function from several types, and the closure names none.
//~ type annotations needed
//~ not: AcquireError
//~ not: MysqlError

use diesel::prelude::*;
use diesel_locks::prelude::*;

enum AppError {
    Diesel(diesel::result::Error),
    Locks(diesel_locks::Error),
}

impl From<diesel::result::Error> for AppError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Diesel(error)
    }
}

impl From<diesel_locks::Error> for AppError {
    fn from(error: diesel_locks::Error) -> Self {
        Self::Locks(error)
    }
}

fn close_books(conn: &mut PgConnection) -> Result<(), AppError> {
    conn.with_object_lock("books", |conn| {
        diesel::sql_query("SELECT 1").execute(conn)?;
        Ok(())
    })?;
    Ok(())
}

fn main() {}
