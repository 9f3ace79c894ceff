//! The id of a locked object.

use std::fmt;

use crate::error::InvalidObjectId;

/// The id of a business object that can be locked.
///
/// An id is a string of 1 to [`MAX_ID_CHARS`](crate::limits::MAX_ID_CHARS) (255) characters without NUL. The object need not exist
/// in any table. Ids are compared as bytes: `a`, `A`, `á` and `a ` are four objects, and so are two Unicode encodings of one letter.
/// On PostgreSQL the session's `client_encoding` must be UTF8, as Diesel sets it.
///
/// [`ObjectId::new`] joins the name of an entity and the object's key. A string with the same text is the same id. Share the
/// entity's name as a constant: applications exclude each other only if they use the same text.
///
/// An id is checked when it is used ([`Error::InvalidObjectId`](crate::Error::InvalidObjectId)), or by
/// [`validate`](ObjectId::validate).
///
/// ```
/// use diesel_locks::ObjectId;
///
/// let bond = ObjectId::new("BondBO", "DK0015966592");
/// assert_eq!(bond.to_string(), "BondBO:DK0015966592");
/// assert_eq!(bond, ObjectId::from("BondBO:DK0015966592"));
/// assert_eq!(ObjectId::new("Order", 4711).to_string(), "Order:4711");
/// assert_eq!(format!("{bond:?}"), r#"ObjectId::from("BondBO:DK0015966592")"#);
///
/// let empty = ObjectId::from("");
/// assert!(empty.validate().unwrap_err().to_string().contains("1 to 255 characters"));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias("lock name", "lock_key", "key"))]
pub struct ObjectId {
    text: String,
    invalid: Option<InvalidObjectId>,
}

impl ObjectId {
    /// Creates the id `entity:key`.
    ///
    /// The id is invalid if the entity contains `:`, or one part is empty, so that different pairs have different ids.
    pub fn new(entity: impl fmt::Display, key: impl fmt::Display) -> Self {
        let entity = entity.to_string();
        let key = key.to_string();
        let text = format!("{entity}:{key}");
        let invalid = if entity.contains(':') {
            Some(InvalidObjectId::EntityWithColon { entity })
        } else if entity.is_empty() || key.is_empty() {
            Some(InvalidObjectId::EmptyPart { id: text.clone() })
        } else {
            InvalidObjectId::check(&text).err()
        };
        Self { text, invalid }
    }

    /// Returns entity and key of an invalid pair, whose text another id may have.
    fn refused_pair(&self) -> Option<(&str, &str)> {
        match &self.invalid {
            Some(InvalidObjectId::EntityWithColon { entity }) => {
                let key = self.text.get(entity.len() + 1..).unwrap_or_default();
                Some((entity, key))
            }
            // The entity has no ':'.
            Some(InvalidObjectId::EmptyPart { .. }) => self.text.split_once(':'),
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
    pub fn validate(&self) -> Result<(), InvalidObjectId> {
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
        let invalid = InvalidObjectId::check(&text).err();
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
