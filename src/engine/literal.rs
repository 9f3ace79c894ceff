//! Writes ids into messages of several statements, which have no bound values.
//!
//! An id of plain characters stands there as it is, so that it can be read in the server's list of queries. Any other id is
//! written as hexadecimal digits, for SQLite in escapes of JSON.

use std::fmt::Write;

#[cfg(feature = "_sqlite")]
use crate::values::lease::push_json_text;

/// The characters besides ASCII letters and digits that mean themselves in a literal of every server, with any SQL mode,
/// any `standard_conforming_strings` and any character set of the client.
const PLAIN: &str = " -_.:/@,+=";

fn is_plain(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || PLAIN.contains(c))
}

/// The bytes in hexadecimal digits, each after this text.
fn digits(bytes: &[u8], before_each: &str) -> String {
    let mut digits = String::with_capacity((before_each.len() + 2) * bytes.len());
    for byte in bytes {
        let _ = write!(digits, "{before_each}{byte:02x}");
    }
    digits
}

/// ASCII is the same in every server encoding; other texts are converted from UTF-8.
pub(crate) fn push_for_postgres(sql: &mut String, text: &str) {
    let _ = if is_plain(text) {
        write!(sql, "'{text}'")
    } else if text.is_ascii() {
        write!(sql, "E'{}'", digits(text.as_bytes(), "\\x"))
    } else {
        // Without a backslash, which `standard_conforming_strings = off` would take for an escape.
        let digits = digits(text.as_bytes(), "");
        write!(sql, "convert_from(decode('{digits}', 'hex'), 'UTF8')")
    };
}

/// Reads the text of a literal that [`push_for_postgres`] wrote, at the start of `sql`. Returns `None` for anything else,
/// and for a literal whose end is missing: the server shows the start of a long query only.
pub(crate) fn read_from_postgres(sql: &str) -> Option<String> {
    if let Some(rest) = sql.strip_prefix("convert_from(decode('") {
        let (digits, rest) = rest.split_once('\'')?;
        rest.strip_prefix(", 'hex'), 'UTF8')")?;
        return String::from_utf8(read_hexadecimal(digits, "")?).ok();
    }
    if let Some(rest) = sql.strip_prefix("E'") {
        let (escapes, _) = rest.split_once('\'')?;
        return String::from_utf8(read_hexadecimal(escapes, "\\x")?).ok();
    }
    let (text, _) = sql.strip_prefix('\'')?.split_once('\'')?;
    is_plain(text).then(|| text.to_owned())
}

fn read_hexadecimal(mut digits: &str, before_each: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while !digits.is_empty() {
        digits = digits.strip_prefix(before_each)?;
        bytes.push(u8::from_str_radix(digits.get(..2)?, 16).ok()?);
        digits = &digits[2..];
    }
    Some(bytes)
}

/// Writes the bytes of a text for MySQL. The introducer `_binary` keeps them from being converted to the character set
/// of the session, and from being compared by its collation.
pub(crate) fn push_for_mysql(sql: &mut String, text: &str) {
    let _ = if is_plain(text) {
        write!(sql, "_binary'{text}'")
    } else {
        write!(sql, "x'{}'", digits(text.as_bytes(), ""))
    };
}

/// Writes a text for SQLite, whatever the encoding of the database: as a JSON value that is read. A CAST of bytes to TEXT
/// would take them for text in the encoding of the database.
#[cfg(feature = "_sqlite")]
pub(crate) fn push_for_sqlite(sql: &mut String, text: &str) {
    sql.push_str("('");
    push_json_text(sql, text);
    sql.push_str("' ->> '$')");
}

#[cfg(all(test, feature = "_postgres", feature = "_mysql"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pushed(push: fn(&mut String, &str), text: &str) -> String {
        let mut sql = "= ".to_owned();
        push(&mut sql, text);
        sql.strip_prefix("= ").expect("appended").to_owned()
    }

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[ -~]{0,12}",
            "[a-zA-Z0-9 ._:/@,+=-]{0,12}"
        ]
    }

    proptest! {
        #[test]
        fn literals_mean_their_texts(text in texts()) {
            let of_each = |before: &str| {
                let digits = text.bytes().map(|byte| format!("{before}{byte:02x}"));
                digits.collect::<Vec<_>>().concat()
            };
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b" -_.:/@,+=".contains(&byte);
            let (postgres, mysql) = if text.bytes().all(allowed) {
                (format!("'{text}'"), format!("_binary'{text}'"))
            } else if text.is_ascii() {
                (format!("E'{}'", of_each("\\x")), format!("x'{}'", of_each("")))
            } else {
                let digits = of_each("");
                (format!("convert_from(decode('{digits}', 'hex'), 'UTF8')"), format!("x'{digits}'"))
            };
            prop_assert_eq!(pushed(push_for_postgres, &text), postgres);
            prop_assert_eq!(pushed(push_for_mysql, &text), mysql);
        }

        #[test]
        fn literals_are_read_back(text in texts(), rest in ", (true|false)\\).{0,5}") {
            let literal = pushed(push_for_postgres, &text);
            let read = read_from_postgres(&format!("{literal}{rest}"));
            prop_assert_eq!(read.as_deref(), Some(text.as_str()));
            for (end, _) in literal.char_indices() {
                let start = &literal[..end];
                prop_assert_eq!(read_from_postgres(start), None, "{}", start);
            }
        }

        #[test]
        fn other_texts_are_not_literals(text in any::<String>()) {
            if !text.starts_with(['\'', 'E', 'c']) {
                prop_assert_eq!(read_from_postgres(&text), None);
            }
        }
    }

    #[test]
    fn every_character_that_a_server_may_take_for_something_else_is_a_digit() {
        for c in "'\"`\\%;$?!#*&|<>~^()[]{}\n\r\t\0\u{1a}\u{7f}é漢🔒".chars() {
            for push in [push_for_postgres, push_for_mysql] {
                let literal = pushed(push, &format!("a{c}b"));
                let plain = literal.starts_with('\'') || literal.starts_with("_binary");
                assert!(!plain, "{literal}");
            }
        }
        assert_eq!(pushed(push_for_mysql, "a'b"), "x'612762'");
        assert_eq!(pushed(push_for_postgres, "a'b"), "E'\\x61\\x27\\x62'");
        assert_eq!(
            pushed(push_for_postgres, "é"),
            "convert_from(decode('c3a9', 'hex'), 'UTF8')"
        );
    }
}
