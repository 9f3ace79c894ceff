//! The outcome as tables for a terminal: one for each engine.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell as TableCell, Color, ContentArrangement, Table};
use program_support::terminal::{FAINT, paragraph, styled};

use crate::isolation::LEVELS;
use crate::markdown::{Refused, Time};
use crate::outcome::{Cell, EngineOutcome, Outcome, Verdict};
use crate::strategy::Strategy;

const LEGEND: &str = "The time is that of one number. LOST: this many updates were lost, without an error. \
     deadlock, serialization, busy: this many transactions were refused, and retried; the time includes the retries.";

/// Tables with a row for each strategy and a column for each level, with styles, as wide as `width` allows.
pub(crate) fn render(outcome: &Outcome, width: Option<u16>) -> String {
    let mut parts: Vec<String> = outcome
        .engines
        .iter()
        .map(|engine| table(engine, width))
        .collect();
    parts.push(format!(
        " {} connections, {} numbers each.\n{}",
        outcome.connections,
        outcome.numbers,
        styled(FAINT, paragraph(LEGEND, " ", width))
    ));
    parts.join("\n\n")
}

fn table(engine: &EngineOutcome, width: Option<u16>) -> String {
    let levels = engine.levels();
    let mut table = Table::new();
    table.load_style(NOTHING).enforce_styling();
    table.style_text_only();
    if let Some(width) = width {
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
    }
    let heading = |text: String| TableCell::new(text).add_attribute(Attribute::Bold);
    let titles = levels.iter().map(ToString::to_string);
    let titles = std::iter::once(engine.engine.clone()).chain(titles);
    table.add_row(titles.map(heading));
    for strategy in engine.strategies() {
        let cells = levels.iter().map(|level| {
            let cell = engine.cell(*level, strategy);
            cell.map_or_else(|| TableCell::new("-"), table_cell)
        });
        table.add_row(std::iter::once(TableCell::new(title(strategy))).chain(cells));
    }
    let mut text = table.trim_fmt();
    if let Some(missing) = missing(engine) {
        text.push('\n');
        text.push_str(&styled(FAINT, paragraph(&missing, " ", width)));
    }
    text
}

fn table_cell(cell: &Cell) -> TableCell {
    let Some(measured) = &cell.measured else {
        return TableCell::new("-");
    };
    let time = Time(measured.micros_per_number);
    match cell.verdict {
        Verdict::Skipped => TableCell::new("-"),
        Verdict::Right => TableCell::new(time).fg(Color::DarkGreen),
        Verdict::Refused => {
            TableCell::new(format!("{time}\n{}", Refused(measured))).fg(Color::DarkYellow)
        }
        Verdict::Failed => TableCell::new(format!("{} LOST", measured.lost))
            .fg(Color::DarkRed)
            .add_attribute(Attribute::Bold),
    }
}

fn title(strategy: Strategy) -> String {
    strategy.title().replace('`', "")
}

/// What the engine does not have.
fn missing(engine: &EngineOutcome) -> Option<String> {
    let (levels, strategies) = (engine.levels(), engine.strategies());
    let other_levels = LEVELS.into_iter().filter(|level| !levels.contains(level));
    let other_strategies = Strategy::ALL
        .into_iter()
        .filter(|strategy| !strategies.contains(strategy));
    let names: Vec<String> = other_levels
        .map(|level| level.to_string())
        .chain(other_strategies.map(title))
        .collect();
    (!names.is_empty()).then(|| format!("It does not have: {}.", names.join("; ")))
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::render;
    use crate::isolation::{IsolationLevel, LEVELS};
    use crate::outcome::{Cell, EngineOutcome, Measured, Outcome, Refusals, Verdict};
    use crate::strategy::Strategy;

    fn cell(isolation: IsolationLevel, strategy: Strategy, verdict: Verdict) -> Cell {
        let (lost, serialization_failures) = match verdict {
            Verdict::Failed => (696, 0),
            Verdict::Refused => (0, 3166),
            Verdict::Right | Verdict::Skipped => (0, 0),
        };
        let measured = Measured {
            lost,
            repeated: lost,
            refusals: Refusals {
                serialization_failures,
                ..Refusals::default()
            },
            micros_per_number: 1042.0,
        };
        Cell {
            isolation,
            strategy,
            verdict,
            measured: (verdict != Verdict::Skipped).then_some(measured),
        }
    }

    fn outcome(verdict: impl Fn(IsolationLevel, Strategy) -> Verdict) -> Outcome {
        let cells = LEVELS.into_iter().flat_map(|level| {
            Strategy::ALL.map(|strategy| cell(level, strategy, verdict(level, strategy)))
        });
        Outcome {
            connections: 8,
            numbers: 100,
            engines: vec![EngineOutcome {
                engine: "PostgreSQL 18.6".to_owned(),
                cells: cells.collect(),
            }],
            violations: Vec::new(),
        }
    }

    #[test]
    fn all_cells_fit_into_80_columns() {
        let outcome = outcome(|level, strategy| match (level, strategy) {
            (IsolationLevel::ReadCommitted, Strategy::Plain | Strategy::Cursor) => Verdict::Failed,
            (IsolationLevel::ReadCommitted, _) => Verdict::Right,
            _ => Verdict::Refused,
        });
        let text = strip_str(&render(&outcome, Some(80))).to_string();
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert_eq!(text.matches("696 LOST").count(), 2, "{text}");
        assert_eq!(text.matches("3166 serialization").count(), 12, "{text}");
        assert!(!text.contains("does not have"), "{text}");
    }

    #[test]
    fn what_the_engine_does_not_have_is_named_once_and_has_no_cells() {
        let outcome = outcome(|level, strategy| match (level, strategy) {
            (IsolationLevel::Serializable, Strategy::Plain) => Verdict::Refused,
            (IsolationLevel::Serializable, Strategy::OneUpdate) => Verdict::Right,
            _ => Verdict::Skipped,
        });
        let text = strip_str(&render(&outcome, None)).to_string();
        assert!(
            text.contains(
                "It does not have: READ COMMITTED; REPEATABLE READ; cursor; \
                 SELECT FOR UPDATE, UPDATE; cursor FOR UPDATE; next_number."
            ),
            "{text}"
        );
        assert_eq!(text.matches("READ COMMITTED").count(), 1, "{text}");
        assert!(text.contains(" one UPDATE       1.04 ms\n"), "{text}");
    }

    #[test]
    fn lost_updates_are_red() {
        let text = render(&outcome(|_, _| Verdict::Failed), None);
        let lost = text.find("696 LOST").expect("a cell");
        let style = text[..lost].rfind('\u{1b}').expect("a style");
        assert!(!text[style..lost].contains("\u{1b}[0m"), "{text:?}");
    }
}
