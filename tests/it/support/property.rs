//! Runs properties.
//!
//! A run has a seed, which a failure prints together with the smallest input that still fails. Nothing is
//! written into `proptest-regressions`: one body runs on every engine, and a file would have to be brought
//! back from the machine that ran it. The seed is enough to see the failure again, and a case that showed a
//! defect gets a test of its own.

use std::cell::RefCell;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestError, TestRunner};

use super::{Backend, tables};

/// The cases of a property, unless `PROPTEST_CASES` says otherwise.
pub(crate) const CASES: u32 = 64;

/// For how long a failing input is made smaller, at most, in milliseconds.
const LONGEST_SHRINKING: u32 = 20_000;

/// What the properties of this crate run with.
pub(crate) fn config(cases: u32) -> Config {
    let is_set = |variable| std::env::var_os(variable).is_some();
    // With what PROPTEST_CASES, PROPTEST_RNG_SEED and their kin say.
    let mut config = Config::default();
    if !is_set("PROPTEST_CASES") {
        config.cases = cases;
    }
    if !is_set("PROPTEST_MAX_SHRINK_TIME") {
        config.max_shrink_time = LONGEST_SHRINKING;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(fastrand::u64(..));
    }
    config.failure_persistence = None;
    config
}

/// Runs `check` on many inputs.
pub(crate) fn check_property<S: Strategy>(
    config: Config,
    inputs: &S,
    check: impl Fn(S::Value) -> TestCaseResult,
) {
    let (seed, cases) = (config.rng_seed, config.cases);
    match TestRunner::new(config).run(inputs, check) {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => panic!(
            "{why}\nsmallest input: {input:#?}\nagain: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases}"
        ),
        Err(error) => panic!("{error}\nagain: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases}"),
    }
}

/// Two sessions of a database.
pub(crate) struct Sessions<B: Backend> {
    pub(crate) one: B::Conn,
    pub(crate) other: B::Conn,
}

/// Checks a property on one database, whose tables are empty at the beginning of each case.
pub(crate) fn check_property_on<B: Backend, S: Strategy>(
    cases: u32,
    inputs: &S,
    check: impl Fn(&mut Sessions<B>, S::Value) -> TestCaseResult,
) {
    let database = B::new();
    // A case that fails takes its sessions with it: whatever it left open is closed.
    let idle = RefCell::new(None);
    check_property(config(cases), inputs, |input| {
        let mut sessions = idle.take().unwrap_or_else(|| Sessions {
            one: database.connect(),
            other: database.connect(),
        });
        tables::clear::<B>(&mut sessions.one);
        check(&mut sessions, input)?;
        idle.replace(Some(sessions));
        Ok(())
    });
}
