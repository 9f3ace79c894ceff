//! What can't be drawn.

use diesel_locks::Error;
use diesel_locks::error::{InvalidName, NameKind};
use diesel_locks::prelude::*;

use super::in_own_transaction;
use crate::support::Backend;

pub(crate) fn a_draw_needs_a_transaction<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let sequence = Sequence::new("invoice");
    let error = conn.next_number(&sequence).expect_err("no transaction");
    assert!(matches!(
        error,
        Error::NotInTransaction {
            method: "next_number"
        }
    ));
    let error = conn.next_numbers(&sequence, 2).expect_err("no transaction");
    assert!(matches!(
        error,
        Error::NotInTransaction {
            method: "next_numbers"
        }
    ));
    assert_eq!(conn.last_number(&sequence).expect("rows"), None);
}

pub(crate) fn exhausted_sequence_leaves_the_transaction_usable<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let end = Sequence::new("end").start_with(i64::MAX - 1);
    let error = in_own_transaction::<B, _>(&mut conn, |conn| conn.next_numbers(&end, 3))
        .expect_err("two left");
    let Error::SequenceExhausted { count, last, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!((*count, *last), (3, i64::MAX - 2));
    for _ in 0..2 {
        in_own_transaction::<B, _>(&mut conn, |conn| {
            // Known to the process from the second round on.
            let before = conn.last_number(&end)?;
            let error = conn.next_numbers(&end, u32::MAX).expect_err("too many");
            assert!(error.to_string().contains("4294967295"), "{error}");
            assert!(error.to_string().contains("9223372036854775807"), "{error}");
            assert_eq!(conn.last_number(&end)?, before);
            conn.next_number(&end)?;
            conn.next_number(&Sequence::new("other"))
        })
        .expect("usable");
    }
    let error = in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&end))
        .expect_err("none left");
    let Error::SequenceExhausted { last, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*last, i64::MAX);
    assert_eq!(conn.last_number(&end).expect("rows"), Some(i64::MAX));
    let other = conn.last_number(&Sequence::new("other")).expect("rows");
    assert_eq!(other, Some(2));
}

pub(crate) fn unusable_sequences_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let long = "é".repeat(256);
    let error = in_own_transaction::<B, _>(&mut conn, |conn| {
        conn.next_number(&Sequence::new("ok").start_with(0))
    });
    assert!(
        matches!(error, Err(Error::InvalidStart { start: 0, .. })),
        "{error:?}"
    );
    let error =
        in_own_transaction::<B, _>(&mut conn, |conn| conn.next_numbers(&Sequence::new("ok"), 0));
    assert!(
        matches!(error, Err(Error::InvalidCount { count: 0, .. })),
        "{error:?}"
    );
    for (sequence, subject) in [
        (Sequence::new(""), NameKind::Sequence),
        (Sequence::new(&long), NameKind::Sequence),
        (Sequence::new("a\0b"), NameKind::Sequence),
        (Sequence::new("ok").for_key(""), NameKind::SequenceKey),
        (Sequence::new("ok").for_key(&long), NameKind::SequenceKey),
        (Sequence::new("ok").for_key('\0'), NameKind::SequenceKey),
    ] {
        let drawn =
            in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&sequence).map(drop));
        let read = conn.last_number(&sequence).map(drop);
        for result in [drawn, read] {
            let Err(Error::InvalidName(error)) = result else {
                panic!("{result:?}");
            };
            let (InvalidName::Empty { subject: found }
            | InvalidName::TooLong { subject: found, .. }
            | InvalidName::Nul { subject: found, .. }) = &error
            else {
                panic!("{error:?}");
            };
            assert_eq!(*found, subject);
        }
    }
    let rows = B::number(&mut conn, "SELECT count(*) FROM diesel_locks_sequences");
    assert_eq!(rows, 0);
}

pub(crate) fn names_of_sequences_are_compared_as_bytes<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let longest = "\u{1f512}".repeat(255);
    let names = [
        "a",
        "A",
        "á",
        "a\u{301}",
        "a ",
        " a",
        "'; DROP TABLE diesel_locks_sequences; --",
        "%",
        "\\",
        "a\nb",
        "\u{202e}a",
        &longest,
    ];
    let mut sequences: Vec<_> = names.iter().map(Sequence::new).collect();
    for key in names {
        sequences.extend(["a", "A", &longest].map(|name| Sequence::new(name).for_key(key)));
    }
    for expected in [1, 2] {
        in_own_transaction::<B, _>(&mut conn, |conn| {
            for sequence in &sequences {
                assert_eq!(conn.next_number(sequence)?, expected, "{sequence}");
            }
            Ok(())
        })
        .expect("commit");
    }
    let rows = B::number(&mut conn, "SELECT count(*) FROM diesel_locks_sequences");
    assert_eq!(usize::try_from(rows), Ok(sequences.len()));
}

pub(crate) fn start_applies_to_the_first_draw_only<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for (first, expected) in [(1000, 1000), (5000, 1001), (1, 1002)] {
        let invoices = Sequence::new("invoice").start_with(first);
        let number = in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&invoices));
        assert_eq!(number.expect("free"), expected);
    }
}

/// Though no number were left if it had to start there.
pub(crate) fn large_start_does_not_exhaust_a_started_sequence<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let (started, late) = (
        Sequence::new("invoice"),
        Sequence::new("invoice").start_with(i64::MAX),
    );
    let error =
        in_own_transaction::<B, _>(&mut conn, |conn| conn.next_numbers(&late, 2)).expect_err("one");
    let Error::SequenceExhausted { last, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(last, i64::MAX - 1);
    for (sequence, expected) in [(&started, 1..=2), (&late, 3..=4)] {
        let drawn = in_own_transaction::<B, _>(&mut conn, |conn| conn.next_numbers(sequence, 2));
        assert_eq!(drawn.expect("there are plenty"), expected);
    }
    // What was drawn last, and not what would have been.
    let end = Sequence::new("end").start_with(i64::MAX);
    in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&end)).expect("the last number");
    let error =
        in_own_transaction::<B, _>(&mut conn, |conn| conn.next_numbers(&end, 2)).expect_err("none");
    let Error::SequenceExhausted { last, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(last, i64::MAX);
}

pub(crate) fn a_read_only_transaction_draws_nothing<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let sequence = Sequence::new("invoice");
    let result = conn.run_transaction(TransactionOptions::new().read_only(), |conn| {
        conn.next_number(&sequence)
    });
    let error = result.expect_err("read only");
    assert!(error.is_read_only(), "{error:?}");
    let number = in_own_transaction::<B, _>(&mut conn, |conn| conn.next_number(&sequence));
    assert_eq!(number.expect("free"), 1);
}
