//! The outcome as a table in Markdown.

use std::fmt::{self, Write};

use crate::outcome::{Cell, Measured, Outcome, Verdict};
use crate::strategy::Strategy;

/// One table with a row for each engine and level, and a column for each strategy.
pub(crate) fn render(outcome: &Outcome) -> String {
    let mut text = "| |".to_owned();
    // Writing to a string can't fail.
    for strategy in Strategy::ALL {
        let _ = write!(text, " {strategy} |");
    }
    let _ = write!(text, "\n|---|{}", "---|".repeat(Strategy::ALL.len()));
    for engine in &outcome.engines {
        for isolation in engine.levels() {
            let _ = write!(text, "\n| {}, {isolation} |", engine.engine);
            for strategy in Strategy::ALL {
                let _ = match engine.cell(isolation, strategy) {
                    Some(cell) => write!(text, " {cell} |"),
                    None => write!(text, " |"),
                };
            }
        }
    }
    let _ = write!(
        text,
        "\n\n{} connections, {} numbers each.",
        outcome.connections, outcome.numbers
    );
    text
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(measured) = &self.measured else {
            return f.write_str("Skipped");
        };
        match self.verdict {
            Verdict::Skipped => f.write_str("Skipped"),
            Verdict::Right => write!(f, "{}", Time(measured.micros_per_number)),
            Verdict::Refused => write!(
                f,
                "Refused: {}; {}",
                Refused(measured),
                Time(measured.micros_per_number)
            ),
            Verdict::Failed => {
                write!(f, "**Failed**: {} lost", measured.lost)?;
                if measured.repeated != measured.lost {
                    write!(f, ", {} repeated", measured.repeated)?;
                }
                if measured.refusals.sum() > 0 {
                    write!(f, "; refused: {}", Refused(measured))?;
                }
                Ok(())
            }
        }
    }
}

/// Refusals by their reason.
pub(crate) struct Refused<'a>(pub(crate) &'a Measured);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusals = &self.0.refusals;
        let reasons = [
            (refusals.deadlocks, "deadlock"),
            (refusals.serialization_failures, "serialization"),
            (refusals.busy, "busy"),
        ];
        let reasons: Vec<String> = reasons
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        f.write_str(&reasons.join(", "))
    }
}

/// Microseconds, displayed with a readable unit.
pub(crate) struct Time(pub(crate) f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000.0 {
            write!(f, "{:.0} µs", self.0)
        } else {
            write!(f, "{:.2} ms", self.0 / 1000.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::isolation::IsolationLevel;
    use crate::outcome::{Cell, Measured, Refusals, Verdict};
    use crate::strategy::Strategy;

    fn shown(verdict: Verdict, lost: usize, deadlocks: u64, micros_per_number: f64) -> String {
        let refusals = Refusals {
            deadlocks,
            ..Refusals::default()
        };
        let measured = Measured {
            lost,
            repeated: lost,
            refusals,
            micros_per_number,
        };
        let cell = Cell {
            isolation: IsolationLevel::Serializable,
            strategy: Strategy::Plain,
            verdict,
            measured: Some(measured),
        };
        cell.to_string()
    }

    #[test]
    fn cells() {
        assert_eq!(shown(Verdict::Right, 0, 0, 463.4), "463 µs");
        assert_eq!(
            shown(Verdict::Refused, 0, 7, 2345.6),
            "Refused: 7 deadlock; 2.35 ms"
        );
        assert_eq!(shown(Verdict::Failed, 9, 0, 1.0), "**Failed**: 9 lost");
        assert_eq!(
            shown(Verdict::Failed, 9, 2, 1.0),
            "**Failed**: 9 lost; refused: 2 deadlock"
        );
    }
}
