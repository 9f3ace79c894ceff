//! PostgreSQL's files: `<language>/LC_MESSAGES/postgres-<version>.mo`.

use std::path::{Path, PathBuf};

use crate::error::classify::postgres::classify;
use crate::error::classify::server_messages_tests::filling::{Filling, fill};
use crate::error::classify::server_messages_tests::{
    Differences, contents, directories, entries, u32_at,
};

/// With the directories of the servers' languages.
const VARIABLE: &str = "DIESEL_LOCKS_POSTGRES_MESSAGES";

const FILLINGS: [Filling; 3] = [
    Filling {
        texts: &["diesel_locks_slots"],
        last: "diesel_locks_slots",
        number: "3",
    },
    Filling {
        texts: &["diesel_locks_acquire(text[], boolean)"],
        last: "diesel_locks_acquire(text[], boolean)",
        number: "3",
    },
    Filling {
        texts: &["__diesel_stmt_1"],
        last: "__diesel_stmt_1",
        number: "3",
    },
];

/// Messages that must be in each file, translated or not: a version with another text is noticed.
const LOOKED_FOR: [&str; 25] = [
    "deadlock detected",
    "current transaction is aborted, commands ignored until end of transaction block",
    "canceling statement due to lock timeout",
    "canceling statement due to statement timeout",
    "canceling statement due to user request",
    "could not obtain lock on row in relation \"%s\"",
    "cannot access temporary or unlogged relations during recovery",
    "cannot use serializable mode in a hot standby",
    "cannot set transaction read-write mode during recovery",
    "relation \"%s\" does not exist",
    "function %s does not exist",
    "prepared statement \"%s\" already exists",
    "prepared statement \"%s\" does not exist",
    "bind message supplies %d parameters, but prepared statement \"%s\" requires %d",
    "permission denied for table %s",
    "permission denied for function %s",
    "out of shared memory",
    "terminating connection due to administrator command",
    "terminating connection because of crash of another server process",
    "terminating connection due to unexpected postmaster exit",
    "terminating connection due to immediate shutdown command",
    "terminating connection due to idle-in-transaction timeout",
    "terminating connection due to idle-session timeout",
    "terminating connection due to conflict with recovery",
    "the database system is shutting down",
];

/// A message in English and in another language, with all plural forms of both.
struct Translation {
    english: Vec<String>,
    translated: Vec<String>,
}

/// Reads a file of gettext: two tables with the length and the position of each text.
fn read(path: &Path) -> Vec<Translation> {
    let bytes = contents(path);
    assert_eq!(
        bytes[..4],
        0x9504_12de_u32.to_le_bytes(),
        "{}",
        path.display()
    );
    let texts = |table: usize, entry: usize| -> Vec<String> {
        let at = table + 8 * entry;
        let (length, start) = (u32_at(&bytes, at), u32_at(&bytes, at + 4));
        let forms = bytes[start..start + length].split(|byte| *byte == 0);
        forms
            .map(|text| String::from_utf8(text.to_vec()).expect("UTF-8"))
            .collect()
    };
    let (count, english, translated) = (u32_at(&bytes, 8), u32_at(&bytes, 12), u32_at(&bytes, 16));
    (0..count)
        .map(|entry| Translation {
            english: texts(english, entry),
            translated: texts(translated, entry),
        })
        .collect()
}

fn catalogues(directory: &Path) -> Vec<PathBuf> {
    let languages = entries(directory)
        .into_iter()
        .map(|language| language.join("LC_MESSAGES"));
    let files = languages
        .filter(|messages| messages.is_dir())
        .flat_map(|messages| entries(&messages));
    files
        .filter(|file| {
            let name = file.file_stem().and_then(|name| name.to_str());
            let of_the_server = name.is_some_and(|name| name.starts_with("postgres-"));
            of_the_server && file.extension().is_some_and(|extension| extension == "mo")
        })
        .collect()
}

/// Every message of every language is taken for what the English message is: so none is unknown, and none is taken for
/// another.
#[test]
#[ignore = "reads the files of servers: cargo xtask messages"]
fn messages_of_postgres_are_known_in_every_language() {
    let mut differences = Differences::default();
    for directory in directories(VARIABLE) {
        let files = catalogues(&directory);
        assert!(files.len() > 10, "{}", directory.display());
        let mut left: Vec<&str> = LOOKED_FOR.to_vec();
        for path in files {
            for Translation {
                english,
                translated,
            } in read(&path)
            {
                left.retain(|message| english[0] != *message);
                // Without the header.
                for translated in translated.iter().filter(|_| !english[0].is_empty()) {
                    for filling in &FILLINGS {
                        let message = fill(translated, &english[0], filling);
                        let expected = classify(&fill(&english[0], &english[0], filling));
                        let what = format!("{}: {message}", path.display());
                        differences.expect(classify(&message), expected, &what);
                    }
                }
            }
        }
        assert_eq!(
            left,
            [] as [&str; 0],
            "{} has other English messages",
            directory.display()
        );
    }
    differences.assert_none();
}

#[test]
fn english_messages_are_looked_for() {
    for message in LOOKED_FOR {
        let known = FILLINGS
            .iter()
            .any(|filling| classify(&fill(message, message, filling)).is_some());
        assert!(known, "{message}");
    }
}
