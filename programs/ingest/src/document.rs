//! A document: its id, its version, and its text.

use anyhow::{Context, Result};
use chrono::NaiveDateTime;
use diesel::Queryable;
use diesel_locks::ObjectId;
use sha2::{Digest as _, Sha256};

use crate::source::Elements;
use crate::{encoding, timestamp, xml};

/// The SHA-256 of a document.
pub(crate) type Digest = Vec<u8>;

/// Determines which of two documents with the same id is newer. The order is total: by timestamp, then by digest, so
/// that the result does not depend on the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Queryable)]
pub(crate) struct Version {
    pub(crate) timestamp: NaiveDateTime,
    pub(crate) digest: Digest,
}

#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) id: String,
    pub(crate) version: Version,
    pub(crate) body: Vec<u8>,
}

impl Document {
    /// Reads a document. An error is the reason to reject it.
    pub(crate) fn read(body: Vec<u8>, elements: &Elements) -> Result<Self> {
        let text = encoding::decode(&body)?;
        let [id, timestamp] = xml::first_children(&text, [&elements.id, &elements.timestamp])?;
        ObjectId::from(&id).validate()?;
        let timestamp = timestamp::parse(&timestamp)
            .with_context(|| format!("<{}> can't be used", elements.timestamp))?;
        let digest = Sha256::digest(&body).to_vec();
        Ok(Self {
            id,
            version: Version { timestamp, digest },
            body,
        })
    }
}

#[cfg(test)]
mod table;

#[cfg(test)]
mod tests {
    use super::table::{ILL_FORMED, WELL_FORMED};
    use super::*;

    fn read_bytes(body: &[u8]) -> Result<Document> {
        let elements = Elements {
            id: "id".to_owned(),
            timestamp: "at".to_owned(),
        };
        Document::read(body.to_vec(), &elements)
    }

    fn read(id: &str, timestamp: &str) -> Result<Document> {
        read_bytes(format!("<r><id>{id}</id><at>{timestamp}</at></r>").as_bytes())
    }

    #[test]
    fn accepts_well_formed_documents_and_no_others() {
        for (kind, body, id) in WELL_FORMED {
            match read_bytes(body) {
                Ok(document) => assert_eq!(document.id, *id, "{kind}"),
                Err(error) => panic!("{kind}: {error:#}"),
            }
        }
        let accepted: Vec<_> = ILL_FORMED
            .iter()
            .filter(|(_, body)| read_bytes(body).is_ok())
            .map(|(kind, _)| kind)
            .collect();
        assert!(accepted.is_empty(), "{accepted:#?}");
    }

    #[test]
    fn takes_ids_as_they_stand() {
        for id in [
            "061828591|01/10/2020|0|1.1|0|1",
            "018304 / 28865",
            " a",
            "á",
            &"ß".repeat(255),
        ] {
            assert_eq!(read(id, "2020-10-01").unwrap().id, id);
        }
    }

    #[test]
    fn rejects_ids_that_can_not_be_locked() {
        let empty = read("", "2020-10-01").unwrap_err();
        assert!(empty.to_string().contains("1 to 255 characters"), "{empty}");
        let long = read(&"x".repeat(256), "2020-10-01").unwrap_err();
        assert!(long.to_string().contains("this one has 256"), "{long}");
    }

    #[test]
    fn rejects_unusable_timestamps_with_the_name_of_the_element() {
        let error = read("a", "soon").unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "<at> can't be used: \"soon\" is neither an xs:date nor an xs:dateTime"
        );
    }

    #[test]
    fn newer_is_the_later_timestamp_then_the_greater_digest() {
        let version = |day: &str, digest: u8| Version {
            timestamp: timestamp::parse(day).unwrap(),
            digest: vec![digest; 32],
        };
        assert!(version("2020-10-02", 1) > version("2020-10-01", 9));
        assert!(version("2020-10-01", 9) > version("2020-10-01", 1));
        assert_eq!(version("2020-10-01", 1), version("2020-10-01", 1));
    }
}
