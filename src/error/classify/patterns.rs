//! Compares messages with patterns, in which `%s` stands for any text.

/// Returns the text that stands for `%s`: empty for a pattern without it, `None` if the message is another one.
pub(super) fn matched<'a>(pattern: &str, message: &'a str) -> Option<&'a str> {
    match pattern.split_once("%s") {
        None => (pattern == message).then_some(""),
        Some((before, after)) => message.strip_prefix(before)?.strip_suffix(after),
    }
}

/// Returns whether the message matches one of the patterns.
pub(super) fn is_any_of(patterns: &[&str], message: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| matched(pattern, message).is_some())
}
