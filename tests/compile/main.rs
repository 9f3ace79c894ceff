//! What compiles, and what the compiler says about what does not.
//!
//! `spellings` and `futures` are compiled with this test. Each file of `fails` is a program with one mistake of a new user.
//! Its lines `//~ ` are parts of the compiler's messages that this crate promises, those with `//~ not: ` are in none; the rest
//! of the messages is the compiler's own, and differs between its versions.

mod check;
mod futures;
mod spellings;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// All features, and one engine alone, with Diesel's features unchanged.
const FEATURES: [(&str, &[&str]); 2] = [
    (
        "all",
        &[
            "postgres",
            "mysql",
            "sqlite",
            "r2d2",
            "async-postgres",
            "async-mysql",
            "async-sqlite",
            "bb8",
            "deadpool",
        ],
    ),
    ("sqlite", &["sqlite"]),
];

/// Marks a part of a message.
const EXPECTED: &str = "//~ ";
/// Marks what is part of no message.
const UNEXPECTED: &str = "not: ";
/// Marks the features of the crate, if not all.
const WITH: &str = "//@ features: ";

/// A program that does not compile.
struct Mistake {
    name: String,
    path: PathBuf,
    features: String,
    expected: Vec<String>,
}

impl Mistake {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).expect("a program");
        let marked = |mark| text.lines().filter_map(move |line| line.strip_prefix(mark));
        let name = path.file_stem().expect("a name").to_str().expect("UTF-8");
        Self {
            name: name.to_owned(),
            features: marked(WITH).next().unwrap_or("all").to_owned(),
            expected: marked(EXPECTED).map(str::to_owned).collect(),
            path,
        }
    }

    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile/fails");
        let files = fs::read_dir(folder).expect("the programs");
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    /// Says what is wrong with the messages, if anything is.
    fn complaint(&self, messages: Option<&String>) -> Option<String> {
        let name = &self.name;
        let Some(messages) = messages else {
            return Some(format!("{name}: compiles"));
        };
        let wrong: Vec<_> = self
            .expected
            .iter()
            .filter(|part| match part.strip_prefix(UNEXPECTED) {
                Some(part) => messages.contains(part),
                None => !messages.contains(part.as_str()),
            })
            .collect();
        (!wrong.is_empty()).then(|| format!("{name}: {wrong:?} is not true of\n{messages}"))
    }
}

#[test]
fn mistakes_are_explained() {
    let mistakes = Mistake::all();
    assert!(mistakes.iter().all(|mistake| !mistake.expected.is_empty()));
    let mut complaints = Vec::new();
    let mut seen = 0;
    for (set, features) in FEATURES {
        let of_set = || mistakes.iter().filter(|mistake| mistake.features == set);
        let programs: BTreeMap<_, _> = of_set()
            .map(|mistake| (mistake.name.as_str(), mistake.path.as_path()))
            .collect();
        let messages = check::messages(set, features, &programs);
        for mistake in of_set() {
            seen += 1;
            complaints.extend(mistake.complaint(messages.get(&mistake.name)));
        }
    }
    assert_eq!(seen, mistakes.len(), "each has a known set of features");
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}
