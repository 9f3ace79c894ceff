//! A clock of a server or a program that can be set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run_dir::RunDir;

/// A clock that can be set, by way of libfaketime.
pub(crate) struct Clock {
    pub(crate) library: PathBuf,
    pub(crate) file: PathBuf,
}

impl Clock {
    pub(crate) fn new(run_dir: &RunDir, library: &Path) -> Result<Self> {
        let file = run_dir.path("clock");
        fs::write(&file, "+0s\n").with_context(|| file.display().to_string())?;
        Ok(Self {
            library: library.to_owned(),
            file,
        })
    }

    /// Gives the command's program, and what that starts, this clock.
    pub(crate) fn set_variables(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            // The seconds for which the server uses what it has read. Without it, the server reads at every call.
            .env("FAKETIME_CACHE_DURATION", "1")
            // Waits are measured by the monotonic clock.
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}
