//! Puts values in the place of the placeholders of a message.

/// What stands for the placeholders of a message.
pub(crate) struct Filling {
    /// In the place of texts; the last one also in the place of all later texts.
    pub(crate) texts: &'static [&'static str],
    /// In the place of the last text of a message.
    pub(crate) last: &'static str,
    /// In the place of numbers.
    pub(crate) number: &'static str,
}

/// A placeholder of C's `printf`, or of MySQL's variant of it.
struct Placeholder {
    /// Its position, from 1, if the message gives one: `%2$s`.
    position: Option<usize>,
    /// `s`, or another letter for a number.
    conversion: &'static str,
}

impl Placeholder {
    fn is_text(&self) -> bool {
        matches!(self.conversion, "s" | "T" | "sT" | "sQ" | "m")
    }

    /// The number and the text of an error of the system.
    fn is_system_error(&self) -> bool {
        self.conversion == "M"
    }
}

/// The conversions of the servers' messages. In MariaDB a text may be quoted or cut off: `sQ`, `sT`, `T`.
const CONVERSIONS: [&str; 18] = [
    "sT", "sQ", "iE", "s", "T", "d", "u", "i", "o", "x", "X", "M", "m", "c", "f", "g", "p", "e",
];

/// Splits what follows a `%` into the placeholder and the rest of the message. `None` if it is none.
fn placeholder(rest: &str) -> Option<(Placeholder, &str)> {
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (position, rest) = match rest[digits..].strip_prefix('$') {
        Some(after) => (rest[..digits].parse().ok(), after),
        None => (None, rest),
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "-+#.*`".contains(c));
    let rest = rest.trim_start_matches(['l', 'z', 'h']);
    let conversion = CONVERSIONS
        .into_iter()
        .find(|conversion| rest.starts_with(conversion))?;
    Some((
        Placeholder {
            position,
            conversion,
        },
        &rest[conversion.len()..],
    ))
}

/// Splits a message at its placeholders.
fn parts(format: &str) -> (Vec<(String, Placeholder)>, String) {
    let mut parts = Vec::new();
    let (mut before, mut rest) = (String::new(), format);
    while let Some((text, after)) = rest.split_once('%') {
        before.push_str(text);
        if let Some((found, after)) = placeholder(after) {
            parts.push((std::mem::take(&mut before), found));
            rest = after;
        } else {
            before.push('%');
            rest = after.strip_prefix('%').unwrap_or(after);
        }
    }
    before.push_str(rest);
    (parts, before)
}

/// The message with values. The arguments are those of `english`, which a translation may have in another order.
pub(crate) fn fill(format: &str, english: &str, filling: &Filling) -> String {
    let (arguments, _) = parts(english);
    let texts = arguments
        .iter()
        .filter(|(_, argument)| argument.is_text())
        .count();
    let values: Vec<String> = arguments
        .iter()
        .enumerate()
        .map(|(at, (_, argument))| {
            if argument.is_system_error() {
                return format!("{} \"Lock deadlock; Retry transaction\"", filling.number);
            }
            if !argument.is_text() {
                return filling.number.to_owned();
            }
            let before = arguments[..at]
                .iter()
                .filter(|(_, argument)| argument.is_text())
                .count();
            if before + 1 == texts {
                return filling.last.to_owned();
            }
            filling.texts[before.min(filling.texts.len() - 1)].to_owned()
        })
        .collect();
    let (found, end) = parts(format);
    let mut message = String::new();
    for (at, (before, placeholder)) in found.iter().enumerate() {
        let position = placeholder.position.map_or(at, |position| position - 1);
        message.push_str(before);
        // A translation may have more placeholders than the message, by mistake.
        message.push_str(values.get(position).map_or("?", String::as_str));
    }
    message.push_str(&end);
    message
}

#[test]
fn placeholders_may_have_positions() {
    let filling = Filling {
        texts: &["first", "second"],
        last: "last",
        number: "7",
    };
    let english = "%-.100T of '%s' is %d, %lu and %`s%%";
    assert_eq!(
        fill(english, english, &filling),
        "first of 'second' is 7, 7 and last%"
    );
    assert_eq!(fill("%2$s, %1$s", "%s, %s", &filling), "last, first");
    assert_eq!(
        fill("Got error %M", "Got error %M", &filling),
        "Got error 7 \"Lock deadlock; Retry transaction\""
    );
}
