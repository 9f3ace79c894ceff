//! Where the histories of a run are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use tempfile::TempDir;

/// Where the histories of a run are.
pub(crate) enum Directory {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Directory {
    /// The given directory, which must not exist yet, or a temporary one, which is removed at the end.
    pub(crate) fn create(given: Option<&Path>) -> Result<Self> {
        if let Some(path) = given {
            fs::create_dir(path).with_context(|| path.display().to_string())?;
            return Ok(Self::Given(path.canonicalize()?));
        }
        let mut temporary = tempfile::Builder::new();
        Ok(Self::Temporary(
            temporary.prefix("torture-history").tempdir()?,
        ))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }

    /// Writes a file of JSON.
    pub(crate) fn write(&self, name: &str, value: &impl Serialize) -> Result<()> {
        Ok(fs::write(
            self.path().join(name),
            serde_json::to_vec(value)?,
        )?)
    }

    /// Leaves it where it is.
    pub(crate) fn keep(self) -> PathBuf {
        match self {
            Self::Given(path) => path,
            Self::Temporary(directory) => directory.keep(),
        }
    }
}
