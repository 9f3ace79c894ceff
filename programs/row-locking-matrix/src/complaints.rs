//! Results that a run must not have.

use crate::isolation::IsolationLevel;
use crate::outcome::{Cell, EngineOutcome, Verdict};
use crate::way::Way;

/// Returns a message for each unexpected result of an engine.
pub(crate) fn complaints(outcome: &EngineOutcome) -> Vec<String> {
    let about = |cell: &Cell| complaint(cell).map(|text| (cell.isolation, cell.way, text));
    outcome
        .cells
        .iter()
        .filter_map(about)
        .map(|(isolation, way, text)| format!("{}, {isolation}, {way}: {text}", outcome.engine))
        .collect()
}

fn complaint(cell: &Cell) -> Option<&'static str> {
    if cell.verdict == Verdict::Skipped {
        None
    } else if cell.verdict == Verdict::Failed && cell.way.must_be_right(cell.isolation) {
        Some("numbers were lost or repeated, which must not be")
    } else if cell.way == Way::Plain
        && harm(cell.isolation).is_some_and(|harm| harm != cell.verdict)
    {
        Some("it came to no harm, so that this run proves nothing")
    } else {
        None
    }
}

/// The verdict that a plain SELECT before an UPDATE must have. At the level between these two engines differ.
fn harm(isolation: IsolationLevel) -> Option<Verdict> {
    match isolation {
        IsolationLevel::ReadCommitted => Some(Verdict::Failed),
        IsolationLevel::RepeatableRead => None,
        IsolationLevel::Serializable => Some(Verdict::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::complaints;
    use crate::isolation::{IsolationLevel, LEVELS};
    use crate::outcome::{Cell, EngineOutcome, Verdict};
    use crate::way::Way;

    fn complains(isolation: IsolationLevel, way: Way, verdict: Verdict) -> bool {
        let cell = Cell {
            isolation,
            way,
            verdict,
            measured: None,
        };
        let outcome = EngineOutcome {
            engine: "an engine".into(),
            cells: vec![cell],
        };
        !complaints(&outcome).is_empty()
    }

    #[test]
    fn a_way_that_locks_must_not_fail() {
        for isolation in LEVELS {
            for way in [Way::ForUpdate, Way::OneUpdate, Way::NextNumber] {
                assert!(complains(isolation, way, Verdict::Failed));
                assert!(!complains(isolation, way, Verdict::Refused));
                assert!(!complains(isolation, way, Verdict::Right));
            }
        }
    }

    #[test]
    fn the_plain_way_must_come_to_harm() {
        let plain = |isolation, verdict| complains(isolation, Way::Plain, verdict);
        assert!(plain(IsolationLevel::ReadCommitted, Verdict::Right));
        assert!(!plain(IsolationLevel::ReadCommitted, Verdict::Failed));
        assert!(plain(IsolationLevel::Serializable, Verdict::Right));
        assert!(plain(IsolationLevel::Serializable, Verdict::Failed));
        assert!(!plain(IsolationLevel::Serializable, Verdict::Refused));
        assert!(!plain(IsolationLevel::Serializable, Verdict::Skipped));
    }
}
