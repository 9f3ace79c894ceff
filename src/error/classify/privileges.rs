//! What the user of an application needs, as in `docs/rights.md`.

#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql")),
    allow(dead_code, reason = "without a server there are no rights")
)]

use super::Class;

/// The rights on a table or function of this crate's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) object: &'static str,
    pub(crate) rights: &'static str,
}

const fn needed(object: &'static str, rights: &'static str) -> Needed {
    Needed { object, rights }
}

#[cfg(feature = "postgres")]
pub(super) const ON_POSTGRES: &[Needed] = &[
    needed("diesel_locks_objects", "SELECT, INSERT, DELETE"),
    needed("diesel_locks_slots", "SELECT, INSERT, UPDATE, DELETE"),
    needed("diesel_locks_semaphores", "SELECT, INSERT, UPDATE"),
    needed("diesel_locks_fences", "SELECT, INSERT, UPDATE"),
    needed("diesel_locks_sequences", "SELECT, INSERT, UPDATE"),
    needed("diesel_locks_acquire", "EXECUTE"),
    needed("diesel_locks_acquire_one", "EXECUTE"),
    needed("diesel_locks_try_acquire", "EXECUTE"),
    needed("diesel_locks_look_at_slots", "EXECUTE"),
    needed("diesel_locks_acquire_slot", "EXECUTE"),
    needed("diesel_locks_acquire_slot_in_transaction", "EXECUTE"),
];

#[cfg(feature = "mysql")]
pub(super) const ON_MYSQL: &[Needed] = &[
    needed("diesel_locks_objects", "SELECT, INSERT, DELETE"),
    needed("diesel_locks_slots", "SELECT, INSERT, UPDATE, DELETE"),
    needed("diesel_locks_semaphores", "SELECT, INSERT, DELETE"),
    needed("diesel_locks_fences", "SELECT, INSERT, UPDATE"),
    needed("diesel_locks_sequences", "SELECT, INSERT, UPDATE"),
];

/// The one of the objects that a message names.
pub(super) fn named_in(message: &str, needed: &[Needed]) -> Option<Class> {
    let named = |needed: &&Needed| names(message, needed.object);
    needed.iter().find(named).copied().map(Class::Denied)
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
