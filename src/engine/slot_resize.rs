//! Decides which slots to add and remove, so that the numbers of a semaphore's slots have no gaps.

use std::ops::RangeInclusive;

/// The most slots that one transaction adds or removes.
pub(super) const BATCH_SIZE: i32 = 1000;

/// Returns the next slots to add, given the number of the last slot and the number of permits; empty when none is
/// missing.
pub(super) fn slots_to_add(last: Option<i32>, permits: i32) -> RangeInclusive<i32> {
    let first = last.unwrap_or(0) + 1;
    first..=permits.min(first + BATCH_SIZE - 1)
}

/// The slots to delete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Deletion {
    /// The slots above this number.
    pub(super) above: i32,
    /// The largest fence among them and the floor.
    pub(super) fence: i64,
}

/// Returns the slots to delete at the end of the range that ends with slot `last`. `free` contains numbers and fences
/// of slots that may be deleted, from the largest number down; those below a slot that stays are retained.
pub(super) fn slots_to_delete(
    last: Option<i32>,
    free: &[(i32, i64)],
    floor: i64,
) -> Option<Deletion> {
    let last = last?;
    let removed = (0..=last)
        .rev()
        .zip(free)
        .take_while(|(next, (number, _))| next == number);
    let fences: Vec<i64> = removed.map(|(_, (_, fence))| *fence).collect();
    let count = i32::try_from(fences.len()).unwrap_or(0);
    (count > 0).then(|| Deletion {
        above: last - count,
        fence: fences.into_iter().fold(floor, i64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_added_up_to_the_permits_a_batch_at_a_time() {
        assert_eq!(slots_to_add(None, 10), 1..=10);
        assert_eq!(slots_to_add(Some(4), 10), 5..=10);
        assert_eq!(slots_to_add(Some(1000), 100_000), 1001..=2000);
        assert!(slots_to_add(Some(10), 10).is_empty());
        assert!(slots_to_add(Some(11), 10).is_empty());
    }

    #[test]
    fn slots_are_removed_from_the_last_one_down_to_the_first_that_stays() {
        let free = [(9, 50), (8, 70), (6, 90)];
        assert_eq!(
            slots_to_delete(Some(9), &free, 60),
            Some(Deletion {
                above: 7,
                fence: 70
            })
        );
        assert_eq!(
            slots_to_delete(Some(9), &free[..1], 60),
            Some(Deletion {
                above: 8,
                fence: 60
            })
        );
        assert_eq!(slots_to_delete(Some(10), &free, 60), None);
        assert_eq!(slots_to_delete(None, &[], 60), None);
    }
}
