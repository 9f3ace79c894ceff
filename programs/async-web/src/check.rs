//! Compares what is stored with what the clients have seen.

use std::collections::HashSet;

use crate::measure::Seen;

/// What is wrong.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// The revisions that this run has stored.
    pub(crate) stored: usize,
    /// Revisions that were answered, and are not stored.
    pub(crate) missing: usize,
    /// Revisions that were answered to several clients.
    pub(crate) repeats: usize,
    /// Numbers that were left out.
    pub(crate) gaps: usize,
    /// Stored revisions that were not answered, beyond the number of clients that hung up, and whose closures were not cut
    /// off: those were rolled back.
    pub(crate) unexplained: usize,
}

/// The revisions of the document before and after a run.
pub(crate) fn check(before: &[i64], after: &[i64], seen: &Seen) -> Checked {
    let known: HashSet<i64> = before.iter().copied().collect();
    let stored: HashSet<i64> = after
        .iter()
        .copied()
        .filter(|revision| !known.contains(revision))
        .collect();
    let told: HashSet<i64> = seen.revisions.iter().copied().collect();
    let untold = stored.difference(&told).count();
    let gaps = (1..)
        .zip(after)
        .filter(|(expected, revision)| expected != *revision);
    Checked {
        stored: stored.len(),
        missing: told.difference(&stored).count(),
        repeats: seen.revisions.len() - told.len(),
        gaps: gaps.take(1).count(),
        unexplained: untold.saturating_sub(seen.hung_up.saturating_sub(seen.cut_off)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Checked, check};
    use crate::measure::Seen;

    fn seen(revisions: &[i64], hung_up: usize) -> Seen {
        Seen {
            revisions: revisions.to_vec(),
            hung_up,
            ..Seen::default()
        }
    }

    #[test]
    fn what_was_told_must_be_stored_once_and_without_gaps() {
        let right = Checked {
            stored: 3,
            ..Checked::default()
        };
        // One client has hung up while its revision was committed.
        assert_eq!(check(&[1], &[1, 2, 3, 4], &seen(&[2, 4], 1)), right);
        let missing = check(&[], &[1], &seen(&[1, 2], 0));
        assert_eq!((missing.missing, missing.gaps), (1, 0));
        assert_eq!(check(&[], &[1, 3], &seen(&[1, 3], 0)).gaps, 1);
        assert_eq!(check(&[], &[1], &seen(&[1, 1], 0)).repeats, 1);
        assert_eq!(check(&[], &[1, 2], &seen(&[1], 0)).unexplained, 1);
        let cut_off = Seen {
            cut_off: 1,
            ..seen(&[1], 1)
        };
        assert_eq!(check(&[], &[1, 2], &cut_off).unexplained, 1);
    }
}
