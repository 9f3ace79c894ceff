//! What `run_transaction` costs beside Diesel's `transaction`, around one statement that reads.

use anyhow::Result;
use clap::ValueEnum;
use diesel::QueryResult;
use diesel_locks::IsolationLevel;
use diesel_locks::prelude::*;

use crate::harness::{
    Backend, Connections, Engine, Limit, Plan, Report, Variant, compare, statements,
};

statements! {
    Read = "SELECT count(*) FROM diesel_locks_sequences";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Runner {
    #[value(name = "Diesel's transaction")]
    Diesel,
    /// At the session's level.
    #[value(name = "run_transaction")]
    Plain,
    /// READ COMMITTED, where there is that.
    #[value(name = "run_transaction at a level of its own")]
    Level,
}

impl Variant for Runner {}

impl Runner {
    fn cycle<C: Backend>(self, conn: &mut C) -> QueryResult<()> {
        let read = |conn: &mut C| conn.number::<Read>(&[]);
        let plain = TransactionOptions::new();
        let level = match C::ENGINE {
            Engine::Sqlite => IsolationLevel::Serializable,
            _ => IsolationLevel::ReadCommitted,
        };
        let number = match self {
            Self::Diesel => conn.transaction(read),
            Self::Plain => conn.run_transaction(plain, read),
            Self::Level => conn.run_transaction(plain.isolation(level), read),
        }?;
        assert_eq!(number, Some(0));
        Ok(())
    }
}

pub(crate) fn measure<C: Backend>(plan: Plan, report: &mut Report) -> Result<()> {
    let mut conns = Connections::<C>::new(1)?;
    let rows = compare(
        &mut conns,
        Runner::value_variants(),
        plan,
        |runner, conn, _, _| runner.cycle(conn),
    )?;
    // The ratios are those of the times to Diesel's.
    let scenario = "one statement that reads";
    report.speeds(scenario, &rows, Runner::Diesel, &[]);
    if C::ENGINE == Engine::Postgres {
        for runner in [Runner::Plain, Runner::Level] {
            let text = format!("1 connection: time of {} / Diesel's", runner.name());
            let ratio = rows.ratio(Runner::Diesel, runner);
            report.target(&text, ratio, Limit::AtMost(1.05));
        }
    }
    Ok(())
}
