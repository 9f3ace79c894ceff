//! The outcome of a run: a table for people, one line of JSON for programs.

use std::fmt;

use anstyle::Style;
use anyhow::Result;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use crate::terminal::{self, BAD, FAINT, GOOD, WARNING};

/// The exit code that shells report of a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// The name of the last row.
const VERDICT: &str = "verdict";

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

/// Names and texts in two columns, the verdict last.
#[derive(Debug, Default)]
pub struct OutcomeTable {
    rows: Vec<(&'static str, String)>,
}

impl OutcomeTable {
    /// Adds a row.
    pub fn row(&mut self, name: &'static str, text: impl Into<String>) -> &mut Self {
        self.rows.push((name, text.into()));
        self
    }

    /// Writes the table, with styles, as wide as the terminal; as wide as it needs to be without one.
    ///
    /// # Errors
    ///
    /// Those of the formatter.
    pub fn write(&self, f: &mut fmt::Formatter<'_>, verdict: Verdict) -> fmt::Result {
        f.write_str(&self.render(verdict, terminal::width()))
    }

    fn render(&self, verdict: Verdict, width: Option<u16>) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING);
        if let Some(width) = width {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width);
        }
        for (name, text) in &self.rows {
            table.add_row([*name, text]);
        }
        table.add_row([VERDICT, verdict.text()]);
        let names = self.rows.iter().map(|(name, _)| name.len());
        // One space before the name, one behind it.
        let indent = names.max().unwrap_or(0).max(VERDICT.len()) + 2;
        let mut text_style = Style::new();
        let mut lines = Vec::new();
        for line in table.trim_fmt().lines() {
            let (name, text) = line.split_at(indent.min(line.len()));
            if name.trim() == VERDICT {
                text_style = verdict.style();
            }
            lines.push(format!(
                "{FAINT}{name}{FAINT:#}{text_style}{text}{text_style:#}"
            ));
        }
        lines.join("\n")
    }
}

/// Prints the outcome: one line of JSON, or the table.
///
/// # Errors
///
/// If the outcome is no JSON.
pub fn print(outcome: &(impl Serialize + fmt::Display), json: bool) -> Result<()> {
    if json {
        return print_json(outcome);
    }
    anstream::println!("{outcome}");
    Ok(())
}

/// Prints the outcome as one line of JSON.
///
/// # Errors
///
/// If the outcome is no JSON.
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

    use super::{OutcomeTable, Verdict};

    fn table() -> OutcomeTable {
        let mut table = OutcomeTable::default();
        table
            .row("writers", "3 processes x 4 threads on SQLite")
            .row("check", "10 ids stored, 0 missing");
        table
    }

    #[test]
    fn columns_are_aligned() {
        let text = table().render(Verdict::Right("right: every id once"), None);
        assert_eq!(
            strip_str(&text).to_string(),
            " writers  3 processes x 4 threads on SQLite\n \
             check    10 ids stored, 0 missing\n \
             verdict  right: every id once"
        );
    }

    #[test]
    fn long_texts_are_wrapped_into_their_column() {
        let text = table().render(Verdict::Wrong("WRONG"), Some(28));
        assert_eq!(
            strip_str(&text).to_string(),
            " writers  3 processes x 4\n          \
             threads on SQLite\n \
             check    10 ids stored, 0\n          \
             missing\n \
             verdict  WRONG"
        );
    }

    #[test]
    fn verdicts_have_colours() {
        let right = table().render(Verdict::Right("right"), None);
        assert!(right.contains("\u{1b}[32m right"), "{right:?}");
        let wrong = table().render(Verdict::Wrong("WRONG"), None);
        assert!(wrong.contains("\u{1b}[31m WRONG"), "{wrong:?}");
    }

    #[test]
    fn rates() {
        assert!((super::per_second(10, 4.0) - 2.5).abs() < f64::EPSILON);
        assert!(super::per_second(10, 0.0).abs() < f64::EPSILON);
    }
}
