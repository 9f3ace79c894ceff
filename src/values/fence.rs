//! Fencing tokens: their order is the order of the grants.
//!
//! A fence is `unit << 17 | number`: a unit of time and the slot's number. The unit is the database's clock in steps of 64 µs,
//! or, if that is larger, one more than the largest unit of the semaphore's slots and of the floor in `diesel_locks_fences`. So a
//! fence is larger than those of all completed grants of the semaphore, whatever the clock says, differs between slots, and needs
//! no shared counter, which acquirers would have to lock. 17 bits hold 100,000 slots; the others last until the year 2112.
//!
//! PostgreSQL computes it in the function that acquires the slot (`migrations/postgres`), and adds an hour for each timeline.

use std::time::Duration;

use crate::error::limits::MAX_PERMITS;

/// The number of bits of the slot's number.
pub(crate) const NUMBER_BITS: u32 = 17;

/// The microseconds of one unit.
pub(crate) const UNIT_US: i64 = 64;

const _: () = assert!(MAX_PERMITS < 1 << NUMBER_BITS);

/// The fence of the next grant of the slot `number`, where `last` is the largest existing fence.
#[cfg(any(feature = "_mysql", feature = "_sqlite"))]
pub(crate) fn next(last: i64, now_us: i64, number: i32) -> i64 {
    let unit = (now_us / UNIT_US).max((last >> NUMBER_BITS) + 1);
    (unit << NUMBER_BITS) | i64::from(number)
}

/// A fence at this time: later grants have larger fences.
pub(crate) const fn at(now_us: i64) -> i64 {
    (now_us / UNIT_US) << NUMBER_BITS
}

/// The fence that is `by` later than `fence`; `None` when it would be later than the year 2100.
pub(crate) fn raised(fence: i64, by: Duration) -> Option<i64> {
    let units = i64::try_from(by.as_micros().div_ceil(UNIT_US as u128)).ok()?;
    let unit = (fence >> NUMBER_BITS).checked_add(1)?.checked_add(units)?;
    (unit <= LAST_RAISED).then_some(unit << NUMBER_BITS)
}

/// The year 2100.
const LAST_RAISED: i64 = 4_102_444_800_000_000 / UNIT_US;

#[cfg(all(test, any(feature = "_mysql", feature = "_sqlite")))]
mod tests {
    use super::*;

    #[test]
    fn grows_though_the_clock_stands_still_or_goes_back() {
        let first = next(0, 1_763_712_345_678_901, 7);
        let second = next(first, 1_763_712_345_678_901, 7);
        let third = next(second, 1_063_712_345_678_901, 7);
        assert!(first < second && second < third);
    }

    #[test]
    fn differs_between_slots_of_the_same_moment() {
        assert_ne!(
            next(0, 1_763_712_345_678_901, 7),
            next(0, 1_763_712_345_678_901, 8)
        );
    }

    #[test]
    fn is_raised_to_the_year_2100_at_most() {
        let fence = at(1_763_712_345_678_901);
        let after = |by| raised(fence, by);
        assert_eq!(after(Duration::ZERO), Some(fence + (1 << NUMBER_BITS)));
        assert_eq!(
            after(Duration::from_micros(65)),
            Some(fence + (3 << NUMBER_BITS))
        );
        let year = Duration::from_secs(365 * 86_400);
        assert!(after(70 * year) > after(69 * year));
        assert_eq!(after(80 * year), None);
        assert_eq!(after(Duration::MAX), None);
        assert_eq!(raised(i64::MAX, Duration::ZERO), None);
    }

    #[test]
    fn lasts_until_2112() {
        let fence = next(0, 4_480_000_000_000_000, 100_000);
        assert!(fence > 0);
    }
}
