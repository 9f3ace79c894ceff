//! Whatever is given: it goes into the database and out of it as it was, or is refused with an error that
//! says so; no other row is touched, and nothing panics.

use diesel_locks::Error;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::slots::hour;
use crate::support::Backend;
use crate::support::inputs::said_of;

pub(crate) mod forgeries;
pub(crate) mod ids;
pub(crate) mod leases;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod retries;
pub(crate) mod times;

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
    let typed = matches!(error, Error::InvalidObjectId(_) | Error::InvalidName(_));
    prop_assert!(typed, "{error:?}");
    says(&error, &said_of(text))
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

/// Refusals in an open transaction, which goes on to write and to commit.
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
