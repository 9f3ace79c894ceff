//! Classifies MySQL's and MariaDB's errors.
//!
//! Diesel passes on the message but not the number, and the server translates messages (`lc_messages`). For its own
//! statements the engine asks the server for the number. For those of a closure only the error is available, which is
//! compared with the messages in [`translations`].

mod translations;

use translations::{
    CERTIFICATION_FAILED, DEADLOCK, DURING_COMMIT, LOCK_WAIT_TIMEOUT, NOT_READY, NOT_TO_WAIT,
    RECORD_HAS_CHANGED, STATEMENT_TIMEOUT,
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
    } else if let Some(class) = during_commit(message) {
        Some(class)
    } else if message
        .strip_suffix("' doesn't exist")
        .and_then(|message| message.rsplit_once('.'))
        .is_some_and(|(_, table)| TABLES.contains(&table))
    {
        Some(ErrorClass::MissingTables)
    } else if message.contains(" command denied to user ") {
        denied(message)
    } else {
        None
    }
}

/// The table that the message names, and not the user, `'name'@'host'`, who may be called as it.
fn denied(message: &str) -> Option<ErrorClass> {
    let rest = message
        .split_once("'@'")
        .and_then(|(_, rest)| rest.split_once('\''));
    find_named_object(rest.map_or(message, |(_, rest)| rest), MYSQL_PRIVILEGES)
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
