//! Which of SQLite's errors means what. They come in English only.

use crate::engine::Class;

/// `None` for a message that is not known.
pub(in crate::engine) fn classify(message: &str) -> Option<Class> {
    match message {
        // SQLITE_BUSY, SQLITE_LOCKED
        "database is locked" | "database table is locked" | "database schema is locked" => {
            Some(Class::LockTimeout)
        }
        "attempt to write a readonly database" => Some(Class::ReadOnly),
        "no such table: diesel_object_locks" | "no such table: main.diesel_object_locks" => {
            Some(Class::TablesMissing)
        }
        _ => message
            .starts_with("database table is locked: ")
            .then_some(Class::LockTimeout),
    }
}
