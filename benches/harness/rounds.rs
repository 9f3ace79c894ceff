//! Rounds of the variants that are compared: interleaved, and short, so that whatever else the machine does meets all alike.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use diesel::QueryResult;

use super::{Backend, Connections, Figure, Measured, Samples, figure, name, order};

/// Cycles of each variant on each connection before the first round: statements are prepared, plans settled on, rows kept.
const WARM_UP: u32 = 30;
/// Cycles of one sample under an old snapshot.
const SAMPLE: u32 = 100;

/// A way to do what others do, with its name.
pub(crate) trait Variant: Copy + PartialEq + ValueEnum {
    fn name(self) -> String {
        name(&self)
    }

    /// Prepares a connection before each round.
    fn prepare<C: Backend>(self, _conn: &mut C) -> QueryResult<()> {
        Ok(())
    }
}

/// The number of rounds of each variant, and how long one is.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
}

impl Plan {
    pub(crate) fn new(rounds: usize, millis: u64) -> Self {
        let round = Duration::from_millis(millis);
        Self { rounds, round }
    }
}

/// The rounds of all variants.
pub(crate) struct Rows<V> {
    pub(crate) rows: Vec<(V, Vec<Measured>)>,
    pub(crate) connections: u32,
}

/// Runs the variants in turn on all connections.
pub(crate) fn compare<C: Backend, V: Variant + Sync>(
    conns: &mut Connections<C>,
    variants: &[V],
    plan: Plan,
    cycle: impl Fn(V, &mut C, usize, &mut Measured) -> QueryResult<()> + Sync,
) -> Result<Rows<V>> {
    let mut rows: Vec<_> = variants.iter().map(|&it| (it, Vec::new())).collect();
    let run = |conns: &mut Connections<C>,
               variant: V,
               enough: &(dyn Fn(u32, Duration) -> bool + Sync)| {
        for conn in conns.iter_mut() {
            variant.prepare(conn)?;
        }
        conns.measure(enough, |conn, number, measured| {
            cycle(variant, conn, number, measured)
        })
    };
    for &variant in variants {
        run(conns, variant, &|done, _| done >= WARM_UP)?;
    }
    for number in 0..plan.rounds {
        for place in order(rows.len(), number) {
            let (variant, rounds) = &mut rows[place];
            rounds.push(run(conns, *variant, &|_, time| time >= plan.round)?);
        }
    }
    Ok(Rows {
        rows,
        connections: conns.len(),
    })
}

impl<V: Variant> Rows<V> {
    fn samples(&self, variant: V, of: impl Fn(&Measured) -> f64) -> Samples {
        let row = self.rows.iter().find(|(other, _)| *other == variant);
        row.into_iter()
            .flat_map(|(_, rounds)| rounds.iter().map(&of))
            .collect()
    }

    /// Cycles per second of all connections together, without those that were refused.
    pub(crate) fn speeds(&self, variant: V) -> Samples {
        self.samples(variant, |it| {
            let seconds = it.time.as_secs_f64() / f64::from(self.connections);
            f64::from(it.cycles - it.refusals) / seconds
        })
    }

    /// µs per cycle and connection.
    pub(crate) fn micros(&self, variant: V) -> Samples {
        self.samples(variant, |it| micros(it.time, it.cycles))
    }

    /// The µs of each cycle, without the time in COMMIT.
    pub(crate) fn micros_without_commit(&self, variant: V) -> Samples {
        self.samples(variant, |it| {
            micros(it.time.saturating_sub(it.in_commit), it.cycles)
        })
    }

    /// How many times as fast as another variant one is.
    pub(crate) fn ratio(&self, one: V, other: V) -> Figure {
        figure([&self.speeds(one), &self.speeds(other)], |[one, other]| {
            one.median() / other.median()
        })
    }

    pub(crate) fn count(&self, variant: V, of: impl Fn(&Measured) -> u32) -> u32 {
        let row = self.rows.iter().find(|(other, _)| *other == variant);
        row.map_or(0, |(_, rounds)| rounds.iter().map(of).sum())
    }
}

fn micros(time: Duration, cycles: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(cycles)
}

/// Measures µs per cycle, one sample for every hundred cycles: first without, then with another session that holds an old
/// snapshot, for which the server keeps the former versions of every row.
pub(crate) fn under_old_snapshot<C: Backend>(
    conns: &mut Connections<C>,
    cycles: u32,
    cycle: impl Fn(&mut C) -> QueryResult<()> + Sync,
) -> Result<(Samples, Samples)> {
    let sample = |conns: &mut Connections<C>| -> Result<f64> {
        let measured = conns.measure(|done, _| done >= SAMPLE, |conn, _, _| cycle(conn))?;
        Ok(micros(measured.time, measured.cycles))
    };
    sample(conns)?;
    let without = (0..10).map(|_| sample(conns)).collect::<Result<_>>()?;
    let mut report = conns.connect()?;
    report.batch_execute(C::OLD_SNAPSHOT)?;
    let samples = 0..cycles.div_ceil(SAMPLE);
    let samples = samples.map(|_| sample(conns)).collect::<Result<_>>()?;
    report.batch_execute("COMMIT")?;
    Ok((samples, without))
}
