//! Which of PostgreSQL's errors means what.
//!
//! Diesel hands on the message but not the SQLSTATE, and the server translates messages
//! (`lc_messages`). So each message stands here in all languages that PostgreSQL 15 to 18 speak, as
//! in the server's own catalogues; `%s` stands for any text.

use super::{Class, TABLES};

/// `None` for a message that is not known.
pub(super) fn classify(message: &str) -> Option<Class> {
    let is = |patterns: &[&str]| patterns.iter().any(|pattern| matches(pattern, message));
    if is(DEADLOCK) {
        Some(Class::Deadlock)
    } else if is(LOCK_TIMEOUT) {
        Some(Class::LockTimeout)
    } else if is(STATEMENT_TIMEOUT) {
        Some(Class::StatementTimeout)
    } else if is(LOCK_NOT_AVAILABLE) {
        Some(Class::LockNotAvailable)
    } else if is(UNLOGGED_IN_RECOVERY) {
        Some(Class::ReadOnly)
    } else if (is(NO_RELATION) && TABLES.iter().any(|table| message.contains(table)))
        || (is(NO_FUNCTION) && message.contains("diesel_locks_"))
    {
        Some(Class::TablesMissing)
    } else {
        None
    }
}

fn matches(pattern: &str, message: &str) -> bool {
    match pattern.split_once("%s") {
        None => pattern == message,
        Some((before, after)) => message
            .strip_prefix(before)
            .is_some_and(|rest| rest.ends_with(after)),
    }
}

const DEADLOCK: &[&str] = &[
    "deadlock detected",
    "Verklemmung (Deadlock) entdeckt",
    "se ha detectado un deadlock",
    "interblocage (deadlock) détecté",
    "rilevato deadlock",
    "デッドロックを検出しました",
    "ნაპოვნია ურთიერთბლოკირება",
    "deadlock 발생했음",
    "обнаружена взаимоблокировка",
    "deadlock upptäckt",
    "виявлено взаємне блокування",
    "检测到死锁",
    "發現死結",
    "wykryto zakleszczenie",
    "terdeteksi 'deadlock'",
    "impasse detectado",
    "çıkmaz (deadlock) durumu saptandı",
];

const LOCK_TIMEOUT: &[&str] = &[
    "canceling statement due to lock timeout",
    "storniere Anfrage wegen Zeitüberschreitung einer Sperre",
    "cancelando la sentencia debido a que se agotó el tiempo de espera de candados (locks)",
    "annulation de la requête à cause du délai écoulé pour l'obtention des verrous",
    "annullamento dell'istruzione a causa di timeout di lock",
    "ロックのタイムアウトのためステートメントをキャンセルしています",
    "გამოსახულება გაუქმდება ბლოკის მოლოდინის ვადის ამოწურვის გამო",
    "잠금 대기 시간 초과로 작업을 취소합니다.",
    "выполнение оператора отменено из-за тайм-аута блокировки",
    "avbryter sats på grund av lås-timeout",
    "виконання оператора скасовано через тайм-аут блокування",
    "由于锁超时，正在取消语句",
    "由於鎖定逾時，正在取消敘述",
    "anulowano polecenie z powodu przekroczenia czasu blokady",
    "cancelando la sentencia debido a que se agotó el tiempo de espera de “locks”",
    "pembatalan perintah karena kunci kehabisan waktu tunggu",
    "cancelando comando por causa do tempo de espera (timeout) do bloqueio",
    "由于锁超时，取消语句操作",
];

const STATEMENT_TIMEOUT: &[&str] = &[
    "canceling statement due to statement timeout",
    "storniere Anfrage wegen Zeitüberschreitung der Anfrage",
    "cancelando la sentencia debido a que se agotó el tiempo de espera de sentencias",
    "annulation de la requête à cause du délai écoulé pour l'exécution de l'instruction",
    "annullamento dell'istruzione a causa di timeout",
    "ステートメントのタイムアウトのためステートメントをキャンセルしています",
    "명령실행시간 초과로 작업을 취소합니다.",
    "выполнение оператора отменено из-за тайм-аута",
    "avbryter sats på grund av sats-timeout",
    "виконання оператора скасовано через тайм-аут",
    "由于语句执行超时，正在取消语句",
    "因為陳述式逾時，正在取消陳述式",
    "anulowano polecenie z powodu przekroczonego czasu wykonania",
    "pembatalan perintah karena perintah kehabisan waktu tunggu",
    "cancelando comando por causa do tempo de espera (timeout) do comando",
    "sorgu zaman aşımına uğradı ve iptal edildi",
    "由于语句执行超时，正在取消查询命令",
];

const LOCK_NOT_AVAILABLE: &[&str] = &[
    r#"could not obtain lock on row in relation "%s""#,
    "konnte Sperre für Zeile in Relation »%s« nicht setzen",
    "no se pudo bloquear un candado en la fila de la relación «%s»",
    "n'a pas pu obtenir un verrou sur la relation « %s »",
    r#"lock di riga nella relazione "%s" fallito"#,
    r#"リレーション"%s"の行ロックを取得できませんでした"#,
    r#"ურთიერთობაში "%s" მწკრივის დაბლოკვის შეცდომა"#,
    r#""%s" 릴레이션의 잠금 정보를 구할 수 없음"#,
    r#"не удалось получить блокировку строки в таблице "%s""#,
    r#"kunde inte låsa rad i relationen "%s""#,
    r#"не вдалося отримати блокування у рядку стосовно "%s""#,
    r#"无法获取关系 "%s" 中行的锁"#,
    r#"無法取得關聯 "%s" 中的資料列鎖定"#,
    r#"nie można nałożyć blokady na rekord w relacji "%s""#,
    "no se pudo bloquear un “lock” en la fila de la relación «%s»",
    "tidak mendapatkan kunci pada baris relasi « %s »",
    r#"não foi possível obter bloqueio na linha da relação "%s""#,
    r#""%s" tablosundaki satır için lock alınamadı"#,
    r#"无法在关系 "%s"中的记录上获得锁"#,
];

const UNLOGGED_IN_RECOVERY: &[&str] = &[
    "cannot access temporary or unlogged relations during recovery",
    "während der Wiederherstellung kann nicht auf temporäre oder ungeloggte Tabellen zugegriffen werden",
    "no se puede acceder a tablas temporales o «unlogged» durante la recuperación",
    "ne peut pas accéder à des tables temporaires et non tracées lors de la restauration",
    "non è possibile accedere a relazioni temporanee o non loggate durante il ripristino",
    "リカバリ中は一時テーブルやUNLOGGEDテーブルにはアクセスできません",
    "აღდგენისას დროებით ან უჟურნალო ურთიერთობებთან წვდომა შეუძლებელია",
    "복구 작업 중에는 임시 테이블이나, 언로그드 테이블을 접근할 수 없음",
    "обращаться к временным или нежурналируемым отношениям в процессе восстановления нельзя",
    "kan inte accessa temporära eller ologgade relationer under återställning",
    "отримати доступ до тимчасових або нежурнальованих відношень під час відновлення не можна",
    "恢复期间不能访问临时关系或不记录 WAL 的关系",
    "復原期間不能存取暫存關聯或不記錄 WAL 的關聯",
    "nie można uzyskać dostępu do tymczasowej lub nielogowanej relacji podczas odzyskiwania",
    "tidak dapat mengakses temporary atau unlogged selama recovery",
    "não é possível criar tabelas temporárias ou sem registro de transações (unlogged) durante a recuperação",
    "kurtarma sırasında geçici ya da loglanmayan ilişkilere (relation) erişilemiyor",
    "无法在恢复过程中访问临时关系或非事务日志关系",
];

const NO_RELATION: &[&str] = &[
    r#"relation "%s" does not exist"#,
    "Relation »%s« existiert nicht",
    "no existe la relación «%s»",
    "la relation « %s » n'existe pas",
    r#"la relazione "%s" non esiste"#,
    r#"リレーション"%s"は存在しません"#,
    r#"ურთიერთობა "%s" არ არსებობს"#,
    r#""%s" 이름의 릴레이션(relation)이 없습니다"#,
    r#"отношение "%s" не существует"#,
    r#"relationen "%s" existerar inte"#,
    r#"відношення "%s" не існує"#,
    r#"关系 "%s" 不存在"#,
    r#"關聯 "%s" 不存在"#,
    r#"relacja "%s" nie istnieje"#,
    "relasi « %s » tidak ada",
    r#"relação "%s" não existe"#,
    r#""%s" nesnesi mevcut değil"#,
];

const NO_FUNCTION: &[&str] = &[
    "function %s does not exist",
    "Funktion %s existiert nicht",
    "no existe la función %s",
    "la fonction %s n'existe pas",
    "la funzione %s non esiste",
    "関数%sは存在しません",
    "ფუნქცია %s არ არსებობს",
    "%s 이름의 함수가 없음",
    "функция %s не существует",
    "funktionen %s finns inte",
    "функції %s не існує",
    "函数 %s 不存在",
    "函式 %s 不存在",
    "funkcja %s nie istnieje",
    "fungsi %s tidak ada",
    "função %s não existe",
    "%s fonksiyonu mevcut değildir",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_known_in_german_and_japanese() {
        assert_eq!(
            classify("Verklemmung (Deadlock) entdeckt"),
            Some(Class::Deadlock)
        );
        assert_eq!(
            classify("storniere Anfrage wegen Zeitüberschreitung der Anfrage"),
            Some(Class::StatementTimeout)
        );
        assert_eq!(
            classify("リレーション\"diesel_object_locks\"は存在しません"),
            Some(Class::TablesMissing)
        );
    }

    #[test]
    fn somebody_elses_missing_table_is_not_ours() {
        assert_eq!(classify("relation \"bonds\" does not exist"), None);
        assert_eq!(
            classify("permission denied for table diesel_object_locks"),
            None
        );
    }

    #[test]
    fn no_message_has_two_meanings() {
        let all = [
            DEADLOCK,
            LOCK_TIMEOUT,
            STATEMENT_TIMEOUT,
            LOCK_NOT_AVAILABLE,
            UNLOGGED_IN_RECOVERY,
            NO_RELATION,
            NO_FUNCTION,
        ];
        for (index, patterns) in all.iter().enumerate() {
            for pattern in *patterns {
                let message = pattern.replace("%s", "x");
                let meanings: Vec<_> = (0..all.len())
                    .filter(|other| all[*other].iter().any(|known| matches(known, &message)))
                    .collect();
                assert_eq!(meanings, [index], "{message}");
            }
        }
    }
}
