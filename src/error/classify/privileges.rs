//! What the user of an application needs, as in `docs/privileges.md`.

#![cfg_attr(
    not(any(feature = "_postgres", feature = "_mysql")),
    allow(dead_code, reason = "without a server there are no privileges")
)]

#[cfg(feature = "_mysql")]
use super::class::ErrorClass;
use super::class::RequiredPrivilege;

const fn required(object: &'static str, privileges: &'static str) -> RequiredPrivilege {
    RequiredPrivilege { object, privileges }
}

#[cfg(feature = "_postgres")]
pub(super) const POSTGRES_PRIVILEGES: &[RequiredPrivilege] = &[
    required("diesel_locks_objects", "SELECT, INSERT, DELETE"),
    required("diesel_locks_slots", "SELECT, INSERT, UPDATE, DELETE"),
    required("diesel_locks_semaphores", "SELECT, INSERT, UPDATE"),
    required("diesel_locks_fences", "SELECT, INSERT, UPDATE"),
    required("diesel_locks_sequences", "SELECT, INSERT, UPDATE"),
    required("diesel_locks_acquire", "EXECUTE"),
    required("diesel_locks_acquire_one", "EXECUTE"),
    required("diesel_locks_try_acquire", "EXECUTE"),
    required("diesel_locks_look_at_slots", "EXECUTE"),
    required("diesel_locks_acquire_slot", "EXECUTE"),
    required("diesel_locks_acquire_slot_in_transaction", "EXECUTE"),
];

#[cfg(feature = "_mysql")]
pub(super) const MYSQL_PRIVILEGES: &[RequiredPrivilege] = &[
    required("diesel_locks_objects", "SELECT, INSERT, DELETE"),
    required("diesel_locks_slots", "SELECT, INSERT, UPDATE, DELETE"),
    required("diesel_locks_semaphores", "SELECT, INSERT, DELETE"),
    required("diesel_locks_fences", "SELECT, INSERT, UPDATE"),
    required("diesel_locks_sequences", "SELECT, INSERT, UPDATE"),
];

/// The one of the objects that a message names.
#[cfg(feature = "_mysql")]
pub(super) fn find_named_object(
    message: &str,
    required: &[RequiredPrivilege],
) -> Option<ErrorClass> {
    named_object(message, required).map(ErrorClass::InsufficientPrivilege)
}

/// [`find_named_object`], as the object.
pub(super) fn named_object(
    message: &str,
    required: &[RequiredPrivilege],
) -> Option<RequiredPrivilege> {
    let named = |required: &&RequiredPrivilege| names(message, required.object);
    required.iter().find(named).copied()
}

/// Whether the name is there as a whole, and not as that of a schema, before the dot.
fn names(message: &str, object: &str) -> bool {
    let of_a_name =
        |character: char| character == '_' || character == '$' || character.is_alphanumeric();
    message.match_indices(object).any(|(at, _)| {
        let (before, after) = (&message[..at], &message[at + object.len()..]);
        let unquoted = after.trim_start_matches(['\'', '`', '"']);
        !before.ends_with(of_a_name) && !after.starts_with(of_a_name) && !unquoted.starts_with('.')
    })
}
