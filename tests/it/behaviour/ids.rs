//! What an id may be, and which ids are one.

use std::sync::{Arc, Mutex};

use diesel::connection::{Connection, InstrumentationEvent};
use diesel_locks::error::InvalidName;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};

use crate::support::Backend;

pub(crate) fn ids_are_compared_as_bytes<B: Backend>() {
    let database = B::new();
    // The last two are one letter in two spellings.
    let four = ["a", "A", "á", "a ", "a\u{301}"];
    let mut holder = database.connect();
    for retention in [Retention::Kept, Retention::Transient] {
        holder
            .with_object_lock(LockRequest::new(four[0]).retention(retention), |_| {
                for other in &four[1..] {
                    let tried = database.connect().try_with_object_lock(
                        LockRequest::new(*other).retention(retention),
                        |_| Ok::<_, Error>(()),
                    )?;
                    assert_eq!(tried.is_none(), B::ONE_WRITER, "{other:?}");
                }
                Ok::<_, Error>(())
            })
            .expect("the lock is free");
    }
    let kept = LockRequest::all(four).retention(Retention::Kept);
    holder
        .with_object_lock(kept, |_| Ok::<_, Error>(()))
        .expect("free");
    assert_eq!(database.rows(), 5);
}

pub(crate) fn longest_id_is_not_truncated<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for letter in ["x", "é", "漢", "🔒"] {
        let longest = letter.repeat(255);
        let almost = format!("{}y", letter.repeat(254));
        let both = LockRequest::all([&longest, &almost]).retention(Retention::Kept);
        conn.with_object_lock(both, |_| Ok::<_, Error>(()))
            .expect("free");
        assert_eq!(database.rows(), 2, "{letter}");
        assert_eq!(conn.purge_object_locks().expect("purge"), 2);

        let error = conn
            .with_object_lock(format!("{longest}{letter}"), |_| Ok::<_, Error>(()))
            .expect_err("256 characters");
        assert!(
            matches!(
                error,
                Error::InvalidName(InvalidName::TooLong { chars: 256, .. })
            ),
            "{error:?}"
        );
    }
}

pub(crate) fn unusable_ids_are_refused_before_any_statement<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let statements = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&statements);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if matches!(
            event,
            InstrumentationEvent::StartQuery { .. } | InstrumentationEvent::BeginTransaction { .. }
        ) {
            *counted.lock().expect("unpoisoned") += 1;
        }
    });
    let unusable = [
        (ObjectId::from(""), "1 to 255 characters; this one is empty"),
        (ObjectId::from("a\0b"), "NUL"),
        (ObjectId::from("y".repeat(300)), "this one has 300"),
        (ObjectId::new("Bond:BO", "1"), "\"Bond:BO\""),
        (ObjectId::new("", "1"), "\":1\""),
        (ObjectId::new("BondBO", ""), "\"BondBO:\""),
    ];
    for (id, said) in unusable {
        let errors = [
            conn.with_object_lock(&id, |_| Ok::<_, Error>(()))
                .expect_err(said),
            conn.try_with_object_lock(&id, |_| Ok::<_, Error>(()))
                .expect_err(said),
            conn.with_object_lock([&ObjectId::from("a"), &id], |_| Ok::<_, Error>(()))
                .expect_err(said),
            conn.lock_object(&id).expect_err(said),
            conn.try_lock_object(&id).expect_err(said),
        ];
        for error in errors {
            assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
            assert!(error.to_string().contains(said), "{error}");
        }
    }
    assert_eq!(*statements.lock().expect("unpoisoned"), 0);
}

pub(crate) fn sql_injection_in_ids_has_no_effect<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let hostile = [
        "'; DROP TABLE counters; --",
        "\\",
        "\\x41",
        "$1 ? :a {}",
        "\u{202e}right to left\n\t\"quoted\" `ticks` %s",
        "061828591|01/10/2020|0|1.1|0|1",
        "*/ /*",
    ];
    for retention in [Retention::Transient, Retention::Kept] {
        for id in hostile {
            let lock = LockRequest::new(id).retention(retention);
            conn.with_object_lock(&lock, |conn| conn.lock_object(&lock))
                .expect(id);
        }
    }
    assert_eq!(database.rows(), i64::try_from(hostile.len()).expect("few"));
    assert_eq!(B::counter(&mut conn, 0), 0, "the table is still there");
}

/// `settings`: statements that change what a literal of text means in a session, by its escapes, quotes or bytes. The
/// holder's ids stand in the SQL, the other session's are bound.
pub(crate) fn settings_do_not_change_ids<B: Backend>(settings: &[&str]) {
    let database = B::new();
    let mut other = database.connect();
    let ids = [
        "BondBO:DK0015966592",
        "BONDBO:DK0015966592",
        "BondBO:DK0015966592 ",
        "- a_b.c:d/e@f,g+h=i",
        "a' OR 'a' = 'a",
        "a\\' OR 1 -- ",
        "a\\",
        "\"a\"",
        "$1 ? ; % |",
        "表",
        "é",
    ];
    for setting in settings {
        let mut holder = database.connect();
        B::sql(&mut holder, setting);
        for retention in [Retention::Transient, Retention::Kept] {
            for id in ids {
                holder
                    .with_object_lock(LockRequest::new(id).retention(retention), |_| {
                        for another in ids {
                            let lock = LockRequest::new(another).retention(retention);
                            let tried = other.try_with_object_lock(lock, |_| Ok::<_, Error>(()))?;
                            assert_eq!(tried.is_none(), id == another, "{setting}: {id} {another}");
                        }
                        Ok::<_, Error>(())
                    })
                    .expect("free");
            }
        }
        let rows = i64::try_from(ids.len()).expect("few");
        assert_eq!(database.rows(), rows, "{setting}");
    }
}
