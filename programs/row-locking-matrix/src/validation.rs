//! Results that a run must not have.

use crate::isolation::IsolationLevel;
use crate::outcome::{Cell, EngineOutcome, Verdict};
use crate::strategy::Strategy;

/// The violations as sentences; none if all results are as they must be.
pub(crate) fn violations(outcome: &EngineOutcome) -> Vec<String> {
    let about = |cell: &Cell| violation(cell).map(|text| (cell.isolation, cell.strategy, text));
    outcome
        .cells
        .iter()
        .filter_map(about)
        .map(|(isolation, strategy, text)| {
            format!("{}, {isolation}, {strategy}: {text}", outcome.engine)
        })
        .collect()
}

fn violation(cell: &Cell) -> Option<&'static str> {
    if cell.verdict == Verdict::Skipped {
        None
    } else if cell.verdict == Verdict::Failed && cell.strategy.must_be_right(cell.isolation) {
        Some("numbers were lost or repeated, which must not be")
    } else if cell.strategy == Strategy::Plain
        && expected_loss(cell.isolation).is_some_and(|expected| expected != cell.verdict)
    {
        Some("no update was lost or refused, so this run proves nothing")
    } else {
        None
    }
}

/// The verdict that a plain SELECT before an UPDATE must have. At REPEATABLE READ, engines differ.
fn expected_loss(isolation: IsolationLevel) -> Option<Verdict> {
    match isolation {
        IsolationLevel::ReadCommitted => Some(Verdict::Failed),
        IsolationLevel::RepeatableRead => None,
        IsolationLevel::Serializable => Some(Verdict::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::violations;
    use crate::isolation::{IsolationLevel, LEVELS};
    use crate::outcome::{Cell, EngineOutcome, Verdict};
    use crate::strategy::Strategy;

    fn complains(isolation: IsolationLevel, strategy: Strategy, verdict: Verdict) -> bool {
        let cell = Cell {
            isolation,
            strategy,
            verdict,
            measured: None,
        };
        let outcome = EngineOutcome {
            engine: "an engine".into(),
            cells: vec![cell],
        };
        !violations(&outcome).is_empty()
    }

    #[test]
    fn a_way_that_locks_must_not_fail() {
        for isolation in LEVELS {
            for strategy in [
                Strategy::ForUpdate,
                Strategy::OneUpdate,
                Strategy::NextNumber,
            ] {
                assert!(complains(isolation, strategy, Verdict::Failed));
                assert!(!complains(isolation, strategy, Verdict::Refused));
                assert!(!complains(isolation, strategy, Verdict::Right));
            }
        }
    }

    #[test]
    fn the_plain_strategy_must_lose_updates() {
        let plain = |isolation, verdict| complains(isolation, Strategy::Plain, verdict);
        assert!(plain(IsolationLevel::ReadCommitted, Verdict::Right));
        assert!(!plain(IsolationLevel::ReadCommitted, Verdict::Failed));
        assert!(plain(IsolationLevel::Serializable, Verdict::Right));
        assert!(plain(IsolationLevel::Serializable, Verdict::Failed));
        assert!(!plain(IsolationLevel::Serializable, Verdict::Refused));
        assert!(!plain(IsolationLevel::Serializable, Verdict::Skipped));
    }
}
