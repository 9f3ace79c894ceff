//! The output of a program with `--json`, and its exit code.

use std::process::{Command, Output};

use serde_json::Value;

/// A run that has ended.
#[derive(Debug)]
pub struct Run {
    /// The last line of standard output.
    pub outcome: Value,
    /// What the program wrote to standard error.
    pub messages: String,
    /// The exit code.
    pub code: Option<i32>,
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
    /// The number in a field of the outcome.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn number(&self, field: &str) -> u64 {
        self.outcome[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {field} in {self:?}"))
    }

    /// Asserts that the exit code is 0, and that these fields are 0.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn assert_none_of(&self, wrong: &[&str]) {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.assert_zero(wrong);
    }

    /// Asserts that these fields are 0.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn assert_zero(&self, fields: &[&str]) {
        for field in fields {
            assert_eq!(self.number(field), 0, "{field}: {self:?}");
        }
    }

    /// Asserts that these fields have these numbers.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn assert_numbers(&self, expected: &[(&str, u64)]) {
        for (field, number) in expected {
            assert_eq!(self.number(field), *number, "{field}: {self:?}");
        }
    }
}

/// Asserts that the program refuses each of the arguments, and names the reason.
///
/// # Panics
///
/// If it accepts one.
pub fn assert_refused<const N: usize>(program: impl Fn() -> Command, cases: &[([&str; N], &str)]) {
    for (arguments, reason) in cases {
        let output = program().args(arguments).output();
        let output = output.expect("the program starts");
        assert!(!output.status.success(), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(reason), "{message}");
    }
}
