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

fn push_hexadecimal(sql: &mut String, text: &str, before_each: &str) {
    for byte in text.bytes() {
        let _ = write!(sql, "{before_each}{byte:02x}");
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// ASCII is the same in every server encoding; other texts are converted from UTF-8.
pub(crate) fn push_for_postgres(sql: &mut String, text: &str) {
    if is_plain(text) {
        let _ = write!(sql, "'{text}'");
    } else if text.is_ascii() {
        sql.push_str("E'");
        push_hexadecimal(sql, text, "\\x");
        sql.push('\'');
    } else {
        // Without a backslash, which `standard_conforming_strings = off` would take for an escape.
        sql.push_str("convert_from(decode('");
        push_hexadecimal(sql, text, "");
        sql.push_str("', 'hex'), 'UTF8')");
    }
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
    if is_plain(text) {
        let _ = write!(sql, "_binary'{text}'");
    } else {
        sql.push_str("x'");
        push_hexadecimal(sql, text, "");
        sql.push('\'');
    }
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

    fn between<'a>(literal: &'a str, before: &str, after: &str) -> Option<&'a str> {
        let inner = literal.strip_prefix(before)?.strip_suffix(after)?;
        (!inner.contains('\'')).then_some(inner)
    }

    fn bytes_of(digits: &str) -> Vec<u8> {
        assert!(digits.len().is_multiple_of(2), "{digits}");
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits"))
            .collect()
    }

    /// The bytes that a literal stands for, and whether they stand there as they are.
    fn read(literal: &str) -> (Vec<u8>, bool) {
        if let Some(digits) = between(literal, "convert_from(decode('", "', 'hex'), 'UTF8')")
            .or_else(|| between(literal, "x'", "'"))
        {
            return (bytes_of(digits), false);
        }
        if let Some(escapes) = between(literal, "E'", "'") {
            assert_eq!(escapes.len(), 2 * escapes.replace("\\x", "").len());
            return (bytes_of(&escapes.replace("\\x", "")), false);
        }
        let plain = between(literal, "_binary'", "'")
            .or_else(|| between(literal, "'", "'"))
            .expect("a literal");
        (plain.as_bytes().to_vec(), true)
    }

    fn mean_the_text(text: &str) -> Result<(), TestCaseError> {
        for push in [push_for_postgres, push_for_mysql] {
            let literal = pushed(push, text);
            let (bytes, plain) = read(&literal);
            prop_assert_eq!(bytes, text.as_bytes(), "{}", &literal);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b" -_.:/@,+=".contains(&byte);
            prop_assert_eq!(plain, text.bytes().all(allowed), "{}", &literal);
        }
        Ok(())
    }

    fn is_read_back(text: &str, rest: &str) -> Result<(), TestCaseError> {
        let literal = pushed(push_for_postgres, text);
        let read = read_from_postgres(&format!("{literal}{rest}"));
        prop_assert_eq!(read.as_deref(), Some(text));
        for (end, _) in literal.char_indices() {
            let start = &literal[..end];
            prop_assert_eq!(read_from_postgres(start), None, "{}", start);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn literals_are_read_back(text in any::<String>(), rest in ", (true|false)\\).{0,5}") {
            is_read_back(&text, &rest)?;
        }

        #[test]
        fn literals_of_ascii_are_read_back(text in "[ -~]{0,12}", rest in ", (true|false)\\).{0,5}") {
            is_read_back(&text, &rest)?;
        }

        #[test]
        fn other_texts_are_not_literals(text in any::<String>()) {
            if !text.starts_with(['\'', 'E', 'c']) {
                prop_assert_eq!(read_from_postgres(&text), None);
            }
        }

        #[test]
        fn literals_mean_their_texts(text in any::<String>()) {
            mean_the_text(&text)?;
        }

        #[test]
        fn literals_of_ascii_mean_their_texts(text in "[ -~]{0,12}") {
            mean_the_text(&text)?;
        }
    }

    #[test]
    fn plain_ids_can_be_read() {
        let id = "BondBO:DK00/15966592, a-b_c.d+e=f@g";
        assert_eq!(pushed(push_for_postgres, id), format!("'{id}'"));
        assert_eq!(pushed(push_for_mysql, id), format!("_binary'{id}'"));
    }

    #[test]
    fn every_character_that_a_server_may_take_for_something_else_is_a_digit() {
        for c in "'\"`\\%;$?!#*&|<>~^()[]{}\n\r\t\0\u{1a}\u{7f}é漢🔒".chars() {
            let id = format!("a{c}b");
            for push in [push_for_postgres, push_for_mysql] {
                let literal = pushed(push, &id);
                let expected = (id.clone().into_bytes(), false);
                assert_eq!(read(&literal), expected, "{literal}");
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
