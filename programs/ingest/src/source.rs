//! The source of the documents.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::files::Files;
use crate::generator::{self, Generator};

/// The documents of a run, by index.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Source {
    Generated(Generator),
    Files(Files),
}

/// The names, as written in the files, of the elements with a document's id and timestamp.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Elements {
    pub(crate) id: String,
    pub(crate) timestamp: String,
}

impl Source {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Generated(generator) => generator.len(),
            Self::Files(files) => files.len(),
        }
    }

    pub(crate) fn is_generated(&self) -> bool {
        matches!(self, Self::Generated(_))
    }

    /// The name of the document in messages.
    pub(crate) fn name(&self, index: usize) -> String {
        match self {
            Self::Generated(_) => format!("generated document {index}"),
            Self::Files(files) => files.name(index),
        }
    }

    pub(crate) fn read(&self, index: usize) -> Result<Vec<u8>> {
        match self {
            Self::Generated(generator) => Ok(generator.document(index).xml.into_bytes()),
            Self::Files(files) => files.read(index),
        }
    }

    pub(crate) fn elements(&self) -> Elements {
        match self {
            Self::Generated(_) => generator::elements(),
            Self::Files(files) => files.elements.clone(),
        }
    }
}
