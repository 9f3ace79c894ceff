//! The rows that the methods for operators list.

use crate::name::{self, NameKind};
use crate::{Error, limits};

/// Which semaphores, slots or sequences to list, and at most how many.
///
/// The argument of [`semaphores`](crate::InspectExt::semaphores),
/// [`all_held_slots`](crate::InspectExt::all_held_slots) and [`sequences`](crate::InspectExt::sequences). Without a
/// filter they list all, up to [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT) rows. Texts are compared as bytes: `a` does not
/// match `A`, and `%` and `_` mean themselves. The order is that of the bytes.
///
/// ```
/// use diesel_locks::ListOptions;
///
/// let passes = ListOptions::new().name("pass").key_prefix("47").limit(20);
/// let next_page = passes.clone().after_key("pass", "4712");
/// # assert_ne!(passes, next_page);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it lists nothing until it is given to a connection"]
pub struct ListOptions {
    name: Option<String>,
    name_prefix: String,
    key_prefix: String,
    after: Option<(String, Option<String>)>,
    limit: u32,
}

impl ListOptions {
    /// The limit if none is set.
    pub const DEFAULT_LIMIT: u32 = 100;

    /// The largest [`limit`](Self::limit).
    pub const MAX_LIMIT: u32 = limits::MAX_LISTED;

    /// Creates options that select everything, up to [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT) rows.
    pub const fn new() -> Self {
        Self {
            name: None,
            name_prefix: String::new(),
            key_prefix: String::new(),
            after: None,
            limit: Self::DEFAULT_LIMIT,
        }
    }

    /// Selects the semaphore of this name, or the sequences of this name.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.name = Some(name.as_ref().to_owned());
        self
    }

    /// Selects semaphores and sequences whose name begins with this text.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.name_prefix = prefix.into();
        self
    }

    /// Selects sequences whose key begins with this text. Semaphores have no key: the filter does not apply to them.
    ///
    /// Together with [`name`](Self::name) an index finds them. Otherwise all sequences that the other filters select are
    /// read.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Begins the list after this name, the last one of the previous page. Replaces [`after_key`](Self::after_key).
    pub fn after(mut self, name: impl AsRef<str>) -> Self {
        self.after = Some((name.as_ref().to_owned(), None));
        self
    }

    /// Begins the list after the sequence of this name and key, the last one of the previous page. The key of a sequence without
    /// one is the empty text. Replaces [`after`](Self::after).
    ///
    /// For semaphores it has the same effect as `after(name)`.
    pub fn after_key(mut self, name: impl AsRef<str>, key: impl Into<String>) -> Self {
        self.after = Some((name.as_ref().to_owned(), Some(key.into())));
        self
    }

    /// Sets the largest number of rows, 1 to [`MAX_LIMIT`](Self::MAX_LIMIT).
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Checks the options, whose names are of this kind.
    pub(crate) fn validate(&self, kind: NameKind) -> Result<(), Error> {
        validate_limit(self.limit)?;
        if let Some(name) = &self.name {
            name::validate(kind, name)?;
        }
        let (after, after_key) = match &self.after {
            Some((name, key)) => (name.as_str(), key.as_deref().unwrap_or_default()),
            None => ("", ""),
        };
        for (kind, text) in [
            (kind, self.name_prefix.as_str()),
            (kind, after),
            (NameKind::SequenceKey, &self.key_prefix),
            (NameKind::SequenceKey, after_key),
        ] {
            if !text.is_empty() {
                name::validate(kind, text)?;
            }
        }
        Ok(())
    }

    fn names(&self) -> TextRange {
        TextRange {
            equal: self.name.clone(),
            ..TextRange::of_prefix(&self.name_prefix)
        }
    }

    /// What to list of what has no keys.
    pub(crate) fn by_name(&self) -> ListRequest {
        let mut names = self.names();
        names.above = self.after.as_ref().map(|(name, _)| name.clone());
        ListRequest {
            names,
            keys: TextRange::default(),
            limit: self.limit.into(),
        }
    }

    /// What to list of what has keys: one after the other, until the limit is reached. Two requests select a range of the
    /// index each; one with OR would read it from its start.
    pub(crate) fn by_name_and_key(&self) -> Vec<ListRequest> {
        let keys = TextRange::of_prefix(&self.key_prefix);
        let mut requests = Vec::new();
        if let Some((name, Some(key))) = &self.after
            && self.selects(name)
        {
            let name = TextRange {
                equal: Some(name.clone()),
                ..TextRange::default()
            };
            let keys = TextRange {
                above: Some(key.clone()),
                ..keys.clone()
            };
            requests.push(ListRequest {
                names: name,
                keys,
                limit: self.limit.into(),
            });
        }
        requests.push(ListRequest {
            keys,
            ..self.by_name()
        });
        requests
    }

    fn selects(&self, name: &str) -> bool {
        self.name.as_ref().is_none_or(|own| own == name) && name.starts_with(&self.name_prefix)
    }
}

/// Checks the largest number of rows.
pub(super) fn validate_limit(limit: u32) -> Result<(), Error> {
    if limit == 0 || limit > ListOptions::MAX_LIMIT {
        return Err(Error::InvalidLimit { requested: limit });
    }
    Ok(())
}

impl Default for ListOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// What an engine lists, by name and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    pub(crate) names: TextRange,
    pub(crate) keys: TextRange,
    pub(crate) limit: i64,
}

/// Texts in the order of their bytes: those that meet all conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextRange {
    pub(crate) equal: Option<String>,
    /// Not less than this.
    pub(crate) from: Option<String>,
    /// Less than this.
    pub(crate) below: Option<String>,
    /// Greater than this.
    pub(crate) above: Option<String>,
}

impl TextRange {
    /// Not LIKE, which ignores case on SQLite and has characters to escape.
    fn of_prefix(prefix: &str) -> Self {
        if prefix.is_empty() {
            return Self::default();
        }
        Self {
            from: Some(prefix.to_owned()),
            below: end_of_prefix(prefix),
            ..Self::default()
        }
    }
}

/// The least text that is greater than all that begin with the prefix; `None` if there is none. The order of UTF-8's
/// bytes is that of the code points.
fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        let next = match last {
            char::MAX => continue,
            // The code points between are not characters.
            '\u{d7ff}' => '\u{e000}',
            last => char::from_u32(u32::from(last) + 1)?,
        };
        end.push(next);
        return Some(end);
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_in(range: &TextRange, text: &str) -> bool {
        range.equal.as_ref().is_none_or(|equal| text == equal)
            && range.from.as_ref().is_none_or(|from| text >= from.as_str())
            && range
                .below
                .as_ref()
                .is_none_or(|below| text < below.as_str())
            && range
                .above
                .as_ref()
                .is_none_or(|above| text > above.as_str())
    }

    proptest! {
        #[test]
        fn prefix_selects_texts_that_begin_with_it(prefix in any::<String>(), rest in any::<String>(), other in any::<String>()) {
            let range = TextRange::of_prefix(&prefix);
            let longer = format!("{prefix}{rest}");
            prop_assert!(is_in(&range, &longer));
            prop_assert_eq!(is_in(&range, &other), other.starts_with(&prefix));
        }
    }

    #[test]
    fn prefix_of_last_characters_has_an_end() {
        assert_eq!(end_of_prefix("a"), Some("b".to_owned()));
        assert_eq!(end_of_prefix("\u{d7ff}"), Some("\u{e000}".to_owned()));
        assert_eq!(end_of_prefix("a\u{10ffff}"), Some("b".to_owned()));
        assert_eq!(end_of_prefix("\u{10ffff}"), None);
    }

    #[test]
    fn page_of_another_name_is_not_requested_by_key() {
        let passes = ListOptions::new().name("pass");
        assert_eq!(
            passes
                .clone()
                .after_key("pass", "1")
                .by_name_and_key()
                .len(),
            2
        );
        assert_eq!(passes.after_key("invoice", "1").by_name_and_key().len(), 1);
        let invoices = ListOptions::new().name_prefix("inv");
        assert_eq!(
            invoices
                .clone()
                .after_key("invoice", "")
                .by_name_and_key()
                .len(),
            2
        );
        assert_eq!(invoices.after("invoice").by_name_and_key().len(), 1);
    }
}
