//! Classifies MySQL's and MariaDB's errors.
//!
//! Diesel passes on the message but not the number, and the server translates messages (`lc_messages`). For its own
//! statements the engine asks the server for the number. For those of a closure only the error is available, which is
//! compared with the messages in all languages. That a table of this crate is missing, or a privilege on it, matters for its
//! own statements only: the English texts save the question.

use std::sync::LazyLock;

use crate::error::classify::{
    ErrorClass, Messages, RequiredPrivilege, TABLES, named_object, required,
};

static MESSAGES: LazyLock<Messages> =
    LazyLock::new(|| Messages::read(include_str!("mysql_messages.txt")));

/// What the user of an application needs, as in `docs/privileges.md`.
const PRIVILEGES: &[RequiredPrivilege] = &[
    required("diesel_locks_objects", "SELECT, INSERT, DELETE"),
    required("diesel_locks_wanted", "SELECT, INSERT, DELETE"),
    required("diesel_locks_slots", "SELECT, INSERT, UPDATE, DELETE"),
    required("diesel_locks_semaphores", "SELECT, INSERT, DELETE"),
    required("diesel_locks_fences", "SELECT, INSERT, UPDATE"),
    required("diesel_locks_sequences", "SELECT, INSERT, UPDATE"),
];

/// By the server's number of the error, and by the table that its message names in any language.
pub(crate) fn class_of_errno(number: i64, message: &str) -> ErrorClass {
    match number {
        // A lock wait; NOWAIT on MariaDB.
        1205 => ErrorClass::LockTimeout,
        // A cycle of row locks; a cycle through GET_LOCK (MySQL).
        1213 | 3058 => ErrorClass::Deadlock,
        // MariaDB 11: the row has changed since the snapshot. Group Replication: another member has changed it.
        1020 | 3101 => ErrorClass::SerializationFailure,
        // NOWAIT on MySQL.
        3572 => ErrorClass::LockNotAvailable,
        // max_execution_time on MySQL, max_statement_time on MariaDB.
        // 3547 on MySQL: the time was up while another session changed users or privileges.
        3024 | 1969 | 3547 => ErrorClass::StatementTimeout,
        // A READ ONLY transaction; a server with read_only; InnoDB in read-only mode.
        1792 | 1290 | 1836 => ErrorClass::ReadOnly,
        1146 => ErrorClass::MissingTables,
        // COMMIT, or a statement that commits by itself.
        1180 => classify(message).unwrap_or(ErrorClass::OutcomeUnknown),
        // COMMIT, or a statement that commits by itself, on a member that leaves its group. The other members may commit it.
        3100 => ErrorClass::OutcomeUnknown,
        3098 => ErrorClass::RefusedByGroup,
        // The node of Galera has lost the others, and runs no statement; the server is shut down; the session was ended
        // (MariaDB), or was idle for too long (MySQL).
        1047 | 1053 | 1927 | 4031 => ErrorClass::ConnectionLost,
        // A right on a table; on a column.
        1142 | 1143 => denied(message).unwrap_or(ErrorClass::Other),
        _ => ErrorClass::Other,
    }
}

/// `None` for a message that is not known.
pub(crate) fn classify(message: &str) -> Option<ErrorClass> {
    MESSAGES
        .matching(message)
        .find_map(|(section, text)| class_of(section, text))
        .or_else(|| is_of_an_excluded_member(message).then_some(ErrorClass::OutcomeUnknown))
        .or_else(|| is_of_a_lost_connection(message).then_some(ErrorClass::ConnectionLost))
        .or_else(|| misses_a_savepoint(message).then_some(ErrorClass::TransactionAborted))
        .or_else(|| misses_a_table(message).then_some(ErrorClass::MissingTables))
        .or_else(|| denied(message).filter(|_| is_denied_in_english(message)))
}

/// The English text of error 3100.
fn is_of_an_excluded_member(message: &str) -> bool {
    message.starts_with("Error on observer while running replication hook ")
}

/// The text of error 1305 about the savepoint of a nested transaction of Diesel, which begins so in all languages. It hides the error
/// with which the server has ended the transaction: on Galera also SAVEPOINT fails with one.
fn misses_a_savepoint(message: &str) -> bool {
    message.starts_with("SAVEPOINT diesel_savepoint_")
}

/// The texts that have one language: those of the client libraries libmysqlclient, libmariadb and `mysql_async`, and those of
/// Galera for a statement that a node without the others refuses, or could not send to them.
fn is_of_a_lost_connection(message: &str) -> bool {
    message
        .to_ascii_lowercase()
        .contains("server has gone away")
        || message.starts_with("Lost connection to ")
        || message.starts_with("Input/output error: ")
        || message == "WSREP has not yet prepared node for application use"
        || message.starts_with("Error while appending streaming replication fragment")
            && message.contains("Not connected to Primary Component")
        || message == "Driver error: `Connection to the server is closed.'"
}

/// The class of a message that matches a pattern of this section, in which `text` stands for `%s`.
fn class_of(section: &str, text: &str) -> Option<ErrorClass> {
    Some(match section {
        "deadlock" => ErrorClass::Deadlock,
        "lock timeout" => ErrorClass::LockTimeout,
        "statement timeout" => ErrorClass::StatementTimeout,
        "lock not available" => ErrorClass::LockNotAvailable,
        "serialization failure" => ErrorClass::SerializationFailure,
        "connection lost" => ErrorClass::ConnectionLost,
        "read only" => ErrorClass::ReadOnly,
        "refused by Group Replication" => ErrorClass::RefusedByGroup,
        // One that makes the server read-only, such as `--super-read-only`.
        "prevented by an option" if text.contains("read-only") || text.contains("read_only") => {
            ErrorClass::ReadOnly
        }
        "during COMMIT" => during_commit(text)?,
        _ => return None,
    })
}

/// Whether SET TRANSACTION failed because a transaction is open (error 1568).
pub(crate) fn is_transaction_in_progress(message: &str) -> bool {
    MESSAGES
        .matching(message)
        .any(|(section, _)| section == "transaction in progress")
}

/// What COMMIT failed with, by the storage engine's number: after 149, a deadlock, the transaction is gone.
fn during_commit(error: &str) -> Option<ErrorClass> {
    let number = error.split(|c: char| !c.is_ascii_digit()).next()?;
    Some(match number.parse().ok()? {
        149 => ErrorClass::Deadlock,
        0_u32.. => ErrorClass::OutcomeUnknown,
    })
}

fn misses_a_table(message: &str) -> bool {
    message
        .strip_suffix("' doesn't exist")
        .and_then(|message| message.rsplit_once('.'))
        .is_some_and(|(_, table)| TABLES.contains(&table))
}

fn is_denied_in_english(message: &str) -> bool {
    let object = after_user(message);
    message.contains(" command denied to user ")
        && (object.starts_with(" for table ") || object.starts_with(" for column "))
}

/// The table that the message names, and not the user, who may be called as it.
fn denied(message: &str) -> Option<ErrorClass> {
    let mut required = named_object(after_user(message), PRIVILEGES)?;
    if required.object == "diesel_locks_objects" && message.contains("UPDATE") {
        // On Galera.
        required.privileges = "SELECT, INSERT, UPDATE, DELETE";
    }
    Some(ErrorClass::InsufficientPrivilege(required))
}

/// What the message says after `'name'@'host'`.
fn after_user(message: &str) -> &str {
    let rest = message
        .split_once("'@'")
        .and_then(|(_, rest)| rest.split_once('\''));
    rest.map_or(message, |(_, rest)| rest)
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
    fn savepoint_that_is_gone_shows_the_end_of_the_transaction() {
        let of_diesel = [
            "SAVEPOINT diesel_savepoint_1 does not exist",
            "SAVEPOINT diesel_savepoint_2 existiert nicht",
        ];
        assert_class(ErrorClass::TransactionAborted, &of_diesel);
        assert_class(None, &["SAVEPOINT applications_own does not exist"]);
    }

    #[test]
    fn messages_are_known_in_several_languages() {
        let changed = [
            "Record has changed since last read in table 'bonds'",
            "Record has changed since last read in table 'bonds'; try restarting transaction",
            "Datensatz hat sich seit dem letzten Zugriff auf Tabelle 'bonds' geändert. Versuchen Sie, die Transaktion neu zu starten",
        ];
        let deadlock = "Beim Versuch, eine Sperre anzufordern, ist ein Deadlock aufgetreten. Versuchen Sie, die Transaktion neu zu starten";
        let timeout = "Tiempo de espera de bloqueo excedido; intente rearrancar la transacción";
        let not_waited_for = "Statement aborted because lock(s) could not be acquired immediately and NOWAIT is set.";
        // A statement waits for them before it begins, if its user has privileges on single tables.
        let users = "Can not lock user management caches for processing.";
        let table = "Table 'app.diesel_locks_objects' doesn't exist";
        let refused = "The table does not comply with the requirements by an external plugin.";
        assert_class(ErrorClass::SerializationFailure, &changed);
        assert_class(ErrorClass::Deadlock, &[deadlock]);
        assert_class(ErrorClass::LockTimeout, &[timeout]);
        assert_class(ErrorClass::LockNotAvailable, &[not_waited_for]);
        assert_class(ErrorClass::StatementTimeout, &[users]);
        assert_class(ErrorClass::MissingTables, &[table]);
        assert_class(ErrorClass::RefusedByGroup, &[refused]);
        let others = [
            "Datensatz hat sich seit dem letzten Zugriff auf Tabelle 'bonds'",
            "Got error 149 from storage engine",
            "Table 'app.bonds' doesn't exist",
        ];
        assert_class(None, &others);
    }

    /// COMMIT too fails so, after the server was set to read-only.
    #[test]
    fn a_server_that_is_read_only_is_known_by_its_option() {
        let prevented = |option: &str| {
            format!(
                "The MySQL server is running with the {option} option so it cannot execute this statement"
            )
        };
        let options = ["--read-only", "--super-read-only"].map(prevented);
        assert_class(
            ErrorClass::ReadOnly,
            &options.each_ref().map(String::as_str),
        );
        assert_class(None, &[&prevented("--secure-file-priv")]);
    }

    #[test]
    fn commit_that_failed_is_a_deadlock_or_of_unknown_outcome() {
        let deadlock = [
            "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT",
            "Got error 149 \"Lock deadlock; Retry transaction\" during COMMIT",
            "Fehler 149 - 'Lock deadlock; Retry transaction' beim COMMIT",
        ];
        let unknown = [
            "Got error 6 \"No such device or address\" during COMMIT",
            "Got error 1490 - 'Unknown' during COMMIT",
            "COMMIT时发生错误 6 \"No such device or address\" ",
        ];
        for (class, messages) in [
            (ErrorClass::Deadlock, deadlock),
            (ErrorClass::OutcomeUnknown, unknown),
        ] {
            assert_class(class, &messages);
            let by_number = messages.map(|message| class_of_errno(1180, message));
            assert_eq!(by_number, [class; 3]);
        }
    }

    #[test]
    fn numbers_are_known_in_any_language() {
        for (number, class) in [
            (1047, ErrorClass::ConnectionLost),
            (1180, ErrorClass::OutcomeUnknown),
            (3098, ErrorClass::RefusedByGroup),
            (3100, ErrorClass::OutcomeUnknown),
            (3101, ErrorClass::SerializationFailure),
            (1053, ErrorClass::ConnectionLost),
            (3547, ErrorClass::StatementTimeout),
            (3572, ErrorClass::LockNotAvailable),
            (1064, ErrorClass::Other),
        ] {
            assert_eq!(class_of_errno(number, "?"), class, "{number}");
        }
    }

    #[test]
    fn a_transaction_in_progress_is_known_in_all_languages() {
        assert!(is_transaction_in_progress(
            "Transaction characteristics can't be changed while a transaction is in progress"
        ));
        assert!(is_transaction_in_progress("交易正在进行，无法更改事务特性"));
        assert!(!is_transaction_in_progress(
            "You are not allowed to execute this command in a transaction"
        ));
    }

    /// `cargo xtask messages` compares the file with those of the servers.
    #[test]
    fn every_message_has_one_meaning() {
        for (section, pattern) in &MESSAGES.0 {
            let fill = |text| pattern.replace("%s", text);
            let message = fill("x");
            let sections = MESSAGES.matching(&message).map(|(section, _)| section);
            assert_eq!(sections.collect::<Vec<_>>(), [*section], "{message}");
            let is_known = |text| {
                let message = fill(text);
                classify(&message).is_some() || is_transaction_in_progress(&message)
            };
            assert!(
                is_known("149") || is_known("--read-only"),
                "{section}: {pattern}"
            );
        }
    }

    #[test]
    fn a_right_that_lacks_is_named() {
        let of_fences = ErrorClass::InsufficientPrivilege(RequiredPrivilege {
            object: "diesel_locks_fences",
            privileges: "SELECT, INSERT, UPDATE",
        });
        let denied = [
            "UPDATE command denied to user 'app'@'%' for table 'diesel_locks_fences'",
            "UPDATE command denied to user 'app'@'%' for table `app`.`diesel_locks_fences`",
        ];
        assert_class(of_fences, &denied);
        let german =
            "UPDATE Befehl nicht erlaubt für Benutzer 'app'@'%' auf Tabelle 'diesel_locks_fences'";
        assert_eq!(classify(german), None);
        assert_eq!(class_of_errno(1142, german), of_fences);
        for another in [
            "UPDATE command denied to user 'app'@'%' for table 'bonds'",
            "UPDATE command denied to user 'diesel_locks_slots'@'%' for table 'bonds'",
            "UPDATE command denied to user 'app'@'%' for table `diesel_locks_slots`.`bonds`",
            "UPDATE command denied to user 'app'@'%' for table diesel_locks_slots.bonds",
            "UPDATE command denied to user 'app'@'%' for table 'old$diesel_locks_slots'",
            "UPDATE command denied to user 'app'@'%' for table 'ädiesel_locks_slots'",
        ] {
            assert_eq!(classify(another), None, "{another}");
            let by_number = class_of_errno(1142, another);
            assert_eq!(by_number, ErrorClass::Other, "{another}");
        }
    }
}
