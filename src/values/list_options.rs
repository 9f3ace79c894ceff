//! The rows that the methods for operators list.

use crate::Error;
use crate::error::NameKind;
use crate::error::limits;

/// Which [semaphores](crate::InspectExt::semaphores), [held slots](crate::InspectExt::held_slots) or
/// [sequences](crate::InspectExt::sequences) to list, and at most how many. Texts are compared and ordered as bytes: `a` does not
/// match `A`, and `%` and `_` mean themselves.
///
/// ```
/// use diesel_locks::ListOptions;
///
/// let workers = ListOptions::new().name("workers");
/// let passes = ListOptions::new().name("pass").key_prefix("47").limit(20);
/// # assert_ne!(workers, passes);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "it lists nothing until it is given to a connection"]
pub struct ListOptions {
    name: Option<String>,
    name_prefix: String,
    key_prefix: String,
    limit: Option<u32>,
}

impl ListOptions {
    /// Creates options that select everything.
    pub const fn new() -> Self {
        Self {
            name: None,
            name_prefix: String::new(),
            key_prefix: String::new(),
            limit: None,
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

    /// Selects sequences whose key begins with this text: with [`name`](Self::name) by an index, otherwise by reading all that the
    /// other filters select. Has no effect on semaphores, which have no keys.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Sets the largest number of rows, 1 to [`MAX_LISTED`](crate::limits::MAX_LISTED). The default is 100; all for the held slots
    /// of one semaphore ([`name`](Self::name)).
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// What to list, by names of this kind.
    pub(crate) fn request(&self, kind: NameKind) -> Result<ListRequest, Error> {
        let limit = self.limit.unwrap_or(limits::DEFAULT_LISTED);
        validate_limit(limit)?;
        if let Some(name) = &self.name {
            kind.check(name)?;
        }
        for (kind, text) in [
            (kind, &self.name_prefix),
            (NameKind::SequenceKey, &self.key_prefix),
        ] {
            if !text.is_empty() {
                kind.check(text)?;
            }
        }
        Ok(ListRequest {
            names: TextRange {
                equal: self.name.clone(),
                ..TextRange::of_prefix(&self.name_prefix)
            },
            keys: TextRange::of_prefix(&self.key_prefix),
            limit: limit.into(),
        })
    }

    /// What to list of held slots: all of one semaphore, if no limit is set.
    pub(crate) fn held_request(&self) -> Result<ListRequest, Error> {
        let mut request = self.request(NameKind::Semaphore)?;
        if self.name.is_some() && self.limit.is_none() {
            request.limit = limits::MAX_PERMITS.into();
        }
        Ok(request)
    }
}

/// Checks the largest number of rows.
pub(crate) fn validate_limit(limit: u32) -> Result<(), Error> {
    if limit == 0 || limit > limits::MAX_LISTED {
        return Err(Error::InvalidLimit { requested: limit });
    }
    Ok(())
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
            equal: None,
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
        range.from.as_ref().is_none_or(|from| text >= from.as_str())
            && range
                .below
                .as_ref()
                .is_none_or(|below| text < below.as_str())
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
}
