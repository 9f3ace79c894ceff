//! Variants that take turns, and the median time of each.

use std::time::{Duration, Instant};

use anyhow::Result;

/// A variant by its name, which runs a cycle.
pub(crate) struct Variant<'a> {
    pub(crate) name: &'static str,
    pub(crate) cycle: Box<dyn FnMut() -> Result<()> + 'a>,
}

/// How long a variant runs in each round.
const TIME: Duration = Duration::from_millis(50);

/// Runs the variants in turn; each round begins with another one. Returns the median of the µs per cycle of each.
pub(crate) fn medians(variants: &mut [Variant<'_>], rounds: usize) -> Result<Vec<f64>> {
    let count = variants.len();
    let mut samples = vec![Vec::new(); count];
    for variant in variants.iter_mut() {
        // Statements are prepared, and their plans are made.
        for _ in 0..20 {
            (variant.cycle)()?;
        }
    }
    for round in 0..rounds {
        for step in 0..count {
            let place = (round + step) % count;
            samples[place].push(micros_per_cycle(&mut variants[place])?);
        }
    }
    Ok(samples.into_iter().map(median).collect())
}

fn micros_per_cycle(variant: &mut Variant<'_>) -> Result<f64> {
    let started = Instant::now();
    let mut cycles = 0;
    while started.elapsed() < TIME {
        (variant.cycle)()?;
        cycles += 1;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(cycles))
}

pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
