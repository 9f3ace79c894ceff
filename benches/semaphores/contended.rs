//! More connections than permits: those that wait must not take the processor from those that hold.
//!
//! The same connections with a queue of the benchmark's before them, which lets eight of them work at a time, show how
//! much of the difference is the price of more connections: no way to wait for a slot can be faster.

use std::time::Duration;

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Semaphore as Queue;

use crate::alone::cycle;
use crate::harness::{Backend, Connections, Limit, Plan, Report, Samples, figure, order};

static EIGHT: Semaphore = Semaphore::from_static("eight", 8);

/// Rounds are longer than those of others: in the beginning all come at once.
const LONG: u32 = 4;

/// As many as there are permits, and more.
const CONNECTIONS: [usize; 3] = [8, 32, 128];

pub(crate) fn measure<C: Backend>(plan: Plan, report: &mut Report) -> Result<()> {
    let runtime = Runtime::new()?;
    let mut groups = Vec::new();
    for connections in CONNECTIONS {
        let mut conns = Connections::<C>::new(connections)?;
        conns.first().register_semaphores([&EIGHT])?;
        run(&mut conns, None, Duration::ZERO)?;
        groups.push(conns);
    }
    let mut speeds = CONNECTIONS.map(|_| Samples::default());
    let mut admitted = CONNECTIONS.map(|_| Samples::default());
    for round in 0..plan.rounds {
        for place in order(groups.len(), round) {
            let conns = &mut groups[place];
            speeds[place].push(run(conns, None, plan.round * LONG)?);
            let queue = Queue::new(CONNECTIONS[0]);
            let queue = Some((runtime.handle(), &queue));
            admitted[place].push(run(conns, queue, plan.round * LONG)?);
        }
    }
    let title = "Connections that wait for one of 8 slots, cycles per second";
    let columns = "connections | wait in acquire_slot | to 8 connections | wait in a queue before it | in it to 8 connections";
    report.table(title, columns);
    for (place, connections) in CONNECTIONS.into_iter().enumerate() {
        let [many, in_queue] = [&speeds, &admitted].map(|samples| samples[place].median());
        report.row(&json!([
            connections,
            many,
            many / speeds[0].median(),
            in_queue,
            in_queue / admitted[0].median(),
        ]));
        if connections > CONNECTIONS[0] {
            let text = format!(
                "one semaphore of 8 permits, {connections} connections: cycles per second, wait in acquire_slot / in a \
                 queue before it"
            );
            let ratio = figure([&speeds[place], &admitted[place]], |[many, in_queue]| {
                many.median() / in_queue.median()
            });
            report.target(&text, ratio, Limit::AtLeast(0.9));
        }
    }
    Ok(())
}

/// Cycles per second of all connections together. A queue admits in the order in which threads come.
fn run<C: Backend>(
    conns: &mut Connections<C>,
    queue: Option<(&Handle, &Queue)>,
    time: Duration,
) -> Result<f64> {
    let measured = conns.measure(
        |_, passed| passed >= time,
        |conn, _, _| {
            let _turn = queue.map(|(runtime, queue)| runtime.block_on(queue.acquire()));
            cycle(conn, &EIGHT)
        },
    )?;
    Ok(f64::from(measured.cycles) / (measured.time.as_secs_f64() / f64::from(conns.len())))
}
