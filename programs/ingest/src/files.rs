//! Documents in files.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::source::Elements;

/// The `*.xml` files of a directory.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Files {
    paths: Vec<String>,
    /// The number of other files in the directory, which are ignored.
    pub(crate) others: usize,
    pub(crate) elements: Elements,
}

impl Files {
    pub(crate) fn of(directory: &Path, elements: Elements) -> Result<Self> {
        let unreadable = || format!("can't read the directory {}", directory.display());
        let mut paths = Vec::new();
        let mut others = 0;
        for entry in fs::read_dir(directory).with_context(unreadable)? {
            let path = entry.with_context(unreadable)?.path();
            if path.is_dir() {
                continue;
            }
            let extension = path.extension().unwrap_or_default();
            if extension.eq_ignore_ascii_case("xml") {
                // A path that is not UTF-8 will not be found, so the document is rejected.
                paths.push(path.to_string_lossy().into_owned());
            } else {
                others += 1;
            }
        }
        ensure!(
            !paths.is_empty(),
            "no *.xml files in {}",
            directory.display()
        );
        paths.sort();
        Ok(Self {
            paths,
            others,
            elements,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn name(&self, index: usize) -> String {
        let path = &self.paths[index];
        let name = Path::new(path).file_name().and_then(OsStr::to_str);
        name.unwrap_or(path).to_owned()
    }

    pub(crate) fn read(&self, index: usize) -> Result<Vec<u8>> {
        fs::read(&self.paths[index]).context("can't read the file")
    }
}
