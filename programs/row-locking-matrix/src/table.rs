//! The outcome as a table in Markdown.

use std::fmt;

use crate::isolation::LEVELS;
use crate::outcome::{Cell, Measured, Outcome, Verdict};
use crate::way::Way;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| |")?;
        for way in Way::ALL {
            write!(f, " {way} |")?;
        }
        writeln!(f)?;
        writeln!(f, "|---|{}", "---|".repeat(Way::ALL.len()))?;
        for engine in &self.engines {
            for isolation in LEVELS {
                write!(f, "| {}, {isolation} |", engine.engine)?;
                for way in Way::ALL {
                    match engine.cell(isolation, way) {
                        Some(cell) => write!(f, " {cell} |")?,
                        None => write!(f, " |")?,
                    }
                }
                writeln!(f)?;
            }
        }
        writeln!(f)?;
        write!(
            f,
            "{} connections, {} numbers each.",
            self.connections, self.numbers
        )
    }
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
struct Refused<'a>(&'a Measured);

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
struct Time(f64);

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
    use crate::way::Way;

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
            way: Way::Plain,
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
