//! The outcome of a run: its figures for people, one line of JSON for programs.

use anstyle::Style;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::terminal::{self, BAD, FAINT, GOOD, WARNING, styled};

/// How a program prints its outcome.
#[derive(Args)]
pub struct OutputArguments {
    /// Print the outcome as one line of JSON, and no progress
    #[arg(long)]
    pub json: bool,
}

/// The exit code that shells report of a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// Whether a run ended as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The result is right.
    Right(&'static str),
    /// The result is right as far as it goes, or wrong as expected.
    Doubtful(&'static str),
    /// The result is wrong.
    Wrong(&'static str),
}

impl Verdict {
    fn text(self) -> &'static str {
        match self {
            Self::Right(text) | Self::Doubtful(text) | Self::Wrong(text) => text,
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Right(_) => GOOD,
            Self::Doubtful(_) => WARNING,
            Self::Wrong(_) => BAD,
        }
    }
}

/// Prints the outcome: one line of JSON, or a line for each figure, and the verdict last.
pub fn print(outcome: &impl Serialize, verdict: Verdict, json: bool) -> Result<()> {
    if json {
        return print_json(outcome);
    }
    for line in lines(&serde_json::to_value(outcome)?, verdict) {
        terminal::print(line);
    }
    Ok(())
}

fn lines(outcome: &Value, verdict: Verdict) -> Vec<String> {
    let figures = || outcome.as_object().into_iter().flatten();
    let width = figures().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |name: &str, text: String| {
        let name = format!("{:width$}", name.replace('_', " "));
        format!(" {}  {text}", styled(FAINT, name))
    };
    let verdict = line("verdict", styled(verdict.style(), verdict.text()));
    figures()
        .map(|(name, value)| {
            line(
                name,
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned),
            )
        })
        .chain([verdict])
        .collect()
}

/// Prints the outcome as one line of JSON.
pub fn print_json(outcome: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(outcome)?);
    Ok(())
}

/// Rounds to tenths.
pub fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// Rounds to thousandths.
pub fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// How many in a second, in tenths; 0 if no time has passed.
pub fn per_second(count: usize, seconds: f64) -> f64 {
    if seconds > 0.0 {
        tenths(f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use serde_json::json;

    use super::{Verdict, lines};

    #[test]
    fn figures_are_aligned_in_their_order_and_verdicts_have_colours() {
        let outcome = json!({ "writers_died": 0, "backend": "sqlite" });
        let text = lines(&outcome, Verdict::Right("right: every id once")).join("\n");
        assert_eq!(
            strip_str(&text).to_string(),
            " writers died  0\n backend       sqlite\n verdict       right: every id once"
        );
        assert!(text.contains("\u{1b}[32mright"), "{text:?}");
        let wrong = lines(&outcome, Verdict::Wrong("WRONG")).join("\n");
        assert!(wrong.contains("\u{1b}[31mWRONG"), "{wrong:?}");
    }

    #[test]
    fn rates() {
        assert!((super::per_second(10, 4.0) - 2.5).abs() < f64::EPSILON);
        assert!(super::per_second(10, 0.0).abs() < f64::EPSILON);
    }
}
