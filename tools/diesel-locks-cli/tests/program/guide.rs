//! The commands of the guide's chapter "Operate it" print what it shows. Numbers, times and addresses may differ.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_locks::prelude::*;
use program_support::testing::{OwnDatabase, wait_until};

use crate::cli::Cli;

const GUIDE: &str = include_str!("../../../../docs/guide.md");

/// The commands in the chapter's blocks, each with what it prints.
fn shown() -> Vec<(&'static str, &'static str)> {
    let (_, rest) = GUIDE.split_once("\n## Operate it\n").expect("the chapter");
    let (chapter, _) = rest.split_once("\n## ").expect("another chapter");
    let blocks = chapter.split("```text\n$ ").skip(1);
    let blocks = blocks.map(|rest| rest.split_once("\n```").expect("its end").0);
    let commands = blocks.flat_map(|block| block.split("\n$ "));
    let split = commands.map(|command| command.split_once('\n').expect("output"));
    split.collect()
}

/// One line, with "N" in place of words that have digits.
fn masked(text: &str) -> String {
    let words = text.split_whitespace();
    let words = words.map(|word| {
        let is_number = word.contains(|c: char| c.is_ascii_digit());
        if is_number { "N" } else { word }
    });
    let mut words: Vec<_> = words.collect();
    words.dedup_by(|a, b| *a == "N" && *b == "N");
    words.join(" ")
}

/// The number behind a text.
fn number_behind(before: &str, text: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}

#[test]
fn guide_shows_what_the_commands_print() {
    let mut own = OwnDatabase::<PgConnection>::create("PG_DATABASE_URL");
    let cli = Cli::new(&own.url);
    let mut holder = PgConnection::establish(&own.url).expect("a connection");
    let user = diesel::select(sql::<diesel::sql_types::Text>("current_user::text"));
    let user: String = user.get_result(&mut holder).expect("a user");
    // What the guide shows, and what it is here.
    let mut known = vec![("user shop".to_owned(), format!("user {user}"))];

    let lease = LeaseOptions::new(Duration::from_secs(600)).holder("vm/14412");
    let slot = holder.try_acquire_slot(&Semaphore::new("counter", 1), lease);
    let _held = slot.expect("a slot").expect("it is free");
    let named = holder.batch_execute("SET application_name = 'shop-web'");
    named.expect("a name");
    let (release, released) = channel::<()>();
    let (hold, is_held) = channel();
    thread::scope(|scope| {
        let ended = scope.spawn(move || {
            holder.with_object_lock(ObjectId::new("Item", 1), |_| {
                hold.send(()).expect("the test");
                // Until the test has ended, also by a panic.
                let _ = released.recv();
                Ok::<_, diesel_locks::Error>(())
            })
        });
        is_held.recv().expect("held");
        for (command, output) in shown() {
            let here = |text: &str| {
                let replaced = known.iter();
                replaced.fold(text.to_owned(), |text, (shown, here)| {
                    text.replace(shown, here)
                })
            };
            let (program, arguments) = command.split_once(' ').expect("arguments");
            let (arguments, expected) = (here(arguments), masked(&here(output)));
            let mut printed = String::new();
            match program {
                // `pg_terminate_backend` returns before the session has ended.
                "diesel-locks" if arguments.starts_with("list ") => wait_until(command, || {
                    printed = cli.text(&arguments.split(' ').collect::<Vec<_>>());
                    masked(&printed) == expected
                }),
                "diesel-locks" => printed = cli.text(&arguments.split(' ').collect::<Vec<_>>()),
                "psql" => {
                    let query = arguments.split('\'').nth(1).expect("a query");
                    let query = query.strip_prefix("SELECT ").expect("one function");
                    let is_so: bool = diesel::select(sql::<Bool>(query))
                        .get_result(&mut own.server)
                        .expect(query);
                    printed.push(if is_so { 't' } else { 'f' });
                }
                // It needs a running service.
                "curl" => continue,
                _ => panic!("{command}"),
            }
            assert_eq!(masked(&printed), expected, "{command}: {printed}");
            for before in ["session ", "fence "] {
                let (shown, here) = (
                    number_behind(before, output),
                    number_behind(before, &printed),
                );
                known.extend(shown.zip(here));
            }
        }
        drop(release);
        let lost = ended.join().expect("no panic");
        assert!(lost.is_err_and(|error| error.is_connection_lost()));
    });
    assert!(cli.slots("counter").is_empty());
}
