//! Numbers of permits, and sequences: their names, where they start, how many are drawn.

use diesel_locks::Error;
use diesel_locks::prelude::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::{granted, nothing, one_hour, refused, refused_in_a_transaction, says};
use crate::behaviour::sequences::{in_own_transaction, unique_name};
use crate::support::Backend;
use crate::support::generators::{
    fits, large_numbers_around, numbers_around, short_texts, texts_with_similar,
};
use crate::support::property::{CASES, Sessions, check_property_on};

const MOST_PERMITS: u32 = 100_000;

/// More than that are not tried here; test `maximum_permits_are_all_granted` has the largest number.
const MANY_PERMITS: u32 = 120;

/// As many slots are granted as there are permits, and no more.
pub(crate) fn property_permits<B: Backend>() {
    let permits = prop_oneof![
        1..12_u32,
        99..104_u32,
        numbers_around(vec![0, MOST_PERMITS])
    ];
    check_property_on::<B, _>(CASES / 2, &permits, |Sessions { one, other }, permits| {
        let semaphore = Semaphore::new("some", permits);
        let usable = (1..=MOST_PERMITS).contains(&permits);
        prop_assert_eq!(semaphore.validate().is_ok(), usable);
        if usable && permits > MANY_PERMITS {
            return Ok(());
        }
        if usable {
            let first = granted(one.try_acquire_slot(&semaphore, one_hour())?, "the first")?;
            prop_assert!((1..=permits).contains(&first.number()));
            let slots = B::slots(other);
            prop_assert_eq!(u32::try_from(slots.len())?, permits);
            let end =
                "UPDATE diesel_locks_slots SET expires_us = 9000000000000000 WHERE number <= ";
            B::sql(one, &format!("{end}{}", permits - 1));
            let free = permits > 1
                && slots[&("some".to_owned(), i32::try_from(permits)?)]
                    .token
                    .is_none();
            let last = one.try_acquire_slot(&semaphore, one_hour())?;
            prop_assert_eq!(last.map(|slot| slot.number()), free.then_some(permits));
            prop_assert_eq!(other.try_acquire_slot(&semaphore, one_hour())?, None);
            prop_assert_eq!(other.try_with_slot(&semaphore, nothing)?, None);
            return Ok(());
        }
        let before = B::tables(other);
        let all = |conn: &mut B::Conn| {
            is_refused(conn.try_acquire_slot(&semaphore, one_hour()), permits)?;
            is_refused(
                conn.acquire_slot(&semaphore, one_hour(), Wait::Forever),
                permits,
            )?;
            is_refused(conn.try_with_slot(&semaphore, nothing), permits)?;
            is_refused(conn.with_slot(&semaphore, Wait::Forever, nothing), permits)?;
            let two = [&Semaphore::new("usable", 1), &semaphore];
            is_refused(conn.register_semaphores(two), permits)
        };
        all(one)?;
        refused_in_a_transaction::<B>(one, all)?;
        prop_assert_eq!(B::tables(other), before);
        Ok(())
    });
}

fn is_refused<T: std::fmt::Debug>(result: Result<T, Error>, value: u32) -> TestCaseResult {
    let error = refused(result)?;
    let typed = matches!(error, Error::InvalidPermits { permits, .. } if permits == value);
    prop_assert!(typed, "{:?}", error);
    says(&error, &["\"some\"", &value.to_string(), "1 to 100000"])
}

/// Of a name, a key, or both, each among its neighbours.
pub(crate) fn property_sequence_name<B: Backend>() {
    let inputs = (texts_with_similar(), short_texts());
    check_property_on::<B, _>(
        CASES,
        &inputs,
        |Sessions { one, other }, ((text, others), second)| {
            // The same letters on other sides of the border between name and key are other sequences.
            let second = if fits(&second) {
                second
            } else {
                "b".to_owned()
            };
            let sequences = [
                Sequence::new(&text),
                Sequence::new(&text).for_key(&second),
                Sequence::new(&second).for_key(&text),
            ];
            let mut bystanders: Vec<_> = others
                .iter()
                .flat_map(|other| {
                    [
                        Sequence::new(other),
                        Sequence::new(other).for_key(&second),
                        Sequence::new(&second).for_key(other),
                    ]
                })
                .chain([
                    Sequence::new(format!("{text}{second}")),
                    Sequence::new(format!("{second}{text}")),
                ])
                .filter(|sequence| sequence.validate().is_ok() && !sequences.contains(sequence))
                .collect();
            bystanders.dedup();
            in_own_transaction::<B, _>(one, |one| {
                bystanders
                    .iter()
                    .try_for_each(|sequence| one.next_numbers(sequence, 7).map(drop))
            })?;
            let mut expected = B::tables(other);
            if !fits(&text) {
                for sequence in &sequences {
                    super::refuses(one.last_number(sequence), &text)?;
                    super::refuses(one.next_number(sequence), &text)?;
                    refused_in_a_transaction::<B>(one, |one| {
                        super::refuses(one.next_number(sequence), &text)?;
                        super::refuses(one.next_numbers(sequence, 2), &text)
                    })?;
                }
                prop_assert_eq!(B::tables(other), expected);
                return Ok(());
            }
            for sequence in &sequences {
                let key = (
                    sequence.name().to_owned(),
                    sequence.key().unwrap_or_default().to_owned(),
                );
                let last = expected.sequences.get(&key).copied();
                prop_assert_eq!(one.last_number(sequence)?, last);
                let number = in_own_transaction::<B, _>(one, |one| one.next_number(sequence))?;
                prop_assert_eq!(number, last.unwrap_or(0) + 1);
                expected.sequences.insert(key, number);
                prop_assert_eq!(&B::tables(other), &expected);
            }
            Ok(())
        },
    );
}

/// Three draws, which differ in where they would start: the numbers that arithmetic without limits gives, or an error
/// when there are none.
pub(crate) fn property_drawn_numbers<B: Backend>() {
    let counts = || prop_oneof![0..5_u32, numbers_around(vec![0, u32::MAX])];
    let starts = || {
        large_numbers_around(vec![
            0,
            1,
            i64::MIN,
            i64::MAX,
            i64::MAX - i64::from(u32::MAX),
        ])
    };
    let inputs = [
        (starts(), counts()),
        (starts(), counts()),
        (starts(), counts()),
    ];
    check_property_on::<B, _>(CASES, &inputs, |Sessions { one, other }, draws| {
        let (some, others) = (unique_name("some"), unique_name("other"));
        let bystander = Sequence::new(&others);
        in_own_transaction::<B, _>(one, |one| one.next_number(&bystander))?;
        let mut expected = B::tables(other);
        let mut last = None;
        for (first, count) in draws {
            let sequence = Sequence::new(&some).start_with(first);
            let mut outcome = Ok(());
            let drawn = in_own_transaction::<B, _>(one, |one| {
                let drawn = one.next_numbers(&sequence, count);
                outcome = is_right(&drawn, &some, first, last, count);
                // The transaction continues, whatever the outcome.
                one.next_number(&bystander)?;
                Ok(drawn.ok())
            })?;
            outcome?;
            last = drawn.map(|drawn| *drawn.end()).or(last);
            if let Some(last) = last {
                expected
                    .sequences
                    .insert((some.clone(), String::new()), last);
            }
            if let Some(drawn) = expected.sequences.get_mut(&(others.clone(), String::new())) {
                *drawn += 1;
            }
            prop_assert_eq!(&B::tables(other), &expected);
        }
        Ok(())
    });
}

fn is_right(
    drawn: &Result<std::ops::RangeInclusive<i64>, Error>,
    name: &str,
    first: i64,
    last: Option<i64>,
    count: u32,
) -> TestCaseResult {
    let before = last.map_or(i128::from(first) - 1, i128::from);
    let end = before + i128::from(count);
    let (what, count_shown) = (format!("{name:?}"), count.to_string());
    match drawn {
        Ok(numbers) => {
            prop_assert!(first >= 1 && count >= 1);
            prop_assert_eq!(i128::from(*numbers.start()), before + 1);
            prop_assert_eq!(i128::from(*numbers.end()), end);
            Ok(())
        }
        Err(error @ Error::InvalidCount { .. }) => {
            prop_assert_eq!(count, 0);
            says(error, &[what, count_shown, "1 to 4294967295".to_owned()])
        }
        Err(error @ Error::InvalidStart { .. }) => {
            prop_assert!(first < 1);
            says(error, &[what, first.to_string(), i64::MAX.to_string()])
        }
        Err(error @ Error::SequenceExhausted { last, .. }) => {
            prop_assert!(first >= 1 && end > i128::from(i64::MAX));
            prop_assert_eq!(i128::from(*last), before);
            says(
                error,
                &[what, count_shown, last.to_string(), i64::MAX.to_string()],
            )
        }
        Err(error) => Err(TestCaseError::fail(format!("{error:?}"))),
    }
}
