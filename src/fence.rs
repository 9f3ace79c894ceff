//! Fencing tokens: which of two grants is the later one.
//!
//! A fence is a unit of time and the slot's number: `unit << 17 | number`, where `unit` is the database's
//! clock in steps of 64 µs, or one more than the slot's last unit if that is larger. So it grows with
//! every grant of a slot whatever the clock does, differs between slots, follows the order of grants
//! between slots, and needs no counter for all to queue at. 17 bits hold 100,000 slots, the rest is good
//! until the year 2112.
//!
//! PostgreSQL computes the same in its statement.

use crate::limits::MAX_PERMITS;

/// Bits for the slot's number.
pub(crate) const NUMBER_BITS: u32 = 17;

/// Microseconds in a unit.
pub(crate) const UNIT_US: i64 = 64;

const _: () = assert!(MAX_PERMITS < 1 << NUMBER_BITS);

/// The fence of the next grant of the slot `number`, whose last fence was `last`.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn next(last: i64, now_us: i64, number: i32) -> i64 {
    let unit = (now_us / UNIT_US).max((last >> NUMBER_BITS) + 1);
    (unit << NUMBER_BITS) | i64::from(number)
}

#[cfg(all(test, any(feature = "mysql", feature = "sqlite")))]
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
    fn lasts_until_2112() {
        let fence = next(0, 4_480_000_000_000_000, 100_000);
        assert!(fence > 0);
    }
}
