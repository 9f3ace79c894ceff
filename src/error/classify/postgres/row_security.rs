//! The messages of row-level security, in all languages that PostgreSQL 15 to 18 speak; `%s` stands for any text.

use crate::error::classify::patterns::is_any_of;
use crate::error::classify::privileges::{POSTGRES_PRIVILEGES, named_object};

/// The table of this crate whose policies, triggers or rules have kept a statement from a row.
pub(super) fn protected_table(message: &str) -> Option<&'static str> {
    if is_any_of(ROW_SECURITY, message) || message.starts_with(NOT_CHANGED) {
        named_object(message, POSTGRES_PRIVILEGES).map(|object| object.object)
    } else {
        None
    }
}

/// The start of the message of this crate's own functions.
const NOT_CHANGED: &str = "diesel_locks: a row can't be read or changed: ";

/// Of a table; of a policy and a table, each also of its USING expression; of a session with `row_security = off`.
const ROW_SECURITY: &[&str] = &[
    "new row violates row-level security policy for table \"%s\"",
    "neue Zeile verletzt Policy für Sicherheit auf Zeilenebene für Tabelle »%s«",
    "el nuevo registro viola la política de seguridad de registros para la tabla «%s»",
    "la nouvelle ligne viole la politique de sécurité au niveau ligne pour la table « %s »",
    "la nuova riga viola la regola di sicurezza per riga per la tabella \"%s\"",
    "新しい行はテーブル\"%s\"の行レベルセキュリティポリシに違反しています",
    "ახალი მწკრივი ცხრილისთვის \"%s\" მწკრივის-დონის უსაფრთხოების პოლიტიკა არღვევს",
    "새 자료가 \"%s\" 테이블의 로우 단위 보안 정책을 위반했습니다.",
    "новая строка нарушает политику защиты на уровне строк для таблицы \"%s\"",
    "ny rad bryter mot radsäkerhetspolicy i tabell \"%s\"",
    "новий рядок порушує політику захисту на рівні рядків для таблиці \"%s\"",
    "新行违反表 \"%s\" 的行级安全策略",
    "新資料列違反資料表 \"%s\" 的資料列層級安全性原則",
    "nowy wiersz narusza politykę bezpieczeństwa na poziomie wierszy tabeli \"%s\"",
    "a nova linha viola a política de segurança no nível de linha da tabela \"%s\"",
    "yeni kayıt, \"%s\" tablosunun satır-seviyesi güvenlik politikasını ihlal ediyor",
    "新行违背了表\"%s\"的行级安全策略",
    "new row violates row-level security policy \"%s\" for table \"%s\"",
    "neue Zeile verletzt Policy für Sicherheit auf Zeilenebene »%s« für Tabelle »%s«",
    "el nuevo registro viola la política de seguridad de registros «%s» para la tabla «%s»",
    "la nouvelle ligne viole la politique de sécurité au niveau ligne « %s » pour la table « %s »",
    "la nuova riga viola la regola di sicurezza per riga \"%s\" per la tabella \"%s\"",
    "新しい行はテーブル\"%s\"行レベルセキュリティポリシ\"%s\"に違反しています",
    "ახალი მწკრივი არღვევს მწკრივის-დონის უსაფრთხოების პოლიტიკას \"%s\" ცხრილისთვის \"%s\"",
    "새 자료가 \"%s\" 로우 단위 보안 정책을 위반했습니다, 해당 테이블: \"%s\"",
    "новая строка нарушает политику защиты на уровне строк \"%s\" для таблицы \"%s\"",
    "ny rad bryter mot radsäkerhetspolicy \"%s\" i tabell \"%s\"",
    "новий рядок порушує політику захисту на рівні рядків \"%s\" для таблиці \"%s\"",
    "新行违反表 \"%s\" 的行级安全策略 \"%s\"",
    "新資料列違反資料表 \"%s\" 的資料列層級安全性原則 \"%s\"",
    "nowy wiersz narusza politykę bezpieczeństwa na poziomie wierszy \"%s\" tabeli \"%s\"",
    "a nova linha viola a política de segurança no nível de linha \"%s\" para a tabela \"%s\"",
    "yeni kayıt, \"%s\" tablosunun satır-seviyesi güvenlik politikasını \"%s\" ihlal ediyor",
    "新行违背了表\"%s\"的行级安全性策略\"%s\"",
    "new row violates row-level security policy (USING expression) for table \"%s\"",
    "neue Zeile verletzt Policy für Sicherheit auf Zeilenebene (USING-Ausdruck) für Tabelle »%s«",
    "el nuevo registro viola la política de seguridad de registros (expresión USING) para la tabla «%s»",
    "la nouvelle ligne viole la politique de sécurité au niveau ligne (expression USING) pour la table « %s »",
    "la nuova riga viola la regola di sicurezza per riga (espressione USING) per la tabella \"%s\"",
    "新しい行はテーブル\"%s\"の行レベルセキュリティポリシ(USING式)に違反しています",
    "새 자료가 \"%s\" 테이블의 로우 단위 보안 정책(USING 절 사용)을 위반했습니다.",
    "новая строка нарушает политику защиты на уровне строк (выражение USING) для таблицы \"%s\"",
    "ny rad bryter mot radsäkerhetspolicy (USING-uttryck) i tabell \"%s\"",
    "новий рядок порушує політику захисту на рівні рядків (вираз USING) для таблиці \"%s\"",
    "新行违反表 \"%s\" 的行级安全策略（USING 表达式）",
    "新資料列違反資料表 \"%s\" 的資料列層級安全性原則 (USING 運算式)",
    "nowy wiersz narusza politykę bezpieczeństwa na poziomie wierszy (wyrażenie USING) tabeli \"%s\"",
    "a nova linha viola a política de segurança no nível de linha (expressão USING) para a tabela \"%s\"",
    "yeni kayıt, \"%s\" tablosunun satır-seviyesi güvenlik politikasını (USING ifadesi) ihlal ediyor",
    "新行违背了表\"%s\"的行级安全策略（USING expression）",
    "new row violates row-level security policy \"%s\" (USING expression) for table \"%s\"",
    "neue Zeile verletzt Policy für Sicherheit auf Zeilenebene »%s« (USING-Ausdruck) für Tabelle »%s«",
    "el nuevo registro viola la política de seguridad de registros «%s» (expresión USING) para la tabla «%s»",
    "la nouvelle ligne viole la politique de sécurité au niveau ligne « %s » (expression USING) pour la table « %s »",
    "la nuova riga viola la regola di sicurezza per riga \"%s\" (espressione USING) per la tabella \"%s\"",
    "新しい行はテーブル\"%s\"の行レベルセキュリティポリシ\"%s\"(USING式)に違反しています",
    "새 자료가 \"%s\" 로우 단위 보안 정책(USING 절 사용)을 위반했습니다, 해당 테이블: \"%s\"",
    "новая строка нарушает политику защиты на уровне строк \"%s\" (выражение USING) для таблицы \"%s\"",
    "ny rad bryter mot radsäkerhetspolicy \"%s\" (USING-uttryck) i tabell \"%s\"",
    "новий рядок порушує політику захисту на рівні рядків \"%s\" (вираз USING) для таблиці \"%s\"",
    "新行违反表 \"%s\" 的行级安全策略 \"%s\"（USING 表达式）",
    "新資料列違反資料表 \"%s\" 的資料列層級安全性原則 \"%s\" (USING 運算式)",
    "nowy wiersz narusza politykę bezpieczeństwa na poziomie wierszy \"%s\" (wyrażenie USING) tabeli \"%s\"",
    "a nova linha viola a política de segurança no nível de linha \"%s\" (expressão USING) para a tabela \"%s\"",
    "yeni kayıt, \"%s\" tablosunun \"%s\" satır-seviyesi güvenlik politikasını (USING ifadesi) ihlal ediyor",
    "新行违背了表\"%s\"的行级安全策略\"%s\"（USING expression）",
    "query would be affected by row-level security policy for table \"%s\"",
    "Policy für Sicherheit auf Zeilenebene für Tabelle »%s« würde Auswirkung auf die Anfrage haben",
    "la consulta sería afectada por la política de seguridad de registros para la tabla «%s»",
    "la requête pourrait être affectée par une politique de sécurité au niveau ligne pour la table « %s »",
    "la query sarebbe influenzata dalla regola di sicurezza per riga pre la tabella \"%s\"",
    "問い合わせはテーブル\"%s\"に対する行レベルセキュリティポリシの影響を受けます",
    "\"%s\" 테이블의 로우 단위 보안 정책에 의해 쿼리가 영향을 받음",
    "запрос будет ограничен политикой безопасности на уровне строк для таблицы \"%s\"",
    "frågan påverkas av radsäkerhetspolicyn för tabell \"%s\"",
    "запит буде обмежений політикою безпеки на рівні рядків для таблиці \"%s\"",
    "查询将受表 \"%s\" 的行级安全策略影响",
    "查詢將受資料表 \"%s\" 的資料列層級安全性原則影響",
    "polityka bezpieczeństwa na poziomie wierszy tabeli \"%s\" wpłynie na kwerendę",
    "a consulta seria afetada pela política de segurança no nível de linha da tabela \"%s\"",
    "sorgu \"%s\" tablosunun satır seviyesi güvenlik politikasından (row-level securit policy) etkilenebilir",
    "查询将被表 \"%s\" 的行级安全性策略所影响",
    "target row violates row-level security policy (USING expression) for table \"%s\"",
    "Zielzeile verletzt Policy für Sicherheit auf Zeilenebene (USING-Ausdruck) für Tabelle »%s«",
    "el registro destino viola la política de seguridad de registros (expresión USING) para la tabla «%s»",
    "la riga di destinazione viola la politica di sicurezza a livello di riga (USING espressione) per la tabella \"%s\"",
    "ターゲットの行はテーブル\"%s\"の行レベルセキュリティポリシ(USING式)に違反しています",
    "대상 로우가 \"%s\" 테이블의 로우 단위 보안 정책(USING 절 사용)을 위반했습니다.",
    "målraden bryter mot radsäkerhetspolicyn (USING-uttryck) i tabellen \"%s\"",
    "цільовий рядок порушує політику захисту на рівні рядків (вираз USING) для таблиці \"%s\"",
    "目标行违反表 \"%s\" 的行级安全策略（USING 表达式）",
    "目標資料列違反資料表 \"%s\" 的資料列層級安全性原則 (USING 運算式)",
    "a linha de destino viola a política de segurança no nível de linha (expressão USING) para a tabela \"%s\"",
    "target row violates row-level security policy \"%s\" (USING expression) for table \"%s\"",
    "Zielzeile verletzt Policy für Sicherheit auf Zeilenebene »%s« (USING-Ausdruck) für Tabelle »%s«",
    "el registro destino viola la política de seguridad de registros «%s» (expresión USING) para la tabla «%s»",
    "la riga di destinazione viola la politica di sicurezza a livello di riga \"%s\" (USING expression) per la tabella \"%s\"",
    "ターゲットの行はテーブル\"%s\"の行レベルセキュリティポリシ\"%s\"(USING式)に違反しています",
    "대상 로우가 \"%s\" 로우 단위 보안 정책(USING 절 사용)을 위반했습니다, 해당 테이블: \"%s\"",
    "целевая строка нарушает политику защиты на уровне строк \"%s\" (выражение USING) для таблицы \"%s\"",
    "målraden bryter mot radsäkerhetspolicyen \"%s\" (USING-uttryck) i tabellen \"%s\"",
    "цільовий рядок порушує політику захисту на рівні рядків \"%s\" (вираз USING) для таблиці \"%s\"",
    "目标行违反表 \"%s\" 的行级安全策略 \"%s\"（USING 表达式）",
    "目標資料列違反資料表 \"%s\" 的資料列層級安全性原則 \"%s\" (USING 運算式)",
    "a linha de destino viola a política de segurança no nível de linha \"%s\" (expressão USING) para a tabela \"%s\"",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_tables_are_known_in_any_language() {
        let slots = Some("diesel_locks_slots");
        for message in [
            "new row violates row-level security policy for table \"diesel_locks_slots\"",
            "new row violates row-level security policy \"tenants\" for table \"diesel_locks_slots\"",
            "new row violates row-level security policy (USING expression) for table \"diesel_locks_slots\"",
            "新しい行はテーブル\"diesel_locks_slots\"行レベルセキュリティポリシ\"tenants\"に違反しています",
            "neue Zeile verletzt Policy für Sicherheit auf Zeilenebene für Tabelle »diesel_locks_slots«",
            "query would be affected by row-level security policy for table \"diesel_locks_slots\"",
            "diesel_locks: a row can't be read or changed: diesel_locks_slots",
        ] {
            assert_eq!(protected_table(message), slots, "{message}");
        }
        let application = "new row violates row-level security policy for table \"bonds\"";
        assert_eq!(protected_table(application), None);
        let check = "new row for relation \"diesel_locks_slots\" violates check constraint \"one\"";
        assert_eq!(protected_table(check), None);
    }
}
