//! The database's error inside an error of the application.

use std::error::Error as StdError;

use crate::Error;

/// An error that a closure of [`run_transaction`](crate::TransactionExt::run_transaction) can return.
///
/// To decide whether to retry, the method needs the database's error inside the application's. The trait is
/// implemented for [`diesel::result::Error`], for this crate's [`Error`], and for types
/// that give access to the error inside (`AsRef<dyn Error>`): `anyhow::Error`, `Box<dyn Error>`,
/// `Box<dyn Error + Send + Sync>`. Implement it for an enum of the application:
///
/// ```
/// use diesel_locks::TransactionError;
///
/// #[derive(Debug, thiserror::Error)]
/// enum TransferError {
///     #[error("not enough money")]
///     NotEnough,
///     #[error("database")]
///     Diesel(#[from] diesel::result::Error),
///     #[error("lock")]
///     Locks(#[from] diesel_locks::Error),
/// }
///
/// impl TransactionError for TransferError {
///     fn database_error(&self) -> Option<&(dyn std::error::Error + 'static)> {
///         match self {
///             Self::NotEnough => None,
///             Self::Diesel(error) => Some(error),
///             Self::Locks(error) => Some(error),
///         }
///     }
/// }
/// ```
///
/// `Via` distinguishes the implementations of this crate; omit it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not implement `TransactionError`: `diesel-locks` can't see the database's error in it",
    label = "the database's error decides whether the transaction is retried",
    note = "implement `diesel_locks::TransactionError` (one method) and `From<diesel_locks::Error>` for it, \
            or return `diesel::result::Error`, `diesel_locks::Error`, `anyhow::Error` or `Box<dyn Error>`"
)]
pub trait TransactionError<Via = ()>: From<Error> {
    /// Returns the database's error, or an error that has it as its source. `None` for an error of the application, which is
    /// not retried.
    fn database_error(&self) -> Option<&(dyn StdError + 'static)>;
}

impl TransactionError for diesel::result::Error {
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self)
    }
}

impl TransactionError for Error {
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self)
    }
}

/// Marks types with `AsRef<dyn Error>`.
#[derive(Clone, Copy, Debug)]
pub enum ViaAsRef {}

impl<E> TransactionError<ViaAsRef> for E
where
    E: From<Error> + AsRef<dyn StdError + 'static>,
{
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.as_ref())
    }
}

/// Marks `Box<dyn Error + Send + Sync>`.
#[derive(Clone, Copy, Debug)]
pub enum ViaAsRefSend {}

impl TransactionError<ViaAsRefSend> for Box<dyn StdError + Send + Sync> {
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.as_ref())
    }
}
