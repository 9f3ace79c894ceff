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
    patterns.iter().any(|pattern| matches(pattern, message))
}

/// Whether some texts can stand for each `%s` of the pattern.
fn matches(pattern: &str, message: &str) -> bool {
    let Some((before, after)) = pattern.split_once("%s") else {
        return pattern == message;
    };
    let Some(rest) = message.strip_prefix(before) else {
        return false;
    };
    match after.rsplit_once("%s") {
        None => rest.ends_with(after),
        Some((between, end)) => rest
            .strip_suffix(end)
            .is_some_and(|names| names.contains(between)),
    }
}
