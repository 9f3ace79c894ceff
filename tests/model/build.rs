//! Copies the source of the crate's queues for `tests/queue.rs`: with the locks of `loom` and a clock of the test, once as it is
//! and once with each of the mistakes of [`MISTAKES`].

use std::path::Path;
use std::{env, fs};

/// The modules of the queues, below `src/queue`.
const MODULES: [&str; 2] = ["line", "place"];

/// A name, the text that stands once in the source, and what stands in its place.
const MISTAKES: [(&str, &str, &str); 12] = [
    (
        "a_release_is_not_counted_for_those_that_query",
        "None => self.unclaimed += 1,",
        "None => {}",
    ),
    (
        "a_refused_waiter_does_not_look_for_a_release",
        "matches!(before, State::Querying { unclaimed } if unclaimed != self.unclaimed)",
        "matches!(before, State::Querying { unclaimed } if unclaimed > self.unclaimed)",
    ),
    (
        "a_called_waiter_that_leaves_tells_nobody",
        "State::Called(release) => release,",
        "State::Called(_) => None,",
    ),
    (
        "a_querying_waiter_that_leaves_tells_nobody",
        "unused.then_some(Released(None))",
        "None.filter(|_: &Released| unused)",
    ),
    (
        "a_granted_waiter_lets_nobody_query",
        "(!exclusive && (!released || failed)).then_some",
        "(failed && !released).then_some",
    ),
    (
        "a_first_query_that_ends_tells_nobody",
        "if queried && !once {",
        "if queried && once {",
    ),
    (
        "a_refused_first_query_misses_a_release",
        "is_some_and(|before| name.releases != before)",
        "is_some_and(|before| name.releases < before)",
    ),
    (
        "a_waiter_counts_after_its_query",
        "if self.waiting.load(Ordering::SeqCst) == 0 {",
        "if self.waiting.load(Ordering::SeqCst) <= 1 {",
    ),
    (
        "a_stop_is_not_seen",
        "let is_over = stopped || end",
        "let is_over = stopped && ends[0].is_some() || end",
    ),
    (
        "a_deadline_is_not_seen",
        "[ends[0], ends[1], ask_by]",
        "[None, ends[1], ask_by]",
    ),
    (
        "no_alarm_is_set",
        "let time = due?.clamp(",
        "let time = due.filter(|due| *due < now)?.clamp(",
    ),
    (
        "a_called_future_that_is_not_polled_holds_the_others_up",
        "waiter.state == State::Sleeping;\n        let mut preferred",
        "!matches!(waiter.state, State::Querying { .. });\n        let mut preferred",
    ),
];

fn main() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
    println!("cargo::rerun-if-changed=../../src/queue");
    println!("cargo::rerun-if-changed=../../src/queue.rs");
    println!("cargo::rerun-if-changed=../../src/rt");
    let read = |file: &str| {
        let text = fs::read_to_string(source.join(file));
        model(&text.unwrap_or_else(|error| panic!("{file}: {error}")))
    };
    let queues = format!(
        "{}{}",
        read("queue.rs").replace("mod line;\nmod place;\n", ""),
        MODULES
            .map(|name| in_module(name, &read(&format!("queue/{name}.rs"))))
            .concat(),
    );
    let mut variants = variant("original", &queues);
    for (name, original, mistake) in MISTAKES {
        let count = queues.matches(original).count();
        assert_eq!(
            count, 1,
            "{name}: `{original}` stands {count} times in the source"
        );
        variants += &variant(name, &queues.replace(original, mistake));
    }
    let rt = ["permits", "stop_token"];
    let rt = rt
        .map(|name| in_module(name, &read(&format!("rt/{name}.rs"))))
        .concat();
    let out = env::var("OUT_DIR").expect("set by cargo");
    let write = |file: &str, text: &str| {
        fs::write(Path::new(&out).join(file), text).expect("a directory of this package");
    };
    let (names, count) = (MISTAKES.map(|(name, ..)| name), MISTAKES.len());
    let names = format!("pub const MISTAKES: [&str; {count}] = {names:?};\n");
    write("variants.rs", &(variants + &names));
    write("rt.rs", &rt);
}

/// A source as the model uses it: without its tests and its features, with other locks and another clock.
fn model(source: &str) -> String {
    let source = source.replace("\npub(crate) mod tests", "\nmod tests");
    let (text, tests) = source
        .split_once("#[cfg(test)]\nmod tests")
        .unwrap_or((&source, ""));
    // The tests are a file, or the rest of this one.
    let mut text = text.to_owned() + tests.strip_prefix(";\n").unwrap_or("");
    for (from, to) in [
        ("#[cfg(feature = \"_pool\")]\n", ""),
        ("std::sync::atomic::", "loom::sync::atomic::"),
        ("std::sync::{Arc, Mutex", "crate::sync::{Arc, Mutex"),
        ("Instant::now()", "crate::rt::now()"),
    ] {
        text = text.replace(from, to);
    }
    text
}

fn in_module(name: &str, text: &str) -> String {
    format!("pub mod {name} {{\n{text}\n}}\n")
}

fn variant(name: &str, queues: &str) -> String {
    let path = format!("crate::variants::{name}::queue");
    in_module(
        name,
        &in_module("queue", &queues.replace("crate::queue", &path)),
    )
}
