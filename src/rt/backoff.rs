//! Pauses between attempts, and random choices.

use std::time::Duration;

/// `first`, doubled with each attempt, at most `last`.
pub(crate) fn growing(attempt: u32, first: Duration, last: Duration) -> Duration {
    first
        .saturating_mul(2_u32.saturating_pow(attempt))
        .min(last)
}

pub(crate) fn full_jitter(longest: Duration) -> Duration {
    longest.mul_f64(fastrand::f64())
}

/// A random duration between half of `longest` and `longest`.
pub(crate) fn jittered(longest: Duration) -> Duration {
    let half = longest / 2;
    half + full_jitter(half)
}

/// A random number below `count`; 0 if `count` is 0.
#[cfg(any(feature = "_postgres", feature = "_mysql"))]
pub(crate) fn random_below(count: usize) -> usize {
    fastrand::usize(..count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let first = Duration::from_millis(10);
        let last = Duration::from_millis(70);
        let pauses: Vec<_> = (0..5)
            .map(|attempt| growing(attempt, first, last).as_millis())
            .collect();
        assert_eq!(pauses, [10, 20, 40, 70, 70]);
        assert_eq!(growing(u32::MAX, first, last), last);
        assert_eq!(growing(0, last, first), first);
        assert_eq!(growing(u32::MAX, Duration::ZERO, last), Duration::ZERO);
    }
}
