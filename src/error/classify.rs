//! Classifies the errors of the databases: the only place that reads the text of errors.

mod class;
#[cfg(feature = "_mysql")]
pub(crate) mod mysql;
#[cfg(any(feature = "_postgres", feature = "_mysql"))]
mod patterns;
#[cfg(feature = "_postgres")]
mod postgres;
mod privileges;
#[cfg(all(test, any(feature = "_postgres", feature = "_mysql")))]
mod server_messages;
#[cfg(feature = "_sqlite")]
pub(crate) mod sqlite;

pub(crate) use class::{ErrorClass, RequiredPrivilege};

const MESSAGES: &[fn(&str) -> Option<ErrorClass>] = &[
    #[cfg(feature = "_postgres")]
    postgres::classify,
    #[cfg(feature = "_mysql")]
    mysql::classify,
    #[cfg(feature = "_sqlite")]
    sqlite::classify,
];

/// Classifies an error of any engine: messages of different engines differ.
pub(crate) fn classify(error: &diesel::result::Error) -> ErrorClass {
    use diesel::result::DatabaseErrorKind;
    use diesel::result::Error::{DatabaseError, RollbackErrorOnCommit};

    let (kind, information) = match error {
        DatabaseError(kind, information) => (kind, information),
        // The ROLLBACK after it failed as well.
        RollbackErrorOnCommit { commit_error, .. }
            if classify(commit_error) == ErrorClass::OutcomeUnknown =>
        {
            return ErrorClass::OutcomeUnknown;
        }
        _ => return ErrorClass::Other,
    };
    let known = MESSAGES
        .iter()
        .find_map(|classify| classify(information.message()));
    // The message goes first: Diesel calls InnoDB's deadlock a serialization failure.
    known.unwrap_or(match kind {
        DatabaseErrorKind::SerializationFailure => ErrorClass::SerializationFailure,
        DatabaseErrorKind::ReadOnlyTransaction => ErrorClass::ReadOnly,
        _ => ErrorClass::Other,
    })
}
