//! The outcome of a run: its figures for people, one line of JSON for programs.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
pub use serde_json::{Value, json};

use crate::terminal::{self, BAD, styled};

/// How a program prints its outcome.
#[derive(Args)]
pub struct OutputArguments {
    /// Print the outcome as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Counts errors, and prints the first of them to standard error. There may be thousands.
#[derive(Debug, Default)]
pub struct Errors(pub usize);

impl Errors {
    /// Counts an error. Prints it unless many were printed before.
    pub fn add(&mut self, subject: &str, text: &str) {
        self.0 += 1;
        if self.0 <= 20 {
            terminal::print_to_stderr(format!("{} {subject}: {text}", styled(BAD, "error:")));
        }
    }
}

/// The exit code that shells report of a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// How a run ended: the exit code of the program, and a text.
#[derive(Clone, Copy, Debug)]
pub struct Verdict(pub u8, pub &'static str);

/// Prints the outcome, an object: one line of JSON, or a line for each figure, and the verdict last. Returns the exit
/// code.
pub fn print(outcome: &Value, verdict: Verdict, json: bool) -> ExitCode {
    let Verdict(code, text) = verdict;
    if json {
        println!("{outcome}");
    } else {
        let figures = outcome.as_object().into_iter().flatten();
        let figures: Vec<(String, String)> = figures
            .map(|(name, value)| (name.replace('_', " "), text_of(value)))
            .chain([("verdict".to_owned(), text.to_owned())])
            .collect();
        let width = figures.iter().map(|(name, _)| name.len()).max();
        let width = width.unwrap_or(0);
        for (name, value) in figures {
            println!(" {name:width$}  {value}");
        }
    }
    ExitCode::from(code)
}

/// A text without its quotes, anything else as in JSON.
fn text_of(value: &Value) -> String {
    let text = value.as_str().map(str::to_owned);
    text.unwrap_or_else(|| value.to_string())
}

/// Rounds to thousandths.
pub fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// Milliseconds, in thousandths.
pub fn milliseconds(time: Duration) -> f64 {
    thousandths(time.as_secs_f64() * 1000.0)
}

/// How many in a second, in thousandths; 0 if no time has passed.
pub fn per_second(count: usize, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    thousandths(f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / time.as_secs_f64())
}
