//! Classifies PostgreSQL's errors.
//!
//! Diesel passes on the message but not the SQLSTATE, and the server translates messages (`lc_messages`). So the message is
//! compared with those in [`translations`], which are from the server's own catalogues.

mod row_security;
mod translations;

use row_security::protected_table;
use translations::{
    ABORTED, CANCEL_REQUEST, DEADLOCK, DENIED, LOCK_NOT_AVAILABLE, LOCK_TABLE_FULL, LOCK_TIMEOUT,
    NO_FUNCTION, NO_RELATION, NOT_ON_A_STANDBY, STATEMENT, STATEMENT_TIMEOUT, TRANSACTION_TIMEOUT,
    UNLOGGED_IN_RECOVERY,
};

use super::class::{ErrorClass, RequiredPrivilege};
use super::patterns::{is_any_of, matched};
use super::privileges::POSTGRES_PRIVILEGES;

/// `None` for a message that is not known.
pub(super) fn classify(message: &str) -> Option<ErrorClass> {
    let is = |patterns| is_any_of(patterns, message);
    if is(DEADLOCK) {
        Some(ErrorClass::Deadlock)
    } else if is(LOCK_TIMEOUT) {
        Some(ErrorClass::LockTimeout)
    } else if is(STATEMENT_TIMEOUT) {
        Some(ErrorClass::StatementTimeout)
    } else if is(CANCEL_REQUEST) {
        Some(ErrorClass::CancelRequest)
    } else if is_transaction_timeout(message) {
        Some(ErrorClass::TransactionTimeout)
    } else if is(ABORTED) {
        Some(ErrorClass::TransactionAborted)
    } else if is(LOCK_NOT_AVAILABLE) {
        Some(ErrorClass::LockNotAvailable)
    } else if is(UNLOGGED_IN_RECOVERY) || is(NOT_ON_A_STANDBY) {
        Some(ErrorClass::ReadOnly)
    } else if named(NO_RELATION, message, str::as_ref).is_some()
        || named(NO_FUNCTION, message, without_arguments).is_some()
    {
        Some(ErrorClass::MissingTables)
    } else if is(STATEMENT) && names_statement_of_diesel(message) {
        Some(ErrorClass::PreparedStatementMismatch)
    } else if let Some(required) = named(DENIED, message, str::as_ref) {
        Some(ErrorClass::InsufficientPrivilege(required))
    } else if let Some(table) = protected_table(message) {
        Some(ErrorClass::ProtectedRow(table))
    } else if is(LOCK_TABLE_FULL) {
        Some(ErrorClass::LockTableFull)
    } else {
        too_many_ids(message)
    }
}

/// The server closes the connection after this error, so a client library may report it in a longer text. Not if a word
/// follows: in Spanish the message of `idle_in_transaction_session_timeout` begins in the same way.
fn is_transaction_timeout(message: &str) -> bool {
    TRANSACTION_TIMEOUT.iter().any(|text| {
        let after = message.split_once(text).map(|(_, after)| after);
        after.is_some_and(|after| !after.starts_with(' '))
    })
}

/// The object of this crate that stands for `%s` in one of the patterns, and nothing else does: another message may begin and
/// end as the pattern, with the name of a column of the object between.
fn named(patterns: &[&str], message: &str, name_in: fn(&str) -> &str) -> Option<RequiredPrivilege> {
    let texts = patterns
        .iter()
        .filter_map(|pattern| matched(pattern, message));
    texts.map(name_in).find_map(|name| {
        let (_, name) = name.rsplit_once('.').unwrap_or(("", name));
        let of_this_name = |required: &&RequiredPrivilege| required.object == name;
        POSTGRES_PRIVILEGES.iter().find(of_this_name).copied()
    })
}

/// `f` for the function `f(text[], boolean)`.
fn without_arguments(name: &str) -> &str {
    let function = name.strip_suffix(')').and_then(|name| name.split_once('('));
    function.map_or(name, |(function, _)| function)
}

/// The message of `diesel_locks_acquire`.
fn too_many_ids(message: &str) -> Option<ErrorClass> {
    let (ids, limit) = message
        .strip_prefix("diesel_locks: ")?
        .split_once(" kept objects, at most ")?;
    Some(ErrorClass::TooManyIds {
        ids: ids.parse().ok()?,
        limit: limit.parse().ok()?,
    })
}

/// How Diesel calls the statements that it caches, and tokio-postgres, for diesel-async, all: before a number.
const STATEMENT_NAME_PREFIXES: [&str; 2] = ["__diesel_stmt_", "s"];

/// Whether a word of the message is such a name. All translations have quotation marks around it.
fn names_statement_of_diesel(message: &str) -> bool {
    let is_name = |word: &str| {
        let mut numbers = STATEMENT_NAME_PREFIXES
            .iter()
            .filter_map(|prefix| word.strip_prefix(prefix));
        numbers.any(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut words = message.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::classify::RequiredPrivilege;

    #[test]
    fn messages_are_known_in_german_and_japanese() {
        assert_eq!(
            classify("Verklemmung (Deadlock) entdeckt"),
            Some(ErrorClass::Deadlock)
        );
        assert_eq!(
            classify("storniere Anfrage wegen Zeitüberschreitung der Anfrage"),
            Some(ErrorClass::StatementTimeout)
        );
        assert_eq!(
            classify("リレーション\"diesel_locks_objects\"は存在しません"),
            Some(ErrorClass::MissingTables)
        );
    }

    #[test]
    fn an_aborted_transaction_is_known_in_english_and_french() {
        for message in [
            "current transaction is aborted, commands ignored until end of transaction block",
            "la transaction est annulée, les commandes sont ignorées jusqu'à la fin du bloc\n\
             de la transaction",
        ] {
            assert_eq!(classify(message), Some(ErrorClass::TransactionAborted));
        }
    }

    #[test]
    fn foreign_missing_table_is_not_ours() {
        assert_eq!(classify("relation \"bonds\" does not exist"), None);
        let archive = "relation \"diesel_locks_slots_archive\" does not exist";
        assert_eq!(classify(archive), None);
        let function = |name| format!("function {name}(text[], boolean) does not exist");
        assert_eq!(classify(&function("diesel_locks_of_others")), None);
        let ours = classify(&function("diesel_locks_acquire"));
        assert_eq!(ours, Some(ErrorClass::MissingTables));
    }

    /// Japanese has no space before a name. It also begins and ends both messages in the same way.
    #[test]
    fn a_missing_column_is_no_missing_table() {
        let function = "関数diesel_locks_acquire(text[], boolean)は存在しません";
        assert_eq!(classify(function), Some(ErrorClass::MissingTables));
        let column = "リレーション\"diesel_locks_slots\"の列\"fence\"は存在しません";
        assert_eq!(classify(column), None);
        let foreign = "permiso denegado a la tabla foránea diesel_locks_slots";
        assert_eq!(classify(foreign), None);
        let qualified = "relation \"app.diesel_locks_slots\" does not exist";
        assert_eq!(classify(qualified), Some(ErrorClass::MissingTables));
    }

    /// `cargo xtask messages` compares them with the server's files.
    #[test]
    fn a_cancel_request_is_known_in_every_language() {
        let german = "storniere Anfrage wegen Benutzeraufforderung";
        assert!(CANCEL_REQUEST.contains(&german));
        for message in CANCEL_REQUEST {
            let class = classify(message);
            assert_eq!(class, Some(ErrorClass::CancelRequest), "{message}");
        }
        let autovacuum = "canceling autovacuum task";
        assert_eq!(classify(autovacuum), None);
    }

    #[test]
    fn a_table_that_is_not_waited_for_is_known() {
        for message in [
            "could not obtain lock on relation \"bonds\"",
            "konnte Sperre für Relation »bonds« nicht setzen",
            "n'a pas pu obtenir un verrou sur la relation « bonds »",
        ] {
            assert_eq!(classify(message), Some(ErrorClass::LockNotAvailable));
        }
    }

    #[test]
    fn diesels_statements_are_known() {
        let lost = r#"prepared statement "__diesel_stmt_0" does not exist"#;
        assert_eq!(classify(lost), Some(ErrorClass::PreparedStatementMismatch));
        let there = "vorbereitete Anweisung »__diesel_stmt_12« existiert bereits";
        assert_eq!(classify(there), Some(ErrorClass::PreparedStatementMismatch));
        let another = r#"bind message supplies 3 parameters, but prepared statement "__diesel_stmt_1" requires 2"#;
        assert_eq!(
            classify(another),
            Some(ErrorClass::PreparedStatementMismatch)
        );
        for own in ["own", "s", "s1_own", "__diesel_stmt_"] {
            let own = format!(r#"prepared statement "{own}" does not exist"#);
            assert_eq!(classify(&own), None);
        }
    }

    #[test]
    fn statements_of_diesel_async_are_known() {
        for message in [
            r#"prepared statement "s0" does not exist"#,
            "vorbereitete Anweisung »s12« existiert bereits",
            "l'instruction préparée « s7 » n'existe pas",
            r#"準備された文"s3"は存在しません"#,
            r#"bind message supplies 3 parameters, but prepared statement "s1" requires 2"#,
        ] {
            let class = Some(ErrorClass::PreparedStatementMismatch);
            assert_eq!(classify(message), class, "{message}");
        }
    }

    #[test]
    fn a_right_that_lacks_is_named() {
        let denied = |message| match classify(message) {
            Some(ErrorClass::InsufficientPrivilege(RequiredPrivilege { object, privileges })) => {
                Some((object, privileges))
            }
            _ => None,
        };
        assert_eq!(
            denied("permission denied for table diesel_locks_fences"),
            Some(("diesel_locks_fences", "SELECT, INSERT, UPDATE"))
        );
        assert_eq!(
            denied("keine Berechtigung für Funktion diesel_locks_acquire_one"),
            Some(("diesel_locks_acquire_one", "EXECUTE"))
        );
        assert_eq!(denied("permission denied for table bonds"), None);
    }

    #[test]
    fn too_many_locks_are_told_apart() {
        for full in ["out of shared memory", "Shared Memory aufgebraucht"] {
            assert_eq!(classify(full), Some(ErrorClass::LockTableFull));
        }
        let ids = 1200;
        let limit = crate::limits::MAX_KEPT_IDS;
        let ours = format!("diesel_locks: {ids} kept objects, at most {limit}");
        assert_eq!(classify(&ours), Some(ErrorClass::TooManyIds { ids, limit }));
        assert_eq!(classify("diesel_locks: kept objects, at most"), None);
    }

    #[test]
    fn no_message_has_two_meanings() {
        let all = [
            ABORTED,
            DEADLOCK,
            LOCK_TIMEOUT,
            STATEMENT_TIMEOUT,
            CANCEL_REQUEST,
            LOCK_NOT_AVAILABLE,
            UNLOGGED_IN_RECOVERY,
            NOT_ON_A_STANDBY,
            NO_RELATION,
            NO_FUNCTION,
            DENIED,
            LOCK_TABLE_FULL,
            STATEMENT,
        ];
        for (index, patterns) in all.iter().enumerate() {
            for pattern in *patterns {
                let message = pattern.replace("%s", "x");
                let meanings: Vec<_> = (0..all.len())
                    .filter(|other| is_any_of(all[*other], &message))
                    .collect();
                assert_eq!(meanings, [index], "{message}");
            }
        }
    }
}
