//! Lists of semaphores, held slots and sequences.

use std::sync::Arc;
use std::sync::mpsc::channel;

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions, SemaphoreInfo};

use super::sequences::in_own_transaction;
use super::slots::{acquire, one_hour};
use crate::support::Backend;
use crate::support::threads::{LONG, begin, result_of, roll_back, spawn};

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
    assert_eq!(conn.all_held_slots(&all).expect("rows"), []);
    assert_eq!(conn.sequences(&all).expect("rows"), []);
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

    let held = conn.all_held_slots(&all).expect("rows");
    let mut expected = conn.held_slots(&registered).expect("rows");
    expected.extend(conn.held_slots(&used).expect("rows"));
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
    assert_eq!(conn.all_held_slots(&all).expect("rows"), []);
    assert!(
        conn.semaphores(&all)
            .expect("rows")
            .iter()
            .all(|semaphore| semaphore.held == 0)
    );
}

pub(crate) fn semaphores_are_filtered_and_paged_by_bytes<B: Backend>() {
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
        let slots = conn.all_held_slots(&options).expect("rows");
        let names: Vec<_> = slots.into_iter().map(|slot| slot.semaphore).collect();
        assert_eq!(names, fits, "{prefix:?}");
    }
    for (at, name) in NAMES.into_iter().enumerate() {
        assert_eq!(
            semaphores(&mut conn, &ListOptions::new().name(name)),
            [name]
        );
        let after = ListOptions::new().after(name).limit(3);
        let page: Vec<_> = NAMES.into_iter().skip(at + 1).take(3).collect();
        assert_eq!(semaphores(&mut conn, &after), page, "after {name:?}");
        assert_eq!(semaphores(&mut conn, &after.after_key(name, "key")), page);
    }
    let limited = conn
        .all_held_slots(&ListOptions::new().limit(2))
        .expect("rows");
    assert_eq!(limited.len(), 2);
    assert_eq!(
        semaphores(
            &mut conn,
            &ListOptions::new().name_prefix("a").after("a").limit(1)
        ),
        ["a "]
    );
    assert_eq!(
        semaphores(&mut conn, &ListOptions::new().name("none")),
        [""; 0]
    );
}

pub(crate) fn sequences_are_filtered_and_paged_by_key<B: Backend>() {
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

    // Page by page, of each size and with each filter.
    for filter in [
        ListOptions::new(),
        ListOptions::new().name("pass"),
        ListOptions::new().name_prefix("pass"),
        ListOptions::new().key_prefix("a"),
        ListOptions::new().name("pass").key_prefix("a"),
        ListOptions::new().name("invoice"),
    ] {
        let fits = keys(&mut conn, &filter);
        assert!(!fits.is_empty());
        for limit in [1, 2, 5, 16] {
            let mut options = filter.clone().limit(limit);
            let mut listed = Vec::new();
            loop {
                let page = keys(&mut conn, &options);
                assert!(page.len() <= limit.try_into().expect("few"), "{page:?}");
                let Some((name, key)) = page.last() else {
                    break;
                };
                options = options.after_key(name, key.clone().unwrap_or_default());
                listed.extend(page);
            }
            assert_eq!(listed, fits, "{filter:?}");
        }
    }
    let of_pass = keys(&mut conn, &ListOptions::new().name("pass"));
    assert_eq!(of_pass.len(), NAMES.len() + 1);
    let after = keys(&mut conn, &ListOptions::new().after("pass"));
    assert_eq!(
        after,
        [("pass_2".to_owned(), None), ("passport".to_owned(), None)]
    );
    // One that the filter leaves out.
    let after = ListOptions::new().name("pass").after_key("invoice", "z");
    assert_eq!(keys(&mut conn, &after), of_pass);
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
                let held = conn.all_held_slots(&options).expect("rows");
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
    assert_eq!(conn.all_held_slots(&all).expect("rows"), []);
    assert_eq!(conn.sequences(&all).expect("rows"), []);
}

pub(crate) fn unusable_list_options_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for limit in [0, ListOptions::MAX_LIMIT + 1, u32::MAX] {
        let options = ListOptions::new().limit(limit);
        let errors = [
            conn.semaphores(&options).expect_err("the limit"),
            conn.all_held_slots(&options).expect_err("the limit"),
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
            ListOptions::new().after(text),
            ListOptions::new().key_prefix(text),
            ListOptions::new().after_key("a", text),
        ] {
            let errors = [
                conn.semaphores(&options).expect_err("the text"),
                conn.all_held_slots(&options).expect_err("the text"),
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
    let limit = ListOptions::new().limit(ListOptions::MAX_LIMIT);
    assert_eq!(conn.sequences(&limit).expect("the largest limit"), []);
}
