//! The alias of `Result` for closures.

use super::Error;

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`], unless another one is named.
///
/// Names the error type of a closure: `|conn| -> diesel_locks::Result<_> { .. }`. If the call is the last expression of
/// a function, Rust infers the type from the function. If `?` follows the call, `?` may make the function's error from
/// several types, and the compiler does not choose one (E0283, "type annotations needed").
///
/// Not in the [`prelude`](crate::prelude), where it would hide the standard library's.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
///
/// #[derive(Debug, thiserror::Error)]
/// enum AppError {
///     #[error("database")]
///     Diesel(#[from] diesel::result::Error),
///     #[error("lock")]
///     Locks(#[from] diesel_locks::Error),
/// }
///
/// fn close_books(conn: &mut SqliteConnection) -> Result<(), AppError> {
///     conn.with_object_lock("books", |conn| -> diesel_locks::Result<_> {
///         diesel::sql_query("SELECT 1").execute(conn)?;
///         Ok(())
///     })?;
///     Ok(())
/// }
/// # let mut conn = SqliteConnection::establish(":memory:")?;
/// # diesel_locks::migrate(&mut conn)?;
/// # close_books(&mut conn)?;
/// # Ok(())
/// # }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;
