//! The messages of a server in all languages: a file with a section per meaning.

/// The patterns of a file, each with the section in which it stands.
pub(crate) struct Messages(Vec<(&'static str, String)>);

impl Messages {
    /// Reads a file: the name of a section in brackets, then a pattern per line. A line that begins with `#` is a comment.
    pub(crate) fn read(file: &'static str) -> Self {
        let mut section = "";
        let mut patterns = Vec::new();
        let is_read = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in file.lines().filter(is_read) {
            let name = line
                .strip_prefix('[')
                .and_then(|line| line.strip_suffix(']'));
            match name {
                Some(name) => section = name,
                None => patterns.push((section, line.replace("\\n", "\n"))),
            }
        }
        Self(patterns)
    }

    /// All sections and patterns.
    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0
            .iter()
            .map(|(section, pattern)| (*section, pattern.as_str()))
    }

    /// The patterns of a section.
    #[cfg(feature = "_postgres")]
    pub(crate) fn of(&self, section: &str) -> impl Iterator<Item = &str> {
        let of_section = self.0.iter().filter(move |(name, _)| *name == section);
        of_section.map(|(_, pattern)| pattern.as_str())
    }

    /// The sections of all patterns that match the message, each with the text that stands for `%s`.
    pub(crate) fn matching<'a>(
        &self,
        message: &'a str,
    ) -> impl Iterator<Item = (&'static str, &'a str)> {
        let matching = move |(section, pattern): &(&'static str, String)| {
            matched(pattern, message).map(|text| (*section, text))
        };
        self.0.iter().filter_map(matching)
    }
}

/// The text that stands for `%s`: empty for a pattern without it, from the first to the last of two, `None` if the message is
/// another one.
fn matched<'a>(pattern: &str, message: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("%s") else {
        return (pattern == message).then_some("");
    };
    let rest = message.strip_prefix(before)?;
    match after.rsplit_once("%s") {
        None => rest.strip_suffix(after),
        Some((between, end)) => rest
            .strip_suffix(end)
            .filter(|texts| texts.contains(between)),
    }
}
