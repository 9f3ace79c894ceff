//! Eight connections that all want one lock and have nothing to do under it.

use anyhow::Result;
use serde_json::json;

use crate::options::Options;
use crate::samples::{Samples, figure, order};
use crate::support::backend::Backend;
use crate::support::connections::Connections;
use crate::support::cycle::cycle;
use crate::support::engine_filter::Engine;
use crate::support::variant::Variant;
use crate::targets::{Findings, Limit, Target};

const CONNECTIONS: u8 = 8;

const VARIANTS: [Variant; 4] = [
    Variant::InsertDelete,
    Variant::Advisory,
    Variant::Transient,
    Variant::Kept,
];

pub(crate) fn compare<C: Backend>(
    options: &Options,
    version: &str,
    engine: Engine,
) -> Result<Findings> {
    let mut conns = Connections::<C>::new(CONNECTIONS.into())?;
    let mut speeds = VARIANTS.map(|_| Samples::default());
    let mut deadlocks = VARIANTS.map(|_| 0);
    for round in 0..options.contended_rounds {
        for place in order(VARIANTS.len(), round) {
            let variant = VARIANTS[place];
            let id = &variant.ids(1)[0];
            let measured = conns.measure(
                |_, time| time >= options.contended_round,
                |conn, _| cycle(conn, variant, id, |_| Ok(())),
            )?;
            let seconds = measured.per_cycle().as_secs_f64();
            speeds[place].push(f64::from(CONNECTIONS) / seconds);
            deadlocks[place] += measured.deadlocks;
        }
    }

    println!("{CONNECTIONS} connections on one id, nothing else to do:\n");
    println!("| | cycles per second | deadlocks |");
    println!("|---|---|---|");
    for ((variant, speeds), deadlocks) in VARIANTS.iter().zip(&speeds).zip(&deadlocks) {
        let name = variant.name();
        println!("| {name} | {:.0} | {deadlocks} |", speeds.median());
    }
    println!();

    let figures = VARIANTS.iter().zip(&speeds).zip(&deadlocks);
    let figures = figures.map(|((variant, speeds), deadlocks)| {
        json!({
            "variant": variant.name(),
            "cycles_per_second": speeds.median(),
            "deadlocks": deadlocks,
        })
    });
    let figures = json!({
        "backend": C::NAME,
    "server": version,
        "part": "contention",
        "connections": CONNECTIONS,
        "variants": figures.collect::<Vec<_>>(),
    });
    let [insert_delete, advisory, transient, kept] = &speeds;
    let target = |names, samples, limit| Target {
        text: format!("{version}, {CONNECTIONS} connections on one id: cycles per second, {names}"),
        ratio: figure(samples, |[one, other]| one.median() / other.median()),
        limit,
    };
    let targets = match engine {
        Engine::Postgres => vec![
            target("kept / advisory", [kept, advisory], Limit::AtLeast(0.8)),
            target(
                "transient / insert-delete",
                [transient, insert_delete],
                Limit::AtLeast(1.6),
            ),
        ],
        Engine::Mysql | Engine::Sqlite => Vec::new(),
    };
    Ok(Findings {
        figures: vec![figures],
        targets,
    })
}
