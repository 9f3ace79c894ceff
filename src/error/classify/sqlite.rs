//! Classifies SQLite's errors, which exist in English only.

use crate::error::classify::{ErrorClass, TABLES};

/// `None` for a message that is not known.
pub(crate) fn classify(message: &str) -> Option<ErrorClass> {
    match message {
        // SQLITE_BUSY
        "database is locked" => Some(ErrorClass::Busy),
        "attempt to write a readonly database" => Some(ErrorClass::ReadOnly),
        // SQLite before 3.35, and before 3.38.
        "near \"RETURNING\": syntax error" | "near \">>\": syntax error" => {
            Some(ErrorClass::OldSqlite)
        }
        _ if message
            .strip_prefix("no such table: ")
            .is_some_and(|table| TABLES.contains(&table.trim_start_matches("main."))) =>
        {
            Some(ErrorClass::MissingTables)
        }
        _ => locked_in_cache(message).then_some(ErrorClass::Busy),
    }
}

/// SQLITE_LOCKED: another connection that shares the cache of this one writes, or reads what is to be written.
pub(crate) fn locked_in_cache(message: &str) -> bool {
    ["database table is locked", "database schema is locked"]
        .iter()
        .filter_map(|locked| message.strip_prefix(locked))
        .any(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// Whether BEGIN failed because a transaction is open, which the application has started by its own SQL.
pub(crate) fn is_nested_begin(message: &str) -> bool {
    message == "cannot start a transaction within a transaction"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_an_old_version_does_not_know_are_told() {
        let message = Box::new("near \"RETURNING\": syntax error".to_owned());
        let kind = diesel::result::DatabaseErrorKind::Unknown;
        let error = crate::Error::from(diesel::result::Error::DatabaseError(kind, message));
        assert!(error.to_string().contains("3.38"), "{error}");
        assert_eq!(classify("near \"RETURN\": syntax error"), None);
    }

    #[test]
    fn locks_in_a_shared_cache_are_busy() {
        for message in [
            "database table is locked",
            "database table is locked: counters",
            "database schema is locked: main",
        ] {
            assert_eq!(classify(message), Some(ErrorClass::Busy), "{message}");
            assert!(locked_in_cache(message));
        }
        assert_eq!(classify("database is locked"), Some(ErrorClass::Busy));
        assert!(!locked_in_cache("database is locked"));
        assert_eq!(classify("database table is lockedup"), None);
    }
}
