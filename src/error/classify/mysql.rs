//! Classifies MySQL's and MariaDB's errors.
//!
//! Diesel passes on the message but not the number, and the server translates messages (`lc_messages`). For its own
//! statements the engine asks the server for the number. For those of a closure only the error is available, which is
//! compared with the messages in [`translations`]. That a table of this crate is missing, or a privilege on it, matters for its
//! own statements only: the English texts save the question.

mod translations;

use translations::{
    CERTIFICATION_FAILED, DEADLOCK, DURING_COMMIT, LOCK_WAIT_TIMEOUT, NOT_READY, NOT_TO_WAIT,
    OPTION_PREVENTS_STATEMENT, READ_ONLY, RECORD_HAS_CHANGED, STATEMENT_TIMEOUT,
    TRANSACTION_IN_PROGRESS,
};

use super::class::ErrorClass;
use super::patterns::{is_any_of, matched};
use super::privileges::{MYSQL_PRIVILEGES, find_named_object};
use crate::schema::TABLES;

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
        1180 => during_commit(message).unwrap_or(ErrorClass::OutcomeUnknown),
        // Galera: the node has lost the others.
        1047 => ErrorClass::OutcomeUnknown,
        // A right on a table; on a column.
        1142 | 1143 => denied(message).unwrap_or(ErrorClass::Other),
        _ => ErrorClass::Other,
    }
}

/// `None` for a message that is not known.
pub(super) fn classify(message: &str) -> Option<ErrorClass> {
    if DEADLOCK.contains(&message) {
        Some(ErrorClass::Deadlock)
    } else if LOCK_WAIT_TIMEOUT.contains(&message) {
        Some(ErrorClass::LockTimeout)
    } else if STATEMENT_TIMEOUT.contains(&message) {
        Some(ErrorClass::StatementTimeout)
    } else if message == NOT_TO_WAIT {
        Some(ErrorClass::LockNotAvailable)
    } else if is_any_of(RECORD_HAS_CHANGED, message) || message == CERTIFICATION_FAILED {
        Some(ErrorClass::SerializationFailure)
    } else if message == NOT_READY {
        Some(ErrorClass::OutcomeUnknown)
    } else if READ_ONLY.contains(&message) || is_prevented_by_read_only(message) {
        Some(ErrorClass::ReadOnly)
    } else if let Some(class) = during_commit(message) {
        Some(class)
    } else if message
        .strip_suffix("' doesn't exist")
        .and_then(|message| message.rsplit_once('.'))
        .is_some_and(|(_, table)| TABLES.contains(&table))
    {
        Some(ErrorClass::MissingTables)
    } else if message.contains(" command denied to user ")
        && [" for table ", " for column "]
            .iter()
            .any(|of| after_user(message).starts_with(of))
    {
        denied(message)
    } else {
        None
    }
}

/// Whether SET TRANSACTION failed because a transaction is open (error 1568).
pub(crate) fn is_transaction_in_progress(message: &str) -> bool {
    TRANSACTION_IN_PROGRESS.contains(&message)
}

/// The table that the message names, and not the user, who may be called as it.
fn denied(message: &str) -> Option<ErrorClass> {
    find_named_object(after_user(message), MYSQL_PRIVILEGES)
}

/// What the message says after `'name'@'host'`.
fn after_user(message: &str) -> &str {
    let rest = message
        .split_once("'@'")
        .and_then(|(_, rest)| rest.split_once('\''));
    rest.map_or(message, |(_, rest)| rest)
}

/// Whether the option that prevents the statement is one that makes the server read-only, such as `--super-read-only`.
fn is_prevented_by_read_only(message: &str) -> bool {
    OPTION_PREVENTS_STATEMENT
        .iter()
        .filter_map(|pattern| matched(pattern, message))
        .any(|option| option.contains("read-only") || option.contains("read_only"))
}

/// What COMMIT failed with, by the storage engine's number: after 149, a deadlock, the transaction is gone.
fn during_commit(message: &str) -> Option<ErrorClass> {
    DURING_COMMIT.iter().find_map(|pattern| {
        let what = matched(pattern, message)?;
        let number = what.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(match number.parse().ok()? {
            149 => ErrorClass::Deadlock,
            0_u32.. => ErrorClass::OutcomeUnknown,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::classify::class::RequiredPrivilege;

    #[test]
    fn messages_are_known_in_german_and_spanish() {
        assert_eq!(
            classify(
                "Beim Versuch, eine Sperre anzufordern, ist ein Deadlock aufgetreten. \
                 Versuchen Sie, die Transaktion neu zu starten"
            ),
            Some(ErrorClass::Deadlock)
        );
        assert_eq!(
            classify("Tiempo de espera de bloqueo excedido; intente rearrancar la transacción"),
            Some(ErrorClass::LockTimeout)
        );
    }

    /// COMMIT too fails so, after the server was set to read-only.
    #[test]
    fn a_server_that_is_read_only_is_known_by_its_option() {
        let prevented = |option: &str| {
            format!(
                "The MySQL server is running with the {option} option so it cannot execute this statement"
            )
        };
        let read_only = Some(ErrorClass::ReadOnly);
        assert_eq!(classify(&prevented("--read-only")), read_only);
        assert_eq!(classify(&prevented("--super-read-only")), read_only);
        assert_eq!(classify(&prevented("--secure-file-priv")), None);
    }

    #[test]
    fn commit_that_failed_is_a_deadlock_or_of_unknown_outcome() {
        for (message, class) in [
            (
                "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT",
                ErrorClass::Deadlock,
            ),
            (
                "Got error 149 \"Lock deadlock; Retry transaction\" during COMMIT",
                ErrorClass::Deadlock,
            ),
            (
                "Fehler 149 - 'Lock deadlock; Retry transaction' beim COMMIT",
                ErrorClass::Deadlock,
            ),
            (
                "Got error 6 \"No such device or address\" during COMMIT",
                ErrorClass::OutcomeUnknown,
            ),
            (
                "Got error 1490 - 'Unknown' during COMMIT",
                ErrorClass::OutcomeUnknown,
            ),
            (
                "COMMIT时发生错误 6 \"No such device or address\" ",
                ErrorClass::OutcomeUnknown,
            ),
        ] {
            assert_eq!(classify(message), Some(class), "{message}");
            assert_eq!(class_of_errno(1180, message), class, "{message}");
        }
        assert_eq!(
            class_of_errno(1180, "in another language"),
            ErrorClass::OutcomeUnknown
        );
        assert_eq!(class_of_errno(1047, ""), ErrorClass::OutcomeUnknown);
        assert_eq!(class_of_errno(3101, ""), ErrorClass::SerializationFailure);
        assert_eq!(classify("Got error 149 from storage engine"), None);
    }

    #[test]
    fn a_record_that_has_changed_is_known_in_all_languages() {
        let messages = RECORD_HAS_CHANGED
            .iter()
            .map(|pattern| pattern.replace("%s", "bonds"));
        for message in messages {
            assert_eq!(
                classify(&message),
                Some(ErrorClass::SerializationFailure),
                "{message}"
            );
        }
        for message in [
            "Record has changed since last read in table 'bonds'",
            "Record has changed since last read in table 'bonds'; try restarting transaction",
            "Datensatz hat sich seit dem letzten Zugriff auf Tabelle 'bonds' geändert. Versuchen Sie, die Transaktion neu zu starten",
        ] {
            assert_eq!(classify(message), Some(ErrorClass::SerializationFailure));
        }
        let another = "Datensatz hat sich seit dem letzten Zugriff auf Tabelle 'bonds'";
        assert_eq!(classify(another), None);
    }

    #[test]
    fn a_lock_that_is_not_waited_for_is_known_by_number_and_text() {
        let message = "Statement aborted because lock(s) could not be acquired immediately and NOWAIT is set.";
        assert_eq!(classify(message), Some(ErrorClass::LockNotAvailable));
        assert_eq!(class_of_errno(3572, message), ErrorClass::LockNotAvailable);
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

    #[test]
    fn foreign_missing_table_is_not_ours() {
        assert_eq!(classify("Table 'app.bonds' doesn't exist"), None);
        assert_eq!(
            classify("Table 'app.diesel_locks_objects' doesn't exist"),
            Some(ErrorClass::MissingTables)
        );
    }

    #[test]
    fn an_unknown_number_stays_a_plain_error() {
        assert_eq!(class_of_errno(1064, ""), ErrorClass::Other);
    }

    /// A statement waits for them before it begins, if its user has privileges on single tables.
    #[test]
    fn waiting_for_changes_of_users_counts_as_waiting() {
        let message = "Can not lock user management caches for processing.";
        assert_eq!(classify(message), Some(ErrorClass::StatementTimeout));
        assert_eq!(class_of_errno(3547, ""), ErrorClass::StatementTimeout);
    }

    #[test]
    fn a_right_that_lacks_is_named() {
        let of_fences = ErrorClass::InsufficientPrivilege(RequiredPrivilege {
            object: "diesel_locks_fences",
            privileges: "SELECT, INSERT, UPDATE",
        });
        for message in [
            "UPDATE command denied to user 'app'@'%' for table 'diesel_locks_fences'",
            "UPDATE command denied to user 'app'@'%' for table `app`.`diesel_locks_fences`",
        ] {
            assert_eq!(classify(message), Some(of_fences));
        }
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
            assert_eq!(
                class_of_errno(1142, another),
                ErrorClass::Other,
                "{another}"
            );
        }
    }
}
