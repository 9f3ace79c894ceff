//! The targets for gap-free sequences and transactions, as ratios to statements by hand, interleaved in one run as in
//! `ratios`.
//!
//! ```text
//! cargo xtask with-servers --durable -- \
//!     cargo bench --features postgres,mysql,sqlite --bench sequences
//! ```
//!
//! Options follow `--`; `--help` lists them.

#[path = "report/options.rs"]
mod common_options;
#[path = "report/comparison.rs"]
mod comparison;
#[path = "sequences/designs.rs"]
mod designs;
#[path = "sequences/options.rs"]
mod options;
#[path = "report/samples.rs"]
mod samples;
#[path = "sequences/speed.rs"]
mod speed;
#[path = "sequences/sql.rs"]
mod sql;
#[expect(dead_code, reason = "the part about object locks")]
mod support;
#[path = "sequences/tables.rs"]
mod tables;
#[path = "report/targets.rs"]
mod targets;
#[path = "sequences/transaction.rs"]
mod transaction;

use anyhow::Result;
use diesel::{MysqlConnection, PgConnection, SqliteConnection};

use options::{Options, Part};
use speed::Scenario;
use sql::Baselines;
use support::connections::Connections;
use support::engine_filter::Engine;
use targets::Findings;

const JUDGED: &str = "Transactions per second: each draws a number and inserts a row.";

fn main() -> Result<()> {
    let Some(options) = options::from_arguments()? else {
        return Ok(());
    };
    println!("{}", options.describe());
    let mut versions = Vec::new();
    let mut findings = Findings::default();
    for &engine in &options.common.backends {
        let (version, found) = match engine {
            Engine::Postgres => all::<PgConnection>(&options, engine)?,
            Engine::Mysql => all::<MysqlConnection>(&options, engine)?,
            Engine::Sqlite => all::<SqliteConnection>(&options, engine)?,
        };
        versions.push(version);
        findings.add(found);
    }
    findings.report(&options.common, &versions, JUDGED)
}

/// All parts on one engine.
fn all<C: Baselines>(options: &Options, engine: Engine) -> Result<(String, Findings)> {
    let version = Connections::<C>::new(1)?.version()?;
    println!("\n## {version}\n");
    let mut findings = Findings::default();
    // One writer: more connections would measure who gets the file.
    let crowds: &[u32] = if engine == Engine::Sqlite {
        &[1]
    } else {
        &[1, 8]
    };
    if options.common.has(Part::One) {
        for &connections in crowds {
            let scenario = Scenario::One;
            let found = speed::compare::<C>(options, &version, engine, scenario, connections)?;
            findings.add(found);
        }
    }
    if options.common.has(Part::Many) && engine != Engine::Sqlite {
        let found = speed::compare::<C>(options, &version, engine, Scenario::Many, 8)?;
        findings.add(found);
    }
    if options.common.has(Part::Transaction) {
        findings.add(transaction::compare::<C>(options, &version, engine)?);
    }
    Ok((version, findings))
}
