//! Numbers that must be 1 to n, each once.

use std::ops::RangeInclusive;

/// What is wrong with numbers that must be 1 to n.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flaws {
    /// Numbers that are there more than once, and how often too often.
    pub(crate) repeats: Vec<(i64, u64)>,
    /// Numbers that are not there, below one that is.
    pub(crate) missing: Vec<RangeInclusive<i64>>,
    /// Numbers below 1.
    pub(crate) below: Vec<i64>,
}

/// Looks through numbers in ascending order.
pub(crate) fn flaws(ascending: impl IntoIterator<Item = i64>) -> Flaws {
    let mut flaws = Flaws::default();
    let mut last = 0;
    for number in ascending {
        if number < 1 {
            flaws.below.push(number);
        } else if number == last {
            match flaws.repeats.last_mut() {
                Some((repeated, times)) if *repeated == number => *times += 1,
                _ => flaws.repeats.push((number, 1)),
            }
        } else {
            if number - last > 1 {
                flaws.missing.push(last + 1..=number - 1);
            }
            last = number;
        }
    }
    flaws
}

/// How many numbers are missing.
pub(crate) fn width(missing: &RangeInclusive<i64>) -> u64 {
    missing.end().abs_diff(*missing.start()).saturating_add(1)
}

/// For people: one number, or the first and the last of several.
pub(crate) fn describe(missing: &RangeInclusive<i64>) -> String {
    match (missing.start(), missing.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first} to {last}"),
    }
}
