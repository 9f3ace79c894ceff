//! Lists of semaphores, held slots and sequences.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel_locks::limits::MAX_LISTED;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions, SemaphoreInfo};

use super::sequences::in_own_transaction;
use super::slots::{acquire, one_hour, slots_of};
use crate::support::Backend;
use crate::support::threads::{LONG, begin, result_of, roll_back, spawn};

const COMMANDS: &str = include_str!("../../../docs/command.md");

/// Names in the order of their bytes, which no server's collation has, and which a pattern of LIKE would confuse.
const NAMES: [&str; 12] = [
    " a",
    "%",
    "'; DROP TABLE diesel_locks_slots; --",
    "<script>alert(1)</script>",
    "A",
    "\\",
    "_",
    "a",
    "a ",
    "ab",
    "é",
    "🔒",
];

fn semaphores<C: InspectExt>(conn: &mut C, options: &ListOptions) -> Vec<String> {
    let listed = conn.semaphores(options).expect("rows");
    listed.into_iter().map(|semaphore| semaphore.name).collect()
}

fn keys<C: InspectExt>(conn: &mut C, options: &ListOptions) -> Vec<(String, Option<String>)> {
    let listed = conn.sequences(options).expect("rows");
    let key = listed
        .into_iter()
        .map(|sequence| (sequence.name, sequence.key));
    key.collect()
}

fn draw<B: Backend>(conn: &mut B::Conn, sequence: &Sequence) -> i64 {
    in_own_transaction::<B, _>(conn, |conn| conn.next_number(sequence)).expect("a number")
}

pub(crate) fn empty_database_lists_nothing<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let all = ListOptions::new();
    assert_eq!(conn.semaphores(&all).expect("rows"), []);
    assert_eq!(conn.held_slots(&all).expect("rows"), []);
    assert_eq!(conn.sequences(&all).expect("rows"), []);
}

/// The statements of the document, on a database whose session has another time zone.
pub(crate) fn documented_statements_show_and_release_a_slot<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let (engine, time_zone) = match B::ENGINE {
        "postgres" => ("-- PostgreSQL", "SET TimeZone = 'Asia/Kolkata'"),
        "mysql" => ("-- MySQL", "SET time_zone = '+05:30'"),
        _ => ("-- SQLite", ""),
    };
    let blocks = COMMANDS.split("```sql\n").skip(1);
    let blocks = blocks.map(|block| block.split_once(";\n```").expect("an end").0);
    let blocks: Vec<_> = blocks.collect();
    let lists = |block: &&&str| block.starts_with(engine);
    let (_, list) = blocks
        .iter()
        .find(lists)
        .expect(engine)
        .split_once('\n')
        .expect("a statement");
    let release = blocks.last().expect("the statement that releases");

    let semaphore = Semaphore::new("collate-logs", 2);
    let lease = one_hour().holder("web-2/4711");
    let slots: Vec<_> = (0..2)
        .map(|_| conn.try_acquire_slot(&semaphore, &lease))
        .collect();
    let released = slots.into_iter().flatten().flatten();
    let released = released
        .max_by_key(diesel_locks::Slot::number)
        .expect("two are free");
    conn.release_slot(released).expect("ours");
    let held = conn.held_slots(&ListOptions::new()).expect("rows");
    let [held] = &held[..] else {
        panic!("{held:?}");
    };
    let seconds = |at: DateTime<Utc>| at.format("%Y-%m-%d %H:%M:%S").to_string();
    let within = |column: &str, at: DateTime<Utc>| {
        let next = at + Duration::from_secs(1);
        format!(
            "{column} >= '{}' AND {column} < '{}'",
            seconds(at),
            seconds(next)
        )
    };
    B::sql(&mut conn, time_zone);
    let all = format!("SELECT COUNT(*) FROM ({list}) AS shown");
    assert_eq!(B::number(&mut conn, &all), 1);
    let this = format!(
        "{all} WHERE name = 'collate-logs' AND number = {} AND holder = 'web-2/4711' AND fence = {} AND data IS NULL AND {} AND {}",
        held.number,
        held.fence,
        within("acquired_at", held.acquired_at),
        within("expires_at", held.expires_at)
    );
    assert_eq!(B::number(&mut conn, &this), 1, "{this}");

    // Not with the fence of another grant.
    B::sql(&mut conn, release);
    assert_eq!(B::number(&mut conn, &all), 1);
    let (rest, _) = release.rsplit_once(' ').expect("a fence");
    let this = format!("{rest} {}", held.fence);
    let this = this.replace("number = 1", &format!("number = {}", held.number));
    B::sql(&mut conn, &this);
    assert_eq!(B::number(&mut conn, &all), 0);
    let _both = [(); 2].map(|()| acquire::<B>(&mut conn, &semaphore));
}

pub(crate) fn semaphores_are_listed_with_their_holders<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let (registered, used) = (Semaphore::new("registered", 3), Semaphore::new("used", 2));
    conn.register_semaphores([&registered]).expect("register");
    let holder = one_hour().holder("<script>");
    let first = conn
        .try_acquire_slot(&registered, holder)
        .expect("an answer")
        .expect("free");
    let second = acquire::<B>(&mut conn, &registered);
    let third = acquire::<B>(&mut conn, &used);
    conn.release_slot(second).expect("ours");
    let all = ListOptions::new();
    let info = |semaphore: &SemaphoreInfo| {
        let SemaphoreInfo {
            name,
            permits,
            slots,
            held,
            ..
        } = semaphore;
        (name.clone(), *permits, *slots, *held)
    };
    let listed: Vec<_> = conn
        .semaphores(&all)
        .expect("rows")
        .iter()
        .map(info)
        .collect();
    assert_eq!(
        listed,
        [
            ("registered".to_owned(), Some(3), 3, 1),
            ("used".to_owned(), None, 2, 1)
        ]
    );
    // With fewer permits the rows stay.
    conn.register_semaphores([Semaphore::new("registered", 1)])
        .expect("register");
    assert_eq!(
        info(&conn.semaphores(&all).expect("rows")[0]),
        ("registered".to_owned(), Some(1), 3, 1)
    );

    let held = conn.held_slots(&all).expect("rows");
    let mut expected = conn.held_slots(&slots_of(&registered)).expect("rows");
    expected.extend(conn.held_slots(&slots_of(&used)).expect("rows"));
    assert_eq!(held.len(), 2, "{held:?}");
    for (held, expected) in held.iter().zip(&expected) {
        assert!(held.remaining <= expected.remaining + LONG, "{held:?}");
        let mut held = held.clone();
        held.remaining = expected.remaining;
        assert_eq!(held, *expected);
    }
    assert_eq!(held[0].holder.as_deref(), Some("<script>"));
    assert_eq!(held[0].token, Some(first.token()));
    assert_eq!(
        (held[1].token, held[1].fence),
        (Some(third.token()), third.fence())
    );
    conn.release_slot(first).expect("ours");
    conn.release_slot(third).expect("ours");
    assert_eq!(conn.held_slots(&all).expect("rows"), []);
    assert!(
        conn.semaphores(&all)
            .expect("rows")
            .iter()
            .all(|semaphore| semaphore.held == 0)
    );
}

pub(crate) fn semaphores_are_filtered_by_bytes<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for name in NAMES {
        let _held = acquire::<B>(&mut conn, &Semaphore::new(name, 2));
    }
    assert_eq!(semaphores(&mut conn, &ListOptions::new()), NAMES);
    for prefix in NAMES.into_iter().chain(["<", "a b", "'", "\u{10ffff}"]) {
        let fits: Vec<_> = NAMES
            .into_iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        let options = ListOptions::new().name_prefix(prefix);
        assert_eq!(semaphores(&mut conn, &options), fits, "{prefix:?}");
        let slots = conn.held_slots(&options).expect("rows");
        let names: Vec<_> = slots.into_iter().map(|slot| slot.semaphore).collect();
        assert_eq!(names, fits, "{prefix:?}");
    }
    for name in NAMES {
        assert_eq!(semaphores(&mut conn, &slots_of(name)), [name]);
    }
    let two = ListOptions::new().limit(2);
    assert_eq!(conn.held_slots(&two).expect("rows").len(), 2);
    assert_eq!(semaphores(&mut conn, &two.name_prefix("a")), ["a", "a "]);
    assert_eq!(
        semaphores(&mut conn, &ListOptions::new().name("none")),
        [""; 0]
    );
}

pub(crate) fn sequences_are_filtered_by_key<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut all = Vec::new();
    for name in ["invoice", "pass", "pass_2", "passport"] {
        all.push((name.to_owned(), None));
        draw::<B>(&mut conn, &Sequence::new(name));
    }
    for key in NAMES {
        all.push(("pass".to_owned(), Some(key.to_owned())));
        draw::<B>(&mut conn, &Sequence::new("pass").for_key(key));
    }
    all.sort();
    let options = ListOptions::new();
    assert_eq!(keys(&mut conn, &options), all);
    let numbers = conn.sequences(&options).expect("rows");
    assert!(
        numbers.iter().all(|sequence| sequence.last_number == 1),
        "{numbers:?}"
    );
    assert_eq!(draw::<B>(&mut conn, &Sequence::new("pass").for_key("%")), 2);
    let one = conn
        .sequences(&options.clone().name("pass").key_prefix("%"))
        .expect("rows");
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].last_number, 2);

    for (filter, name, name_prefix, key_prefix) in [
        (options.clone().name("pass"), Some("pass"), "", ""),
        (options.clone().name_prefix("pass"), None, "pass", ""),
        (options.clone().key_prefix("a"), None, "", "a"),
        (
            options.clone().name("pass").key_prefix("a"),
            Some("pass"),
            "",
            "a",
        ),
        (options.clone().name("invoice"), Some("invoice"), "", ""),
    ] {
        let mut fits = all.clone();
        fits.retain(|(of, key)| {
            name.is_none_or(|name| of == name)
                && of.starts_with(name_prefix)
                && key.as_deref().unwrap_or_default().starts_with(key_prefix)
        });
        assert_eq!(keys(&mut conn, &filter), fits);
        assert_eq!(keys(&mut conn, &filter.limit(1)), fits[..1]);
    }
}

/// A transaction holds a slot and has drawn a number. What is not committed is not listed.
pub(crate) fn lists_do_not_wait_for_transactions<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let two = Semaphore::new("two", 2);
    let leased = acquire::<B>(&mut conn, &two);
    let sequence = Sequence::new(super::sequences::unique_name("pass"));
    draw::<B>(&mut conn, &sequence);
    let (has, it_has) = channel();
    let (end, ended) = channel::<()>();
    let held = {
        let (database, two, sequence) = (Arc::clone(&database), two.clone(), sequence.clone());
        spawn(move || {
            B::in_transaction(&mut database.connect(), |conn| {
                conn.with_slot(&two, Wait::No, |conn| {
                    conn.next_number(&sequence)?;
                    has.send(()).expect("the test waits for it");
                    // Also when the test has failed.
                    let _ = ended.recv();
                    Ok::<_, Error>(())
                })
            })
        })
    };
    it_has.recv_timeout(LONG).expect("all is free");
    // On a thread: a list that waits fails the test.
    let listed = {
        let database = Arc::clone(&database);
        let leased = leased.clone();
        spawn(move || {
            let mut conn = database.connect();
            for in_transaction in [false, true] {
                if in_transaction {
                    begin(&mut conn);
                }
                let options = ListOptions::new();
                assert_eq!(conn.semaphores(&options).expect("rows")[0].held, 1);
                let held = conn.held_slots(&options).expect("rows");
                assert_eq!(held.len(), 1);
                assert_eq!(held[0].token, Some(leased.token()));
                assert_eq!(conn.sequences(&options).expect("rows")[0].last_number, 1);
            }
            roll_back(&mut conn);
        })
    };
    result_of(&listed);
    end.send(()).expect("the transaction waits for it");
    result_of(&held).expect("commit");
    assert_eq!(
        conn.sequences(&ListOptions::new()).expect("rows")[0].last_number,
        2
    );
}

pub(crate) fn databases_are_listed_apart<B: Backend>() {
    let (one, other) = (B::new(), B::new());
    let _held = acquire::<B>(&mut one.connect(), &Semaphore::new("one", 1));
    draw::<B>(
        &mut one.connect(),
        &Sequence::new(super::sequences::unique_name("one")),
    );
    let mut conn = other.connect();
    let all = ListOptions::new();
    assert_eq!(conn.semaphores(&all).expect("rows"), []);
    assert_eq!(conn.held_slots(&all).expect("rows"), []);
    assert_eq!(conn.sequences(&all).expect("rows"), []);
}

pub(crate) fn unusable_list_options_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for limit in [0, MAX_LISTED + 1, u32::MAX] {
        let options = ListOptions::new().limit(limit);
        let errors = [
            conn.semaphores(&options).expect_err("the limit"),
            conn.held_slots(&options).expect_err("the limit"),
            conn.sequences(&options).expect_err("the limit"),
        ];
        for error in errors {
            assert!(
                matches!(error, Error::InvalidLimit { requested } if requested == limit),
                "{error:?}"
            );
            let text = error.to_string();
            assert!(
                text.contains(&limit.to_string()) && text.contains("10000"),
                "{text}"
            );
        }
    }
    let long = "é".repeat(256);
    for text in ["\0", long.as_str()] {
        for options in [
            ListOptions::new().name(text),
            ListOptions::new().name_prefix(text),
            ListOptions::new().key_prefix(text),
        ] {
            let errors = [
                conn.semaphores(&options).expect_err("the text"),
                conn.held_slots(&options).expect_err("the text"),
                conn.sequences(&options).expect_err("the text"),
            ];
            for error in errors {
                assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
            }
        }
    }
    let empty = conn
        .semaphores(&ListOptions::new().name(""))
        .expect_err("no name");
    assert!(matches!(empty, Error::InvalidName(_)), "{empty:?}");
    let limit = ListOptions::new().limit(MAX_LISTED);
    assert_eq!(conn.sequences(&limit).expect("the largest limit"), []);
}
