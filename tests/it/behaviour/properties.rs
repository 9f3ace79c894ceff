//! Whatever is given: it goes into the database and out of it as it was, or is refused with an error that
//! says so; no other row is touched, and nothing panics.

use std::time::Duration;

use diesel_locks::Error;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::slots::one_hour;
use crate::support::Backend;
use crate::support::generators::expected_in_error;

pub(crate) mod forged_slots;
pub(crate) mod ids;
pub(crate) mod leases;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod retries;
pub(crate) mod waits;

/// The error names the duration, exactly, in a unit of its choice.
fn says_duration(error: &Error, duration: Duration) -> TestCaseResult {
    let shown = error.to_string();
    let words: Vec<&str> = shown
        .split(|c: char| !c.is_alphanumeric() && c != '.')
        .collect();
    let named = words
        .windows(2)
        .any(|pair| nanos(pair[0], pair[1]) == Some(duration.as_nanos()));
    prop_assert!(named, "{:?} is not in {:?}", duration, shown);
    Ok(())
}

fn nanos(number: &str, unit: &str) -> Option<u128> {
    let unit: u128 = match unit {
        "ns" => 1,
        "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "day" | "days" => 86_400_000_000_000,
        "year" | "years" => 31_557_600_000_000_000,
        _ => return None,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let nanos: u128 = format!("{decimals:0<9}").parse().ok()?;
    Some(whole.parse::<u128>().ok()? * unit + nanos * unit / 1_000_000_000)
}

/// The error, shown in both ways, says all of it.
fn says<S: AsRef<str>>(error: &Error, parts: &[S]) -> TestCaseResult {
    let (shown, debug) = (error.to_string(), format!("{error:?}"));
    prop_assert!(!debug.is_empty());
    for part in parts {
        let part = part.as_ref();
        prop_assert!(shown.contains(part), "{part:?} is not in {shown:?}");
    }
    Ok(())
}

/// A refusal of an unusable text.
fn refuses<T: std::fmt::Debug>(result: Result<T, Error>, text: &str) -> TestCaseResult {
    let error = refused(result)?;
    let typed = matches!(error, Error::InvalidName(_));
    prop_assert!(typed, "{error:?}");
    says(&error, &expected_in_error(text))
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> Result<Error, TestCaseError> {
    match result {
        Ok(value) => Err(TestCaseError::fail(format!("not refused: {value:?}"))),
        Err(error) => Ok(error),
    }
}

fn granted<T>(result: Option<T>, what: &str) -> Result<T, TestCaseError> {
    result.ok_or_else(|| TestCaseError::fail(format!("not free: {what}")))
}

/// Refusals in an open transaction, which then writes and commits.
fn refused_in_a_transaction<B: Backend>(
    conn: &mut B::Conn,
    refuse: impl FnOnce(&mut B::Conn) -> TestCaseResult,
) -> TestCaseResult {
    let before = B::counter(conn, 0);
    let mut outcome = Ok(());
    B::in_transaction(conn, |conn| {
        outcome = refuse(conn);
        B::count_up(conn, 0);
        Ok(())
    })?;
    prop_assert_eq!(B::counter(conn, 0), before + 1);
    outcome
}

/// What a closure that does nothing returns.
#[allow(clippy::unnecessary_wraps, reason = "a closure's result")]
fn nothing<C>(_: &mut C) -> Result<(), Error> {
    Ok(())
}
