//! The name of an instance: the holder of its slots.

use anyhow::{Context, Result};
use diesel_locks::limits::MAX_NAME_CHARS;
use rustix::system::uname;

/// The name of this instance, if it was given none: its host and its process.
pub(crate) fn default() -> Result<String> {
    let host = uname();
    let name = format!(
        "{}-{}",
        host.nodename().to_string_lossy(),
        std::process::id()
    );
    usable(&name).map_err(anyhow::Error::msg).with_context(|| {
        format!("the host's name makes no name of an instance, {name:?}: set --name")
    })
}

/// A name that the page and a log show as it is.
pub(crate) fn usable(name: &str) -> Result<String, String> {
    if name.trim().is_empty() {
        return Err("a name of a holder is not empty".to_owned());
    }
    if name.chars().any(char::is_control) {
        return Err(format!(
            "the name {name:?} of a holder has a control character"
        ));
    }
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(format!(
            "a name of a holder has at most {MAX_NAME_CHARS} characters"
        ));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{default, usable};

    #[test]
    fn default_names_the_process() {
        let name = default().expect("a name");
        assert!(
            name.ends_with(&format!("-{}", std::process::id())),
            "{name}"
        );
    }

    #[test]
    fn names_are_shown_as_they_are() {
        assert_eq!(usable("node 1 Ä").as_deref(), Ok("node 1 Ä"));
        assert!(usable(&"a".repeat(255)).is_ok());
        for name in [
            "",
            " ",
            "a\nb",
            "a\u{1b}[31m",
            "a\0",
            "a\u{85}",
            &"a".repeat(256),
        ] {
            assert!(usable(name).is_err(), "{name:?}");
        }
    }
}
