//! Classifies MySQL's and MariaDB's errors.
//!
//! Diesel hands on the message but not the number, and the server translates messages
//! (`lc_messages`). For its own statements the engine asks the server for the number; for those of a
//! closure, of which only the error is there, the messages that matter stand here in all languages
//! of MySQL 9 and MariaDB 10.11.

use super::privileges::{MYSQL_PRIVILEGES, find_named_object};
use super::{ErrorClass, TABLES};

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
        // And on MySQL when the time was up while somebody changed users or privileges.
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
    } else if record_has_changed(message) || message == CERTIFICATION_FAILED {
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

/// Group Replication's, in all languages.
const CERTIFICATION_FAILED: &str =
    "Plugin instructed the server to rollback the current transaction.";

/// Galera's, in all languages.
const NOT_READY: &str = "WSREP has not yet prepared node for application use";

/// MySQL's NOWAIT, in all languages.
const NOT_TO_WAIT: &str =
    "Statement aborted because lock(s) could not be acquired immediately and NOWAIT is set.";

fn record_has_changed(message: &str) -> bool {
    RECORD_HAS_CHANGED.iter().any(|(before, after)| {
        message
            .strip_prefix(before)
            .is_some_and(|rest| rest.ends_with(after))
    })
}

/// What stands before and after the table's name: MySQL's, and MariaDB's with more after it.
const RECORD_HAS_CHANGED: &[(&str, &str)] = &[
    (
        "A(z) '",
        "' tablaban talalhato rekord megvaltozott az utolso olvasas ota",
    ),
    (
        "Cimpul a fost schimbat de la ultima citire a tabelei '",
        "'",
    ),
    (
        "Datensatz hat sich seit dem letzten Zugriff auf Tabelle '",
        "' geändert",
    ),
    (
        "Datensatz hat sich seit dem letzten Zugriff auf Tabelle '",
        "' geändert. Versuchen Sie, die Transaktion neu zu starten",
    ),
    (
        "El registro ha cambiado desde la ultima lectura de la tabla '",
        "'",
    ),
    (
        "El registro ha cambiado desde la ultima lectura de la tabla '",
        "'; intente volver a comenzar la transacción",
    ),
    (
        "Enregistrement modifié depuis sa dernière lecture dans la table '",
        "'",
    ),
    (
        "Enregistrement modifié depuis sa dernière lecture dans la table '",
        "' : essayez de redémarrer la transaction",
    ),
    (
        "Il record e` cambiato dall'ultima lettura della tabella '",
        "'",
    ),
    (
        "Il record e` cambiato dall'ultima lettura della tabella '",
        "'; Provare a far ripartire la transazione",
    ),
    (
        "Kirje tabelis '",
        "' on muutunud viimasest lugemisest saadik",
    ),
    (
        "Kirje tabelis '",
        "' on muutunud viimasest lugemisest saadik; alusta transaktsiooni otsast",
    ),
    ("Posten er ændret siden sidste læsning '", "'"),
    (
        "Posten er ændret siden sidste læsning '",
        "'; Prøv at genstarte transaktionen",
    ),
    ("Posten har blitt endret siden den ble lest '", "'"),
    ("Posten har förändrats sedan den lästes i register '", "'"),
    (
        "Posten har förändrats sedan den lästes i register '",
        "'. Försök att starta om transaktionen",
    ),
    ("Posten har vorte endra sidan den sist vart lesen '", "'"),
    (
        "Posten har vorte endra sidan den sist vart lesen '",
        "'; Prøv å starte transaksjonen på nytt",
    ),
    ("Record has changed since last read in table '", "'"),
    (
        "Record has changed since last read in table '",
        "'; try restarting transaction",
    ),
    (
        "Record is veranderd sinds de laatste lees activiteit in de tabel '",
        "'",
    ),
    (
        "Record is veranderd sinds de laatste lees activiteit in de tabel '",
        "'; Probeer herstart van de transactie",
    ),
    ("Registro alterado desde a última leitura da tabela '", "'"),
    (
        "Registro alterado desde a última leitura da tabela '",
        "'. Tente reiniciar a transação",
    ),
    (
        "Rekord został zmieniony od ostaniego odczytania z tabeli '",
        "'",
    ),
    ("Slog je promenjen od zadnjeg čitanja tabele '", "'"),
    (
        "Slog je promenjen od zadnjeg čitanja tabele '",
        "'; Probajte da restartujete transakciju",
    ),
    ("Záznam bol zmenený od posledného čítania v tabuľke '", "'"),
    ("Záznam byl změněn od posledního čtení v tabulce '", "'"),
    (
        "Η εγγραφή έχει αλλάξει από την τελευταία φορά που ανασύρθηκε από τον πίνακα '",
        "'",
    ),
    (
        "Запис було змінено з часу останнього читання з таблиці '",
        "'",
    ),
    (
        "Запис було змінено з часу останнього читання з таблиці '",
        "'; спробуйте перезапустити транзакцію.",
    ),
    (
        "Запись изменилась с момента последней выборки в таблице '",
        "'",
    ),
    (
        "Запись изменилась с момента последней выборки в таблице '",
        "'; Попробуйте перезапустить транзакцию",
    ),
    ("रिकॉर्ड टेबल '", "' पिछली बार प\u{95d}े जाने के बाद से बदल गया है"),
    (
        "ცხრილში '",
        "' ჩანაწერი შეიცვალა ბოლო წაკითხვის შემდეგ. სცადეთ, ტრანზაქცია თავიდან გაუშვათ",
    ),
    (
        "表 '",
        "' の最後の読み込み時点から、レコードが変化しました。",
    ),
    (
        "表 '",
        "' の最後の読み込み時点から、レコードが変化しました。トランザクションを再試行してください。",
    ),
    ("这个表自上次读后数据有变化'", "';尝试重新启动事务"),
    (
        "테이블 '",
        "'에서 마지막으로 읽은 후 Record가 변경되었습니다.",
    ),
];

/// What COMMIT failed with, by the storage engine's number: after 149, a deadlock, the transaction is gone.
fn during_commit(message: &str) -> Option<ErrorClass> {
    DURING_COMMIT.iter().find_map(|(before, after)| {
        let what = message.strip_prefix(before)?.strip_suffix(after)?;
        let number = what.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(match number.parse().ok()? {
            149 => ErrorClass::Deadlock,
            0_u32.. => ErrorClass::OutcomeUnknown,
        })
    })
}

/// What stands before and after the number and its text.
const DURING_COMMIT: &[(&str, &str)] = &[
    ("Got error ", " during COMMIT"),
    ("Chyba ", " při COMMIT"),
    ("Erreur ", " lors du COMMIT"),
    ("Fehler ", " beim COMMIT"),
    ("Fick fel ", " vid COMMIT"),
    ("Greška ", " za vreme izvršavanja komande 'COMMIT'"),
    ("Kreeg fout ", " tijdens COMMIT"),
    ("Modtog fejl ", " mens kommandoen COMMIT blev udført"),
    ("Obtenido error ", " durante COMMIT"),
    ("Obteve erro ", " durante COMMIT"),
    ("Rilevato l'errore ", " durante il COMMIT"),
    ("Viga ", " käsu COMMIT täitmisel"),
    ("", " hiba a COMMIT vegrehajtasa soran"),
    ("Отримано помилку ", " під час COMMIT"),
    ("Получена ошибка ", " в процессе COMMIT"),
    ("შეცდომა ", " COMMIT-ის დროს"),
    ("COMMIT के दौरान ", " त्रुटि हुई"),
    ("COMMIT中にエラー ", " が発生しました。"),
    ("COMMIT时发生错误 ", ""),
];

const STATEMENT_TIMEOUT: &[&str] = &[
    "Query execution was interrupted, maximum statement execution time exceeded",
    "Query execution was interrupted (max_statement_time exceeded)",
    "Can not lock user management caches for processing.",
];

const LOCK_WAIT_TIMEOUT: &[&str] = &[
    "Lock wait timeout exceeded; try restarting transaction",
    "Beim Warten auf eine Sperre wurde die zulässige Wartezeit überschritten. Bitte versuchen Sie, die Transaktion neu zu starten",
    "E' scaduto il timeout per l'attesa del lock",
    "Fick inte ett lås i tid ; Försök att starta om transaktionen",
    "Kontrollaeg ületatud luku järel ootamisel; Proovi transaktsiooni otsast alata",
    "Lock wacht tijd overschreden",
    "Lock wait timeout overskredet",
    "Tempo de espera (timeout) de travamento excedido. Tente reiniciar a transação",
    "Tiempo de espera de bloqueo excedido; intente rearrancar la transacción",
    "Timeout sur l'obtention du verrou",
    "Vremenski limit za zaključavanje tabele je istekao; Probajte da ponovo startujete transakciju",
    "Затримку очікування блокування вичерпано",
    "Таймаут ожидания блокировки истек; попробуйте перезапустить транзакцию",
    "ბლოკის მოლოდინის ვადა ამოიწურა. სცადეთ, ტრანზაქცია თავიდან გაუშვათ",
    "ロック待ちがタイムアウトしました。トランザクションを再試行してください。",
    "锁等待超时;尝试重新启动事务",
];

const DEADLOCK: &[&str] = &[
    "Deadlock found when trying to get lock; try restarting transaction",
    "Beim Versuch, eine Sperre anzufordern, ist ein Deadlock aufgetreten. Versuchen Sie, die Transaktion neu zu starten",
    "Deadlock découvert en essayant d'obtenir les verrous : essayez de redémarrer la transaction",
    "Deadlock gevonden tijdens lock-aanvraag poging; Probeer herstart van de transactie",
    "Encontrado estancamiento (deadlock) al intentar obtener el bloqueo; intente volver a comenzar la transacción",
    "Encontrado um travamento fatal (deadlock) quando tentava obter uma trava. Tente reiniciar a transação",
    "Fick 'DEADLOCK' vid låsförsök av block/rad. Försök att starta om transaktionen",
    "Lukustamisel tekkis tupik (deadlock); alusta transaktsiooni otsast",
    "Trovato deadlock durante il lock; Provare a far ripartire la transazione",
    "Unakrsno zaključavanje pronađeno kada sam pokušao da dobijem pravo na zaključavanje; Probajte da restartujete transakciju",
    "Взаємне блокування знайдено під час спроби отримати блокування; спробуйте перезапустити транзакцію.",
    "Возникла тупиковая ситуация в процессе получения блокировки; Попробуйте перезапустить транзакцию",
    "ჩიხი ბლოკის მიღების მცდელობისას. სცადეთ, ტრანზაქცია თავიდან გაუშვათ",
    "ロック取得中にデッドロックが検出されました。トランザクションを再試行してください。",
    "试图锁定时发现僵局;尝试重新启动事务",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::classify::RequiredPrivilege;

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
            .map(|(before, after)| format!("{before}bonds{after}"));
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
