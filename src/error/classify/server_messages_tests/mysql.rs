//! MySQL's and MariaDB's files: `<language>/errmsg.sys`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::classify::mysql::{class_of_errno, classify, is_transaction_in_progress};
use crate::error::classify::server_messages_tests::filling::{Filling, fill};
use crate::error::classify::server_messages_tests::{
    Differences, contents, directories, entries, u32_at,
};

/// With the directories of the servers' languages.
const VARIABLE: &str = "DIESEL_LOCKS_MYSQL_MESSAGES";

/// The name of the user is that of a table of this crate. The message is about another table.
const NAMES: Filling = Filling {
    texts: &["UPDATE", "diesel_locks_slots", "diesel_locks_slots", "app"],
    last: "diesel_locks_fences",
    number: "149",
};
const READ_ONLY: Filling = Filling {
    texts: &["--read-only"],
    last: "--read-only",
    number: "6",
};
const FILLINGS: [Filling; 2] = [NAMES, READ_ONLY];

/// Of a denied statement.
const DENIED: [i64; 2] = [1142, 1143];

/// The numbers in `class_of_errno`, without 1047, whose message is Galera's own.
const OF_BOTH: [i64; 11] = [
    1020, 1053, 1142, 1143, 1146, 1180, 1205, 1213, 1290, 1792, 1836,
];
const OF_MARIADB: [i64; 2] = [1927, 1969];
/// Of a SET TRANSACTION in a transaction, which is in no class.
const IN_PROGRESS: i64 = 1568;
const OF_MYSQL: [i64; 6] = [3024, 3058, 3101, 3547, 3572, 4031];

/// The messages of one language, by number.
type Messages = BTreeMap<i64, String>;

enum Server {
    Mariadb,
    Mysql,
}

/// Reads a file as MySQL and MariaDB do: after 32 bytes come positions, and then texts that end with a zero.
fn read(path: &Path) -> (Server, Messages) {
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
    for directory in directories(VARIABLE) {
        let (server, english) = read(&directory.join("english/errmsg.sys"));
        let own = match server {
            Server::Mariadb => OF_MARIADB.as_slice(),
            Server::Mysql => OF_MYSQL.as_slice(),
        };
        for number in OF_BOTH.iter().chain(own) {
            let message = english
                .get(number)
                .unwrap_or_else(|| panic!("{} has no {number}", directory.display()));
            let filling = if *number == 1290 { READ_ONLY } else { NAMES };
            let filled = fill(message, message, &filling);
            let expected = Some(class_of_errno(*number, &filled));
            differences.expect(
                classify(&filled),
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
            let (_, messages) = read(&path);
            let message = &messages[&IN_PROGRESS];
            let what = format!("{}, {IN_PROGRESS}: {message}", path.display());
            differences.expect(is_transaction_in_progress(message), true, &what);
            for (number, message) in &messages {
                let english = &english[number];
                if message == english {
                    continue;
                }
                for filling in &FILLINGS {
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
    let expected = classify(english);
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
    let found = classify(message);
    if !(by_number_only && found.is_none()) {
        differences.expect(found, expected, &what);
    }
}
