//! The isolation levels, from the lowest.

pub(crate) use diesel_locks::IsolationLevel;
use serde::Serializer;

pub(crate) const LEVELS: [IsolationLevel; 3] = [
    IsolationLevel::ReadCommitted,
    IsolationLevel::RepeatableRead,
    IsolationLevel::Serializable,
];

/// As SQL calls it.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
pub(crate) fn by_name<S: Serializer>(isolation: &IsolationLevel, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(isolation)
}
