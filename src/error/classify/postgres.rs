//! Classifies PostgreSQL's errors.
//!
//! Diesel passes on the message but not the SQLSTATE, and the server translates messages (`lc_messages`), so all are compared.

use std::sync::LazyLock;

use crate::error::classify::{ErrorClass, Messages, RequiredPrivilege, named_object, required};

static MESSAGES: LazyLock<Messages> =
    LazyLock::new(|| Messages::read(include_str!("postgres_messages.txt")));

/// What the user of an application needs, as in `docs/privileges.md`.
const PRIVILEGES: &[RequiredPrivilege] = &[
    required("diesel_locks_objects", "SELECT, INSERT, DELETE"),
    required("diesel_locks_wanted", "SELECT, INSERT, UPDATE, DELETE"),
    required("diesel_locks_slots", "SELECT, INSERT, UPDATE, DELETE"),
    required("diesel_locks_semaphores", "SELECT, INSERT, UPDATE"),
    required("diesel_locks_fences", "SELECT, INSERT, UPDATE"),
    required("diesel_locks_sequences", "SELECT, INSERT, UPDATE"),
    required("diesel_locks_acquire", "EXECUTE"),
    required("diesel_locks_acquire_one", "EXECUTE"),
    required("diesel_locks_try_acquire", "EXECUTE"),
    required("diesel_locks_admits", "EXECUTE"),
    required("diesel_locks_want", "EXECUTE"),
    required("diesel_locks_permits", "EXECUTE"),
    required("diesel_locks_timeline_us", "EXECUTE"),
    required("diesel_locks_look_at_slots", "EXECUTE"),
    required("diesel_locks_unlocked", "EXECUTE"),
    required("diesel_locks_acquire_slot", "EXECUTE"),
    required("diesel_locks_acquire_slot_in_transaction", "EXECUTE"),
];

/// `None` for a message that is not known.
pub(crate) fn classify(message: &str) -> Option<ErrorClass> {
    MESSAGES
        .matching(message)
        .find_map(|(section, text)| class_of(section, text, message))
        .or_else(|| is_transaction_timeout(message).then_some(ErrorClass::TransactionTimeout))
        .or_else(|| from_own_function(message))
}

/// The class of a message that matches a pattern of this section, in which `text` stands for `%s`.
fn class_of(section: &str, text: &str, message: &str) -> Option<ErrorClass> {
    Some(match section {
        "deadlock" => ErrorClass::Deadlock,
        "lock timeout" => ErrorClass::LockTimeout,
        "statement timeout" => ErrorClass::StatementTimeout,
        "cancel request" => ErrorClass::CancelRequest,
        "transaction aborted" => ErrorClass::TransactionAborted,
        "lock not available" => ErrorClass::LockNotAvailable,
        "read only" => ErrorClass::ReadOnly,
        "no table" if own(text).is_some() => ErrorClass::MissingTables,
        "no function" if own(without_arguments(text)).is_some() => ErrorClass::MissingTables,
        "prepared statement" if names_statement_of_diesel(message) => {
            ErrorClass::PreparedStatementMismatch
        }
        "denied" => ErrorClass::InsufficientPrivilege(own(text)?),
        "row security" => ErrorClass::ProtectedRow(named_object(message, PRIVILEGES)?.object),
        "lock table full" => ErrorClass::LockTableFull,
        "connection lost" => ErrorClass::ConnectionLost,
        _ => return None,
    })
}

/// The server closes the connection after this error, so a client library may report it in a longer text. Not if a word
/// follows: in Spanish the message of `idle_in_transaction_session_timeout` begins in the same way.
fn is_transaction_timeout(message: &str) -> bool {
    let begins = |(section, text): &(&str, String)| {
        *section == "transaction timeout"
            && message
                .split_once(text.as_str())
                .is_some_and(|(_, after)| !after.starts_with(' '))
    };
    MESSAGES.0.iter().any(begins)
}

/// The object of this crate with this name, perhaps after that of its schema. Not one that the text only contains: another
/// message may begin and end in the same way, with the name of a column of the object between.
fn own(name: &str) -> Option<RequiredPrivilege> {
    let (_, name) = name.rsplit_once('.').unwrap_or(("", name));
    PRIVILEGES.iter().copied().find(|own| own.object == name)
}

/// `f` for the function `f(text[], boolean)`.
fn without_arguments(name: &str) -> &str {
    let function = name.strip_suffix(')').and_then(|name| name.split_once('('));
    function.map_or(name, |(function, _)| function)
}

/// The messages of this crate's own functions.
fn from_own_function(message: &str) -> Option<ErrorClass> {
    let message = message.strip_prefix("diesel_locks: ")?;
    if message.starts_with("a row can't be read or changed: ") {
        let table = named_object(message, PRIVILEGES)?.object;
        return Some(ErrorClass::ProtectedRow(table));
    }
    let (ids, limit) = message.split_once(" kept objects, at most ")?;
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

    fn assert_class(class: impl Into<Option<ErrorClass>>, messages: &[&str]) {
        let class = class.into();
        for message in messages {
            assert_eq!(classify(message), class, "{message}");
        }
    }

    #[test]
    fn messages_are_known_in_several_languages() {
        let aborted = [
            "current transaction is aborted, commands ignored until end of transaction block",
            "la transaction est annulée, les commandes sont ignorées jusqu'à la fin du bloc\nde la transaction",
        ];
        let not_waited_for = [
            "could not obtain lock on relation \"bonds\"",
            "konnte Sperre für Relation »bonds« nicht setzen",
            "n'a pas pu obtenir un verrou sur la relation « bonds »",
        ];
        // Of Diesel, and of diesel-async.
        let statements = [
            r#"prepared statement "__diesel_stmt_0" does not exist"#,
            "vorbereitete Anweisung »__diesel_stmt_12« existiert bereits",
            r#"bind message supplies 3 parameters, but prepared statement "__diesel_stmt_1" requires 2"#,
            r#"prepared statement "s0" does not exist"#,
            "vorbereitete Anweisung »s12« existiert bereits",
            "l'instruction préparée « s7 » n'existe pas",
            r#"準備された文"s3"は存在しません"#,
            r#"bind message supplies 3 parameters, but prepared statement "s1" requires 2"#,
        ];
        assert_class(ErrorClass::TransactionAborted, &aborted);
        assert_class(ErrorClass::LockNotAvailable, &not_waited_for);
        assert_class(ErrorClass::PreparedStatementMismatch, &statements);
        assert_class(ErrorClass::Deadlock, &["Verklemmung (Deadlock) entdeckt"]);
        let timeout = "storniere Anfrage wegen Zeitüberschreitung der Anfrage";
        assert_class(ErrorClass::StatementTimeout, &[timeout]);
        let cancel_request = "storniere Anfrage wegen Benutzeraufforderung";
        assert_class(ErrorClass::CancelRequest, &[cancel_request]);
        assert_class(None, &["canceling autovacuum task"]);
        for own in ["own", "s", "s1_own", "__diesel_stmt_"] {
            let own = format!(r#"prepared statement "{own}" does not exist"#);
            assert_eq!(classify(&own), None);
        }
    }

    #[test]
    fn foreign_missing_table_is_not_ours() {
        let foreign = [
            "relation \"bonds\" does not exist",
            "relation \"diesel_locks_slots_archive\" does not exist",
            "function diesel_locks_of_others(text[], boolean) does not exist",
        ];
        assert_class(None, &foreign);
        let ours = "function diesel_locks_acquire(text[], boolean) does not exist";
        assert_class(ErrorClass::MissingTables, &[ours]);
    }

    /// Japanese has no space before a name. It also begins and ends both messages in the same way.
    #[test]
    fn a_missing_column_is_no_missing_table() {
        let missing = [
            "関数diesel_locks_acquire(text[], boolean)は存在しません",
            "relation \"app.diesel_locks_slots\" does not exist",
        ];
        assert_class(ErrorClass::MissingTables, &missing);
        let others = [
            "リレーション\"diesel_locks_slots\"の列\"fence\"は存在しません",
            "permiso denegado a la tabla foránea diesel_locks_slots",
        ];
        assert_class(None, &others);
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
        let full = ["out of shared memory", "Shared Memory aufgebraucht"];
        assert_class(ErrorClass::LockTableFull, &full);
        let ids = 1200;
        let limit = crate::error::limits::MAX_KEPT_IDS;
        let ours = format!("diesel_locks: {ids} kept objects, at most {limit}");
        assert_eq!(classify(&ours), Some(ErrorClass::TooManyIds { ids, limit }));
        assert_eq!(classify("diesel_locks: kept objects, at most"), None);
    }

    #[test]
    fn protected_tables_are_known_in_any_language() {
        let slots = [
            "new row violates row-level security policy for table \"diesel_locks_slots\"",
            "new row violates row-level security policy \"tenants\" for table \"diesel_locks_slots\"",
            "new row violates row-level security policy (USING expression) for table \"diesel_locks_slots\"",
            "新しい行はテーブル\"diesel_locks_slots\"行レベルセキュリティポリシ\"tenants\"に違反しています",
            "neue Zeile verletzt Policy für Sicherheit auf Zeilenebene für Tabelle »diesel_locks_slots«",
            "query would be affected by row-level security policy for table \"diesel_locks_slots\"",
            "diesel_locks: a row can't be read or changed: diesel_locks_slots",
        ];
        assert_class(ErrorClass::ProtectedRow("diesel_locks_slots"), &slots);
        let others = [
            "new row violates row-level security policy for table \"bonds\"",
            "new row for relation \"diesel_locks_slots\" violates check constraint \"one\"",
        ];
        assert_class(None, &others);
    }

    /// `cargo xtask messages` compares the file with those of the servers.
    #[test]
    fn every_message_has_one_meaning() {
        for (section, pattern) in &MESSAGES.0 {
            let fill = |name| pattern.replace("%s", name);
            let message = fill("x");
            let sections = MESSAGES.matching(&message).map(|(section, _)| section);
            assert_eq!(sections.collect::<Vec<_>>(), [*section], "{message}");
            let names = ["diesel_locks_slots", "diesel_locks_acquire()", "\"s1\""];
            let is_known = |name| classify(&fill(name)).is_some();
            assert!(names.into_iter().any(is_known), "{section}: {pattern}");
        }
    }
}
