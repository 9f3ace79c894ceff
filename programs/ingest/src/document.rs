//! A document: its id, its version, and its text.

use anyhow::{Context, Result};
use chrono::NaiveDateTime;
use diesel::Queryable;
use diesel_locks::ObjectId;
use program_support::document::{first_children, timestamp};
use sha2::{Digest as _, Sha256};

use crate::source::Elements;

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
        let [id, at] = first_children(&body, [&elements.id, &elements.timestamp])?;
        ObjectId::from(&id).validate()?;
        let timestamp =
            timestamp(&at).with_context(|| format!("<{}> can't be used", elements.timestamp))?;
        let digest = Sha256::digest(&body).to_vec();
        Ok(Self {
            id,
            version: Version { timestamp, digest },
            body,
        })
    }
}
