//! The output of a program with `--json`, and its exit code.

use std::process::Output;

use serde_json::Value;

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Run {
    /// The last line.
    pub(crate) outcome: Value,
    /// The text on standard error.
    #[allow(dead_code, reason = "shown by Debug, and read in some programs' tests")]
    pub(crate) messages: String,
    pub(crate) code: Option<i32>,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = printed.lines().last().unwrap_or_default();
        Self {
            outcome: serde_json::from_str(last)
                .unwrap_or_else(|error| panic!("{error}: {printed}{messages}")),
            messages,
            code: output.status.code(),
        }
    }
}

impl Run {
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.outcome[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {field} in {self:?}"))
    }

    /// Asserts that the run succeeded, and that these counts are 0.
    pub(crate) fn assert_none_of(&self, wrong: &[&str]) {
        assert_eq!(self.code, Some(0), "{self:?}");
        for field in wrong {
            assert_eq!(self.number(field), 0, "{field}: {self:?}");
        }
    }
}
