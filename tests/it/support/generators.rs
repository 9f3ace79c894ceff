//! Whatever a user may give: hostile texts, durations and numbers around the limits, and what is expected of
//! them, said apart from the crate's own code.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// The longest text, as the documentation has it.
const LONGEST_TEXT: usize = 255;

/// Pieces of text that software on the way to the disk might interpret.
const FRAGMENTS: [&str; 40] = [
    "a",
    "A",
    "e",
    "E",
    "é",
    "e\u{301}",
    "ß",
    "SS",
    "İ",
    "ı",
    "漢",
    "🔒",
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "'",
    "''",
    "\"",
    "`",
    "\\",
    "\\'",
    "\\0",
    "%",
    "_",
    "*",
    "$1",
    "?",
    ":a",
    "{}",
    ",",
    "'; DROP TABLE diesel_locks_slots; --",
    "*/ /*",
    "/*!80000 */",
    "\u{202e}",
    "\u{200f}",
    "\u{feff}",
    "\u{ffff}",
    "\u{10ffff}",
];

/// A piece of a text.
fn fragments() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => select(&FRAGMENTS[..]).prop_map(str::to_owned),
        4 => any::<char>().prop_map(String::from),
        1 => Just("\0".to_owned()),
    ]
}

/// Some short text, maybe empty.
pub(crate) fn short_texts() -> impl Strategy<Value = String> {
    vec(fragments(), 0..6).prop_map(|fragments| fragments.concat())
}

/// As long as may be, a little shorter and a little longer, of characters of one to four bytes.
fn texts_around_the_limit() -> impl Strategy<Value = String> {
    let letters = select(vec!["a", " ", "'", "\\", "é", "漢", "🔒"]);
    let chars = LONGEST_TEXT - 2..=LONGEST_TEXT + 2;
    (letters, chars, fragments()).prop_map(|(letter, chars, end)| {
        letter.repeat(chars - end.chars().count().min(chars)) + &end
    })
}

/// Any text, usable or not.
pub(crate) fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => short_texts(),
        2 => vec(fragments(), 6..40).prop_map(|fragments| fragments.concat()),
        3 => texts_around_the_limit(),
        1 => vec(any::<char>(), 0..300).prop_map(String::from_iter),
    ]
}

/// A text that can be used.
pub(crate) fn usable_texts() -> impl Strategy<Value = String> {
    texts().prop_filter("usable", |text| fits(text))
}

/// Whether a text can be used as an id or a name.
pub(crate) fn fits(text: &str) -> bool {
    (1..=LONGEST_TEXT).contains(&text.chars().count()) && !text.contains('\0')
}

/// What the refusal of an unusable text says of it: the value, and what is wrong with it.
pub(crate) fn expected_in_error(text: &str) -> Vec<String> {
    if text.is_empty() {
        vec!["1 to 255".to_owned(), "empty".to_owned()]
    } else if text.contains('\0') {
        vec!["NUL".to_owned(), format!("{text:?}")]
    } else {
        let chars = text.chars().count();
        vec!["255".to_owned(), chars.to_string(), format!("{text:?}")]
    }
}

/// Other valid texts that software might confuse with this one: by case, accents, Unicode's
/// normal forms, blanks at the ends, wildcards, escapes, a cut, or what a C library makes of a NUL.
fn similar_texts(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let all_but_last = chars.iter().take(chars.len().saturating_sub(1));
    let mut similar_texts = vec![
        text.to_uppercase(),
        text.to_lowercase(),
        format!("{text} "),
        format!(" {text}"),
        text.trim_end().to_owned(),
        text.trim_start().to_owned(),
        format!("{text}\u{301}"),
        text.replace('é', "e\u{301}"),
        text.replace("e\u{301}", "é"),
        text.replace('é', "e"),
        text.replace('e', "é"),
        text.replace('ß', "ss"),
        format!("{text}%"),
        "%".to_owned(),
        "_".repeat(chars.len()),
        text.replace('\\', "\\\\"),
        text.replace('\\', ""),
        text.replace('\'', "''"),
        format!("\u{feff}{text}"),
        format!("{text}\u{200f}"),
        all_but_last.collect(),
        chars.iter().take(LONGEST_TEXT).collect(),
        format!("{text}a"),
        text.split('\0').next().unwrap_or_default().to_owned(),
        text.replace('\0', ""),
    ];
    similar_texts.retain(|similar| similar != text && fits(similar));
    similar_texts.sort();
    similar_texts.dedup();
    similar_texts
}

/// Any text, and up to five others that are not to be touched.
pub(crate) fn texts_with_similar() -> impl Strategy<Value = (String, Vec<String>)> {
    texts().prop_flat_map(|text| {
        let similar_texts = similar_texts(&text);
        let most = similar_texts.len().min(5);
        (Just(text), subsequence(similar_texts, 0..=most))
    })
}

/// Any duration, more often one around these limits.
pub(crate) fn durations_around(limits: Vec<Duration>) -> impl Strategy<Value = Duration> {
    let steps = select(vec![
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(1),
        Duration::from_secs(1),
    ]);
    let around = (select(limits), steps, any::<bool>()).prop_map(|(limit, step, up)| {
        if up {
            limit.saturating_add(step)
        } else {
            limit.saturating_sub(step)
        }
    });
    prop_oneof![
        4 => around,
        2 => (0..10_000_000_000_u64).prop_map(Duration::from_nanos),
        1 => any::<Duration>(),
        1 => select(vec![Duration::ZERO, Duration::MAX]),
    ]
}

/// Any number, more often one around these limits.
pub(crate) fn numbers_around(limits: Vec<u32>) -> impl Strategy<Value = u32> {
    let around = (select(limits), 0..3_u32, any::<bool>()).prop_map(|(limit, step, up)| {
        if up {
            limit.saturating_add(step)
        } else {
            limit.saturating_sub(step)
        }
    });
    prop_oneof![4 => around, 1 => any::<u32>()]
}

/// Any large number, more often one around these limits.
pub(crate) fn large_numbers_around(limits: Vec<i64>) -> impl Strategy<Value = i64> {
    let around = (select(limits), -3..=3_i64).prop_map(|(limit, step)| limit.saturating_add(step));
    prop_oneof![4 => around, 1 => any::<i64>()]
}
