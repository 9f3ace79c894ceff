//! Designs that do the same: rounds of each, interleaved, and the ratios of their speeds.

use std::time::Duration;

use anyhow::Result;

use crate::samples::{Samples, figure, order};
use crate::support::connections::Measured;
use crate::targets::{Limit, Target};

/// Cycles of each design on each connection before the first round: statements are prepared, plans settled on.
const WARM_UP: u32 = 30;

/// A way to do what the crate does.
pub(crate) trait Compared: Copy + PartialEq + 'static {
    /// The crate's.
    const OURS: Self;

    fn name(self) -> &'static str;
}

/// Returns whether a connection has done enough cycles, in this time.
pub(crate) type Enough<'a> = &'a (dyn Fn(u32, Duration) -> bool + Sync);

/// One design's rounds.
pub(crate) struct Row<D> {
    pub(crate) design: D,
    /// Cycles per second of all connections together, without those that were refused.
    pub(crate) speeds: Samples,
    pub(crate) refusals: u32,
    pub(crate) deadlocks: u32,
}

/// Runs each design in rounds. `run` runs one on all connections until each has done enough, and returns how many cycles
/// were refused.
pub(crate) fn measure<D: Compared>(
    designs: &[D],
    connections: u32,
    rounds: usize,
    round: Duration,
    mut run: impl FnMut(D, Enough<'_>) -> Result<(Measured, u32)>,
) -> Result<Vec<Row<D>>> {
    let mut rows: Vec<_> = designs
        .iter()
        .map(|&design| Row {
            design,
            speeds: Samples::default(),
            refusals: 0,
            deadlocks: 0,
        })
        .collect();
    for row in &rows {
        run(row.design, &|done, _| done >= WARM_UP)?;
    }
    for number in 0..rounds {
        for place in order(rows.len(), number) {
            let row = &mut rows[place];
            let (measured, refusals) = run(row.design, &|_, time| time >= round)?;
            let seconds = measured.time.as_secs_f64() / f64::from(connections);
            row.speeds
                .push(f64::from(measured.cycles - refusals) / seconds);
            row.refusals += refusals;
            row.deadlocks += measured.deadlocks;
        }
    }
    Ok(rows)
}

/// How many times as fast as another design the crate's is.
pub(crate) fn ratio<D: Compared>(rows: &[Row<D>], row: &Row<D>) -> f64 {
    speeds(rows, D::OURS).median() / row.speeds.median()
}

/// The targets for the ratios of this crate's speed to that of other designs. `text` describes what is measured.
pub(crate) fn targets<D: Compared>(
    rows: &[Row<D>],
    limits: &[(D, f64)],
    text: impl Fn(&str) -> String,
) -> Vec<Target> {
    let target = |&(design, limit): &(D, f64)| Target {
        text: text(design.name()),
        ratio: figure(
            [speeds(rows, D::OURS), speeds(rows, design)],
            |[ours, other]| ours.median() / other.median(),
        ),
        limit: Limit::AtLeast(limit),
    };
    limits.iter().map(target).collect()
}

/// A scenario and the number of connections.
pub(crate) fn heading(scenario: &str, connections: u32) -> String {
    let several = if connections == 1 { "" } else { "s" };
    format!("{scenario}, {connections} connection{several}")
}

fn speeds<D: Compared>(rows: &[Row<D>], design: D) -> &Samples {
    let row = rows.iter().find(|row| row.design == design);
    &row.expect("measured").speeds
}
