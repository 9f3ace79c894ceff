//! The isolation levels, from the lowest.

pub(crate) use diesel_locks::Isolation;
use serde::Serializer;

pub(crate) const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

/// As SQL calls it.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
pub(crate) fn by_name<S: Serializer>(isolation: &Isolation, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(isolation)
}
