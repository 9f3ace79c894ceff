//! Compares what messages are taken for with the servers' own files, in every language: PostgreSQL's
//! `<language>/LC_MESSAGES/postgres-<version>.mo`, and `<language>/errmsg.sys` of MySQL and MariaDB.
//!
//! `cargo xtask messages` finds the files of all servers on which tests run, and runs these tests.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::{env, fs, mem};

use crate::error::classify::mysql::{self, class_of_errno, is_transaction_in_progress};
use crate::error::classify::postgres;

/// With the directories of the servers' languages.
const MYSQL_MESSAGES: &str = "DIESEL_LOCKS_MYSQL_MESSAGES";
const POSTGRES_MESSAGES: &str = "DIESEL_LOCKS_POSTGRES_MESSAGES";

/// The directories that the variable names, separated by colons.
fn directories(variable: &str) -> Vec<PathBuf> {
    let directories = env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask messages`"));
    env::split_paths(&directories).collect()
}

/// The entries of a directory, in order.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.expect("a name").path()).collect();
    entries.sort();
    entries
}

fn contents(file: &Path) -> Vec<u8> {
    fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let four = bytes[at..at + 4].try_into().expect("four bytes");
    usize::try_from(u32::from_le_bytes(four)).expect("a position in a file")
}

/// What differs from what is expected, once each.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn expect<T: Copy + PartialEq + Debug>(&mut self, found: T, expected: T, what: &str) {
        if found != expected {
            let difference = format!("{what}\n    is {found:?}, expected {expected:?}");
            if !self.0.contains(&difference) {
                self.0.push(difference);
            }
        }
    }

    fn assert_none(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

/// What stands for the placeholders of a message: texts, of which the last one also stands for the last text of a message, and
/// the one before also for all others; and a number.
type Filling = (&'static [&'static str], &'static str);

/// A placeholder of C's `printf`, or of MySQL's variant of it: its position, from 1, if the message gives one (`%2$s`), and its
/// conversion, of those below.
type Placeholder = (Option<usize>, &'static str);

/// The conversions of the servers' messages. In MariaDB a text may be quoted or cut off: `sQ`, `sT`, `T`.
const CONVERSIONS: [&str; 18] = [
    "sT", "sQ", "iE", "s", "T", "d", "u", "i", "o", "x", "X", "M", "m", "c", "f", "g", "p", "e",
];

fn is_text((_, conversion): &Placeholder) -> bool {
    matches!(*conversion, "s" | "T" | "sT" | "sQ" | "m")
}

/// Splits what follows a `%` into the placeholder and the rest of the message. `None` if it is none.
fn placeholder(rest: &str) -> Option<(Placeholder, &str)> {
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (position, rest) = match rest[digits..].strip_prefix('$') {
        Some(after) => (rest[..digits].parse().ok(), after),
        None => (None, rest),
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "-+#.*`".contains(c));
    let rest = rest.trim_start_matches(['l', 'z', 'h']);
    let mut conversions = CONVERSIONS.into_iter();
    let conversion = conversions.find(|conversion| rest.starts_with(conversion))?;
    Some(((position, conversion), &rest[conversion.len()..]))
}

/// Splits a message at its placeholders.
fn parts(format: &str) -> (Vec<(String, Placeholder)>, String) {
    let mut parts = Vec::new();
    let (mut before, mut rest) = (String::new(), format);
    while let Some((text, after)) = rest.split_once('%') {
        before.push_str(text);
        if let Some((found, after)) = placeholder(after) {
            parts.push((mem::take(&mut before), found));
            rest = after;
        } else {
            before.push('%');
            rest = after.strip_prefix('%').unwrap_or(after);
        }
    }
    before.push_str(rest);
    (parts, before)
}

/// The message with values. The arguments are those of `english`, which a translation may have in another order.
fn fill(format: &str, english: &str, (texts, number): Filling) -> String {
    let (arguments, _) = parts(english);
    let mut texts_left = arguments.iter().filter(|(_, found)| is_text(found)).count();
    let (last, others) = texts.split_last().expect("a text");
    let mut others = others.iter();
    let mut other = last;
    let values = arguments.iter().map(|(_, found)| {
        if found.1 == "M" {
            // The number and the text of an error of the system.
            return format!("{number} \"Lock deadlock; Retry transaction\"");
        }
        if !is_text(found) {
            return number.to_owned();
        }
        texts_left -= 1;
        other = others.next().unwrap_or(other);
        let text = if texts_left == 0 { last } else { other };
        (*text).to_owned()
    });
    let values: Vec<String> = values.collect();
    let (found, end) = parts(format);
    let mut message = String::new();
    for (at, (before, (position, _))) in found.iter().enumerate() {
        let position = position.map_or(at, |position| position - 1);
        message.push_str(before);
        // A translation may have more placeholders than the message, by mistake.
        message.push_str(values.get(position).map_or("?", String::as_str));
    }
    message.push_str(&end);
    message
}

#[test]
fn placeholders_may_have_positions() {
    let filling: Filling = (&["first", "second", "last"], "7");
    let english = "%-.100T of '%s' is %d, %lu and %`s%%";
    let filled = "first of 'second' is 7, 7 and last%";
    assert_eq!(fill(english, english, filling), filled);
    assert_eq!(fill("%2$s, %1$s", "%s, %s", filling), "last, first");
    let of_the_system = fill("Got error %M", "Got error %M", filling);
    assert_eq!(
        of_the_system,
        "Got error 7 \"Lock deadlock; Retry transaction\""
    );
}

/// The name of the user is that of a table of this crate. The message is about another table.
const NAMES: Filling = (
    &[
        "UPDATE",
        "diesel_locks_slots",
        "diesel_locks_slots",
        "app",
        "diesel_locks_fences",
    ],
    "149",
);
const READ_ONLY: Filling = (&["--read-only"], "6");

/// Of a denied statement.
const DENIED: [i64; 2] = [1142, 1143];

/// The numbers in `class_of_errno`, without 1047 and 3100, which only nodes of clusters report.
const OF_BOTH: [i64; 11] = [
    1020, 1053, 1142, 1143, 1146, 1180, 1205, 1213, 1290, 1792, 1836,
];
const OF_MARIADB: [i64; 2] = [1927, 1969];
/// Of a SET TRANSACTION in a transaction, which is in no class.
const IN_PROGRESS: i64 = 1568;
const OF_MYSQL: [i64; 7] = [3024, 3058, 3098, 3101, 3547, 3572, 4031];

/// The messages of one language, by number.
type Messages = BTreeMap<i64, String>;

enum Server {
    Mariadb,
    Mysql,
}

/// Reads a file as MySQL and MariaDB do: after 32 bytes come positions, and then texts that end with a zero.
fn read_errmsg(path: &Path) -> (Server, Messages) {
    let bytes = contents(path);
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (server, start, numbers): (_, _, Vec<i64>) = match bytes[..3] {
        [254, 254, 2] => {
            let (texts, sections) = (u16_at(12), u16_at(14));
            let numbers = (0..sections).flat_map(|section| {
                let first = 1000 + 1000 * i64::try_from(section).expect("few");
                (first..).take(u16_at(32 + 2 * section))
            });
            (
                Server::Mariadb,
                32 + 2 * sections + 2 * texts,
                numbers.collect(),
            )
        }
        [254, 254, 3] => {
            // `errmsg_section_start` and `errmsg_section_size` of MySQL 9.
            let numbers = (1000..1888)
                .chain(3000..3239)
                .chain(3500..)
                .take(u16_at(10));
            let end_of_positions = 32 + 4 * u16_at(10);
            assert_eq!(u32_at(&bytes, 32), 0, "{}", path.display());
            (Server::Mysql, end_of_positions, numbers.collect())
        }
        _ => panic!("{} is no file of messages", path.display()),
    };
    let texts = bytes[start..].split(|byte| *byte == 0);
    let texts = texts.map(|text| String::from_utf8(text.to_vec()).expect("UTF-8"));
    (server, numbers.into_iter().zip(texts).collect())
}

/// Every message of every language is taken for what the English message of the same number is: so none is unknown, and none
/// is taken for another.
#[test]
#[ignore = "reads the files of servers: cargo xtask messages"]
fn messages_of_mysql_and_mariadb_are_known_in_every_language() {
    let mut differences = Differences::default();
    for directory in directories(MYSQL_MESSAGES) {
        let (server, english) = read_errmsg(&directory.join("english/errmsg.sys"));
        let own = match server {
            Server::Mariadb => OF_MARIADB.as_slice(),
            Server::Mysql => OF_MYSQL.as_slice(),
        };
        for number in OF_BOTH.iter().chain(own) {
            let message = english
                .get(number)
                .unwrap_or_else(|| panic!("{} has no {number}", directory.display()));
            let filling = if *number == 1290 { READ_ONLY } else { NAMES };
            let filled = fill(message, message, filling);
            let expected = Some(class_of_errno(*number, &filled));
            differences.expect(
                mysql::classify(&filled),
                expected,
                &format!("English, {number}: {filled}"),
            );
        }
        let mut languages = 0;
        for language in entries(&directory) {
            let path = language.join("errmsg.sys");
            if !path.exists() {
                continue;
            }
            languages += 1;
            let (_, messages) = read_errmsg(&path);
            let message = &messages[&IN_PROGRESS];
            let what = format!("{}, {IN_PROGRESS}: {message}", path.display());
            differences.expect(is_transaction_in_progress(message), true, &what);
            for (number, message) in &messages {
                let english = &english[number];
                if message == english {
                    continue;
                }
                for filling in [NAMES, READ_ONLY] {
                    compare(
                        &mut differences,
                        &path,
                        *number,
                        &fill(message, english, filling),
                        &fill(english, english, filling),
                    );
                }
            }
        }
        assert!(
            languages > 20,
            "{}: {languages} languages",
            directory.display()
        );
    }
    differences.assert_none();
}

fn compare(differences: &mut Differences, path: &Path, number: i64, message: &str, english: &str) {
    let expected = mysql::classify(english);
    let what = format!("{}, {number}: {message}", path.display());
    // The table is searched for in a message of any language, once its number is known: that it is missing, or what is denied.
    if DENIED.contains(&number) {
        let by_number = class_of_errno(number, message);
        differences.expect(
            Some(by_number),
            Some(class_of_errno(number, english)),
            &what,
        );
    }
    let by_number_only = DENIED.contains(&number) || number == 1146;
    let found = mysql::classify(message);
    if !(by_number_only && found.is_none()) {
        differences.expect(found, expected, &what);
    }
}

const NAMES_IN_POSTGRES: [Filling; 3] = [
    (&["diesel_locks_slots"], "3"),
    (&["diesel_locks_acquire(text[], boolean)"], "3"),
    (&["__diesel_stmt_1"], "3"),
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
fn read_catalogue(path: &Path) -> Vec<Translation> {
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
    let mut compared = HashSet::new();
    for directory in directories(POSTGRES_MESSAGES) {
        let files = catalogues(&directory);
        assert!(files.len() > 10, "{}", directory.display());
        let mut left: Vec<&str> = LOOKED_FOR.to_vec();
        for path in files {
            for Translation {
                english,
                translated,
            } in read_catalogue(&path)
            {
                left.retain(|message| english[0] != *message);
                // Without the header.
                for translated in translated.iter().filter(|_| !english[0].is_empty()) {
                    // Versions and languages have most messages in common.
                    if !compared.insert((english[0].clone(), translated.clone())) {
                        continue;
                    }
                    for filling in NAMES_IN_POSTGRES {
                        let message = fill(translated, &english[0], filling);
                        let expected = postgres::classify(&fill(&english[0], &english[0], filling));
                        let what = format!("{}: {message}", path.display());
                        differences.expect(postgres::classify(&message), expected, &what);
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
        let known = NAMES_IN_POSTGRES
            .into_iter()
            .any(|filling| postgres::classify(&fill(message, message, filling)).is_some());
        assert!(known, "{message}");
    }
}
