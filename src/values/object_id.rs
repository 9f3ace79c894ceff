//! The id of an object.

use std::fmt::{self, Write};

use sha2::{Digest, Sha256};

use crate::error::{InvalidName, NameKind};

/// The id of a business object that can be locked, which need not exist in any table.
///
/// A string of 1 to [`MAX_NAME_CHARS`](crate::limits::MAX_NAME_CHARS) (255) characters without NUL, checked when it is used
/// ([`Error::InvalidName`](crate::Error::InvalidName)). Ids are compared as bytes: `a`, `A`, `á` and `a ` are four objects,
/// and so are two Unicode encodings of one letter. On PostgreSQL the session's `client_encoding` must be UTF8, as Diesel sets it.
///
/// Share the entity's name as a constant: applications exclude each other only if they use the same text.
///
/// ```
/// use diesel_locks::ObjectId;
///
/// let bond = ObjectId::new("BondBO", "DK0015966592");
/// assert_eq!(bond.as_str(), "BondBO:DK0015966592");
/// assert_eq!(bond, ObjectId::from("BondBO:DK0015966592"));
/// assert!(ObjectId::from("").validate().unwrap_err().to_string().contains("1 to 255 characters"));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias("lock name", "lock_key", "key"))]
pub struct ObjectId {
    text: String,
    invalid: Option<InvalidName>,
}

impl ObjectId {
    /// Creates the id `entity:key`. A string of the same text is the same id. It is invalid if the entity contains `:`, or one part
    /// is empty, so that different pairs have different ids.
    pub fn new(entity: impl fmt::Display, key: impl fmt::Display) -> Self {
        let entity = entity.to_string();
        let key = key.to_string();
        let text = format!("{entity}:{key}");
        let invalid = if entity.contains(':') {
            Some(InvalidName::EntityWithColon { entity })
        } else if entity.is_empty() || key.is_empty() {
            Some(InvalidName::EmptyPart { id: text.clone() })
        } else {
            NameKind::ObjectId.check(&text).err()
        };
        Self { text, invalid }
    }

    /// Creates the id of a key of any length, such as a URL or a path: [`new`](Self::new) with a hash of 256 bits (SHA-256) in place of
    /// the key. The text of the id is the entity, `:sha256-` and 64 hexadecimal digits: lists and errors do not show the key.
    ///
    /// ```
    /// use diesel_locks::ObjectId;
    ///
    /// let page = ObjectId::hashed("Page", "https://example.org/");
    /// assert_eq!(page.as_str(), "Page:sha256-8198d1bac40a1033653a78e48800cefc9e6b974ff075c66e5548b5c1e145a2b0");
    /// let long = ObjectId::hashed("Page", "x".repeat(100_000));
    /// assert!(long.validate().is_ok() && long != page);
    /// ```
    pub fn hashed(entity: impl fmt::Display, key: impl fmt::Display) -> Self {
        let key = key.to_string();
        if key.is_empty() {
            return Self::new(entity, key);
        }
        let mut hash = String::from("sha256-");
        for byte in Sha256::digest(key) {
            let _ = write!(hash, "{byte:02x}");
        }
        Self::new(entity, hash)
    }

    /// Returns entity and key of an invalid pair, whose text another id may have.
    fn refused_pair(&self) -> Option<(&str, &str)> {
        match &self.invalid {
            Some(InvalidName::EntityWithColon { entity }) => {
                let key = self.text.get(entity.len() + 1..).unwrap_or_default();
                Some((entity, key))
            }
            // The entity has no ':'.
            Some(InvalidName::EmptyPart { .. }) => self.text.split_once(':'),
            _ => None,
        }
    }

    /// Returns the text, valid or not. That of an invalid pair may be the text of another id.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Checks whether the id can be used.
    ///
    /// # Errors
    ///
    /// The rule that the id breaks, with the value and the limit.
    pub fn validate(&self) -> Result<(), InvalidName> {
        self.invalid.clone().map_or(Ok(()), Err)
    }
}

/// Shows the text. An invalid pair of [`ObjectId::new`] has no text: it is shown as `ObjectId::new("a:b", "c")`.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refused_pair() {
            None => f.pad(&self.text),
            Some(_) => f.pad(&format!("{self:?}")),
        }
    }
}

/// Shows an expression that creates an equal id.
impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refused_pair() {
            None => write!(f, "ObjectId::from({:?})", self.text),
            Some((entity, key)) => write!(f, "ObjectId::new({entity:?}, {key:?})"),
        }
    }
}

impl From<String> for ObjectId {
    fn from(text: String) -> Self {
        let invalid = NameKind::ObjectId.check(&text).err();
        Self { text, invalid }
    }
}

impl From<&str> for ObjectId {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&String> for ObjectId {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<&ObjectId> for ObjectId {
    fn from(id: &ObjectId) -> Self {
        id.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts would be the same.
    #[test]
    fn a_refused_pair_is_not_shown_as_the_id_of_its_text() {
        for (entity, key) in [("a:b", "c"), ("", "b:c"), ("a", ""), ("", ""), ("a:", "")] {
            let pair = ObjectId::new(entity, key);
            let text = ObjectId::from(format!("{entity}:{key}"));
            assert!(pair.validate().is_err(), "{pair}");
            assert!(text.validate().is_ok(), "{text}");
            assert_ne!(pair, text);
            assert_ne!(pair.to_string(), text.to_string());
            assert_ne!(format!("{pair:?}"), format!("{text:?}"));
            let shown = format!("ObjectId::new({entity:?}, {key:?})");
            assert_eq!(pair.to_string(), shown);
            assert_eq!(format!("{pair:?}"), shown);
            assert_eq!(text.to_string(), text.as_str());
        }
    }

    /// Usable or not, if it is not a pair that is refused.
    #[test]
    fn debug_text_rebuilds_an_equal_id() {
        let long = "y".repeat(300);
        for id in [
            ObjectId::new("a", "b:c"),
            ObjectId::new("a", "\0"),
            ObjectId::new("a", &long),
            ObjectId::from("a:b:c"),
            ObjectId::from(""),
            ObjectId::from(&long),
        ] {
            assert_eq!(ObjectId::from(id.to_string()), id);
            assert_eq!(
                format!("{id:?}"),
                format!("ObjectId::from({:?})", id.as_str())
            );
        }
        assert_eq!(format!("{:>7}", ObjectId::from("a:b")), "    a:b");
    }
}
