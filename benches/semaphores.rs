//! The targets for semaphores, as ratios to other designs, interleaved in one run as in `ratios`.
//!
//! ```text
//! cargo xtask with-servers --durable -- \
//!     cargo bench --features postgres,mysql,sqlite,r2d2 --bench semaphores
//! ```

#[path = "semaphores/alone.rs"]
mod alone;
#[path = "semaphores/contended.rs"]
mod contended;
#[path = "semaphores/design.rs"]
mod design;
#[path = "semaphores/guards.rs"]
mod guards;
#[allow(dead_code, unused_imports, reason = "parts of other benchmarks")]
mod harness;
#[path = "semaphores/several.rs"]
mod several;
#[path = "semaphores/tables.rs"]
mod tables;

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use diesel_locks::prelude::*;

use design::Design;
use harness::{Backend, Benchmark, Connections, Engine, Figure, Limit, Plan, Report, compare};

/// Measures the targets for semaphores, and prints them as Markdown.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: harness::Common<Part>,
}

/// The first two compare it with other designs, and are not for SQLite: it has one writer, so that no design is faster than
/// the disk, and there are no rows to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One semaphore of 8 permits: 1, 8 and 32 connections, 10 rounds of 500 ms each.
    Hot,
    /// 8, 32 and 128 connections that wait for one of 8 slots.
    Contended,
    /// 10,000 permits, 9,990 of them held, beside 10 permits: 1 and 8 connections.
    Permits,
    /// 10,000 cycles while another session holds an old snapshot.
    Growth,
    /// One permit, 16 connections that wait for it.
    Waiting,
    /// 4 of 8 permits at once, beside 10 connections that request one, for 10 s.
    Several,
    /// 1,000 slots held by guards for a minute: statements and processor time (Linux).
    Guards,
}

static HOT: Semaphore = Semaphore::from_static("hot", 8);

fn limits(engine: Engine, connections: usize) -> &'static [(Design, f64)] {
    match (engine, connections) {
        (Engine::Postgres, 8) => &[
            (Design::Tokens, 4.0),
            (Design::Counter, 2.0),
            (Design::TwoUpdates, 0.9),
        ],
        (Engine::Mysql, 1) => &[(Design::Rows, 1.3)],
        (Engine::Mysql, 8) => &[(Design::Tokens, 2.0), (Design::Rows, 1.0)],
        (_, 32) => &[(Design::Tokens, 1.0)],
        _ => &[],
    }
}

const JUDGED: &str = "A refusal is false when there are no more connections than permits.";

fn main() -> Result<()> {
    let options = Options::parse();
    let (quick, full) = (Plan::new(1, 50), Plan::new(10, 500));
    options.common.run(&options, quick, full, JUDGED)
}

impl Benchmark for Options {
    fn measure<C: Backend>(&self, plan: Plan, report: &mut Report) -> Result<()> {
        let options = &self.common;
        if C::ENGINE != Engine::Sqlite {
            if options.has(Part::Hot) {
                for connections in [1, 8, 32] {
                    designs::<C>(plan, connections, report)?;
                }
            }
            if options.has(Part::Contended) {
                contended::measure::<C>(plan, report)?;
            }
        }
        if options.has(Part::Permits) {
            alone::permits::<C>(plan, report)?;
        }
        if options.has(Part::Growth) {
            alone::growth::<C>(options.quick_or(500, 10_000), report)?;
        }
        if options.has(Part::Waiting) {
            alone::waiting::<C>(Duration::from_secs(options.quick_or(2, 20)), report)?;
        }
        if options.has(Part::Several) {
            several::measure::<C>(Duration::from_secs(options.quick_or(1, 10)), report)?;
        }
        if options.has(Part::Guards) {
            guards::measure::<C>(Duration::from_secs(options.quick_or(1, 60)), report)?;
        }
        Ok(())
    }
}

/// Cycles of acquire and release per second, design by design.
fn designs<C: Backend>(plan: Plan, connections: usize, report: &mut Report) -> Result<()> {
    let mut conns = Connections::<C>::new(connections)?;
    conns.first().register_semaphores([&HOT])?;
    tables::create_and_fill(conns.first(), &HOT)?;
    let designs = Design::value_variants();
    let rows = compare(&mut conns, designs, plan, |design, conn, _, measured| {
        design.cycle(conn, &HOT, measured)
    })?;
    let scenario = "one semaphore of 8 permits";
    report.speeds(
        scenario,
        &rows,
        Design::Ours,
        limits(C::ENGINE, connections),
    );
    if connections <= HOT.permits().expect("its own") as usize {
        let refusals = rows.count(Design::Ours, |it| it.refusals).into();
        let crowd = harness::connections(connections);
        let text = format!("{scenario}, {crowd}: false refusals");
        report.target(&text, Figure::single(refusals), Limit::AtMost(0.0));
    }
    Ok(())
}
