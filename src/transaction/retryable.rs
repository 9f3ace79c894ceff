//! How a transaction's runner sees what the database said in an error of the application's type.

use std::error::Error as StdError;

use crate::Error;

/// An error that a closure of [`run_transaction`](crate::TransactionExt::run_transaction) can return.
///
/// To know whether to try again, the runner needs to see the database's error inside the
/// application's. It is there for [`diesel::result::Error`], for this crate's [`Error`], and for types
/// that hand out the error inside (`AsRef<dyn Error>`): `anyhow::Error`, `Box<dyn Error>`,
/// `Box<dyn Error + Send + Sync>`. For an enum of your own say which variants carry it:
///
/// ```
/// use diesel_locks::TransactionError;
///
/// #[derive(Debug, thiserror::Error)]
/// enum TransferError {
///     #[error("not enough money")]
///     NotEnough,
///     #[error(transparent)]
///     Diesel(#[from] diesel::result::Error),
///     #[error(transparent)]
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
/// `Via` tells the implementations of this crate apart; leave it out.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not tell which of its values are errors of the database",
    label = "an error of this type may be a deadlock, or not",
    note = "implement `diesel_locks::TransactionError` (one method) and `From<diesel_locks::Error>` for it, \
            or return `diesel::result::Error`, `diesel_locks::Error`, `anyhow::Error` or `Box<dyn Error>`"
)]
pub trait TransactionError<Via = ()>: From<Error> {
    /// The database's error, or one that has it as its source; `None` for an error of the application's
    /// own, after which nothing is tried again.
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

/// Hands out the error inside.
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

/// The same for a box that may go from thread to thread.
#[derive(Clone, Copy, Debug)]
pub enum ViaAsRefSend {}

impl TransactionError<ViaAsRefSend> for Box<dyn StdError + Send + Sync> {
    fn database_error(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.as_ref())
    }
}
