//! What many cycles on one id cost while another session holds an old snapshot, for which PostgreSQL keeps
//! every dead row and every dead entry of an index.

use anyhow::Result;
use serde_json::json;

use crate::options::Options;
use crate::samples::{Figure, Samples};
use crate::support::backend::Backend;
use crate::support::connections::Connections;
use crate::support::cycle::cycle;
use crate::support::variant::Variant;
use crate::targets::{Findings, Limit, Target};

/// Cycles of one sample.
const SAMPLE: u32 = 100;

pub(crate) fn measure<C: Backend>(options: &Options, version: &str) -> Result<Findings> {
    println!("One id while another session holds an old snapshot, µs per cycle of each fifth:\n");
    println!("| | cycles | 1st | 2nd | 3rd | 4th | 5th | last / first |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut findings = Findings::default();
    for (variant, cycles) in [
        (Variant::Kept, options.kept_cycles),
        (Variant::Advisory, options.kept_cycles),
        (Variant::Transient, options.transient_cycles),
        (Variant::InsertDelete, options.insert_delete_cycles),
    ] {
        let fifths: Vec<f64> = under_old_snapshot::<C>(variant, cycles)?
            .fifths()
            .iter()
            .map(Samples::median)
            .collect();
        let growth = fifths[fifths.len() - 1] / fifths[0];
        let cells: Vec<_> = fifths.iter().map(|time| format!("{time:.0}")).collect();
        println!(
            "| {} | {cycles} | {} | {growth:.2} |",
            variant.name(),
            cells.join(" | ")
        );
        findings.figures.push(json!({
            "backend": C::NAME,
        "server": version,
            "part": "growth",
            "variant": variant.name(),
            "cycles": cycles,
            "microseconds": fifths,
        }));
        if variant == Variant::Kept {
            findings.targets.push(Target {
                text: format!(
                    "{version}, {cycles} cycles under an old snapshot: kept, last fifth / first"
                ),
                ratio: Figure {
                    value: growth,
                    least: growth,
                    greatest: growth,
                },
                limit: Limit::AtMost(1.1),
            });
        }
    }
    println!();
    Ok(findings)
}

/// Microseconds per cycle, a sample for every hundred.
fn under_old_snapshot<C: Backend>(variant: Variant, cycles: u32) -> Result<Samples> {
    let mut conns = Connections::<C>::new(1)?;
    let id = &variant.ids(1)[0];
    let run = |conns: &mut Connections<C>| {
        conns.measure(
            |done, _| done >= SAMPLE,
            |conn, _| cycle(conn, variant, id, |_| Ok(())),
        )
    };
    run(&mut conns)?;
    let mut report = conns.connect()?;
    report.batch_execute(C::OLD_SNAPSHOT)?;
    let mut samples = Samples::default();
    for _ in 0..cycles.div_ceil(SAMPLE) {
        let measured = run(&mut conns)?;
        samples.push(measured.per_cycle().as_secs_f64() * 1_000_000.0);
    }
    report.batch_execute("COMMIT")?;
    Ok(samples)
}
