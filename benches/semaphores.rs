//! The targets for semaphores, as ratios to other designs, interleaved in one run as in `ratios`.
//!
//! ```text
//! cargo xtask with-servers --durable -- \
//!     cargo bench --features postgres,mysql,sqlite,r2d2 --bench semaphores
//! ```
//!
//! Options follow `--`; `--help` lists them.

#[path = "report/options.rs"]
mod common_options;
#[path = "report/comparison.rs"]
mod comparison;
#[path = "semaphores/contended.rs"]
mod contended;
#[path = "semaphores/designs.rs"]
mod designs;
#[path = "semaphores/growth.rs"]
mod growth;
#[path = "semaphores/guards.rs"]
mod guards;
#[path = "semaphores/many_permits.rs"]
mod many_permits;
#[path = "semaphores/options.rs"]
mod options;
#[path = "report/samples.rs"]
mod samples;
#[path = "semaphores/speed.rs"]
mod speed;
#[path = "semaphores/sql.rs"]
mod sql;
#[expect(dead_code, reason = "the part about object locks")]
mod support;
#[path = "semaphores/tables.rs"]
mod tables;
#[path = "report/targets.rs"]
mod targets;
#[path = "semaphores/waiting.rs"]
mod waiting;

use anyhow::Result;
use diesel::r2d2::R2D2Connection;
use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use diesel_locks::prelude::*;

use options::{Options, Part};
use speed::Scenario;
use sql::Baselines;
use support::backend::Backend;
use support::connections::Connections;
use support::engine_filter::Engine;
use targets::Findings;

const JUDGED: &str = "A refusal is false when there are no more connections than permits.";

fn main() -> Result<()> {
    let Some(options) = options::from_arguments()? else {
        return Ok(());
    };
    println!("{}", options.describe());
    let mut versions = Vec::new();
    let mut findings = Findings::default();
    for engine in &options.common.backends {
        let (version, found) = match engine {
            Engine::Postgres => compare_with_baselines::<PgConnection>(&options, Engine::Postgres)?,
            Engine::Mysql => compare_with_baselines::<MysqlConnection>(&options, Engine::Mysql)?,
            // One writer: no design is faster than the disk, and there are no rows to skip.
            Engine::Sqlite => measure_alone::<SqliteConnection>(&options, &[1])?,
        };
        versions.push(version);
        findings.add(found);
    }
    findings.report(&options.common, &versions, JUDGED)
}

fn compare_with_baselines<C: Baselines + R2D2Connection + Send + 'static>(
    options: &Options,
    engine: Engine,
) -> Result<(String, Findings)> {
    let version = Connections::<C>::new(1)?.version()?;
    println!("\n## {version}\n");
    let mut findings = Findings::default();
    let mut compare = |scenario, connections| -> Result<()> {
        findings.add(speed::compare::<C>(
            options,
            &version,
            engine,
            scenario,
            connections,
        )?);
        Ok(())
    };
    if options.common.has(Part::Hot) {
        for connections in [1, 8, 32] {
            compare(Scenario::Hot, connections)?;
        }
    }
    if options.common.has(Part::Many) {
        compare(Scenario::Many, 8)?;
    }
    if options.common.has(Part::Single) {
        compare(Scenario::Single, 1)?;
        compare(Scenario::Single, 8)?;
    }
    if options.common.has(Part::Contended) {
        findings.add(contended::measure::<C>(options, &version)?);
    }
    findings.add(own_parts::<C>(options, &version, &[1, 8])?);
    Ok((version, findings))
}

fn measure_alone<C: Backend + SemaphoreExt + R2D2Connection + Send + 'static>(
    options: &Options,
    connections: &[usize],
) -> Result<(String, Findings)> {
    let version = Connections::<C>::new(1)?.version()?;
    println!("\n## {version}\n");
    let findings = own_parts::<C>(options, &version, connections)?;
    Ok((version, findings))
}

/// The parts that compare the crate with itself.
fn own_parts<C: Backend + SemaphoreExt + R2D2Connection + Send + 'static>(
    options: &Options,
    version: &str,
    connections: &[usize],
) -> Result<Findings> {
    let mut findings = Findings::default();
    if options.common.has(Part::Permits) {
        findings.add(many_permits::compare::<C>(options, version, connections)?);
    }
    if options.common.has(Part::Growth) {
        findings.add(growth::measure::<C>(options, version)?);
    }
    if options.common.has(Part::Waiting) {
        findings.add(waiting::measure::<C>(options, version)?);
    }
    if options.common.has(Part::Guards) {
        findings.add(guards::measure::<C>(options, version)?);
    }
    Ok(findings)
}
