//! Which of SQLite's errors means what. They come in English only.

use super::{Class, TABLES};

/// `None` for a message that is not known.
pub(super) fn classify(message: &str) -> Option<Class> {
    match message {
        // SQLITE_BUSY, SQLITE_LOCKED
        "database is locked" | "database table is locked" | "database schema is locked" => {
            Some(Class::Busy)
        }
        "attempt to write a readonly database" => Some(Class::ReadOnly),
        _ if message
            .strip_prefix("no such table: ")
            .is_some_and(|table| TABLES.contains(&table.trim_start_matches("main."))) =>
        {
            Some(Class::TablesMissing)
        }
        _ => message
            .starts_with("database table is locked: ")
            .then_some(Class::Busy),
    }
}
