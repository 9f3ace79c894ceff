//! Variants that take turns, and the median time of each.

use std::time::{Duration, Instant};

use anyhow::Result;

/// A variant by its name, which runs its transactions for a slice of time.
pub(crate) struct Variant<'a> {
    pub(crate) name: &'static str,
    /// The name of the same client's transaction without a lock.
    pub(crate) bare: &'static str,
    pub(crate) run: Run<'a>,
}

/// Runs transactions until the slice is over. Returns the µs for each.
pub(crate) type Run<'a> = Box<dyn FnMut(Slice) -> Result<f64> + 'a>;

/// How long a variant runs.
#[derive(Clone, Copy)]
pub(crate) enum Slice {
    Transactions(u32),
    Time(Duration),
}

impl Slice {
    pub(crate) fn is_over(self, transactions: u32, started: Instant) -> bool {
        match self {
            Self::Transactions(all) => transactions >= all,
            Self::Time(time) => started.elapsed() >= time,
        }
    }
}

/// The µs for each of the transactions.
pub(crate) fn micros(started: Instant, transactions: u32) -> f64 {
    started.elapsed().as_secs_f64() * 1e6 / f64::from(transactions)
}

/// Runs a transaction that blocks, again and again.
pub(crate) fn blocking<'a>(mut transaction: impl FnMut() -> Result<()> + 'a) -> Run<'a> {
    Box::new(move |slice| {
        let (started, mut transactions) = (Instant::now(), 0);
        while !slice.is_over(transactions, started) {
            transaction()?;
            transactions += 1;
        }
        Ok(micros(started, transactions))
    })
}

/// Runs `$transaction` again and again in a task, as a service does, with a connection that is mutable in it as `$conn`. A
/// macro, because a closure that returns a future hides whether that is `Send`.
macro_rules! in_task {
    ($runtime:ident, $conn:ident, $transaction:expr) => {{
        let mut kept = Some($conn);
        let run: crate::rounds::Run<'_> = Box::new(move |slice| {
            let mut $conn = kept.take().context("a connection")?;
            let task = $runtime.spawn(async move {
                let (started, mut transactions) = (std::time::Instant::now(), 0);
                while !slice.is_over(transactions, started) {
                    $transaction;
                    transactions += 1;
                }
                anyhow::Ok(($conn, crate::rounds::micros(started, transactions)))
            });
            let (conn, micros) = $runtime.block_on(task)??;
            kept = Some(conn);
            Ok(micros)
        });
        run
    }};
}
pub(crate) use in_task;

/// How long a variant runs in each round.
const TIME: Duration = Duration::from_millis(50);

/// Runs the variants in turn; each round begins with another one. Returns the median of the µs per transaction of each.
pub(crate) fn medians(variants: &mut [Variant<'_>], rounds: usize) -> Result<Vec<f64>> {
    let count = variants.len();
    let mut samples = vec![Vec::new(); count];
    for variant in variants.iter_mut() {
        // Statements are prepared, and their plans are made.
        (variant.run)(Slice::Transactions(20))?;
    }
    for round in 0..rounds {
        for step in 0..count {
            let place = (round + step) % count;
            samples[place].push((variants[place].run)(Slice::Time(TIME))?);
        }
    }
    Ok(samples.into_iter().map(median).collect())
}

pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
