//! More connections than permits: those that wait must not take the processor from those that hold.
//!
//! The same connections with a queue of the benchmark's before them, which lets eight of them work at a time, show how
//! much of the difference is the price of more connections: no way to wait for a slot can be faster.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use std::time::Duration;

use anyhow::Result;
use diesel_locks::prelude::*;
use serde_json::json;

use crate::options::Options;
use crate::samples::{Samples, figure, order};
use crate::support::backend::Backend;
use crate::support::connections::Connections;
use crate::targets::{Findings, Limit, Target};

static EIGHT: Semaphore = Semaphore::from_static("eight", 8);

/// Rounds are longer than those of others: in the beginning all come at once.
const LONG: u32 = 4;

/// As many as there are permits, and more.
const CONNECTIONS: [usize; 3] = [8, 32, 128];

pub(crate) fn measure<C: Backend + SemaphoreExt>(
    options: &Options,
    version: &str,
) -> Result<Findings> {
    let mut groups = Vec::new();
    for connections in CONNECTIONS {
        let mut conns = Connections::<C>::new(connections)?;
        conns.connect()?.register_semaphores([&EIGHT])?;
        run(&mut conns, None, Duration::ZERO)?;
        groups.push(conns);
    }
    let mut speeds = CONNECTIONS.map(|_| Samples::default());
    let mut admitted = CONNECTIONS.map(|_| Samples::default());
    for round in 0..options.rounds {
        for place in order(groups.len(), round) {
            let conns = &mut groups[place];
            speeds[place].push(run(conns, None, options.round * LONG)?);
            let turns = Turns::new(CONNECTIONS[0]);
            admitted[place].push(run(conns, Some(&turns), options.round * LONG)?);
        }
    }
    println!("Connections that wait for one of 8 slots, cycles per second:\n");
    println!(
        "| connections | wait in acquire_slot | to 8 connections | wait in a queue before it | to 8 connections |"
    );
    println!("|---|---|---|---|---|");
    let mut findings = Findings::default();
    let ([few, ..], [few_admitted, ..]) = (&speeds, &admitted);
    for (connections, (many, admitted)) in CONNECTIONS.iter().zip(speeds.iter().zip(&admitted)) {
        let ratio = figure([many, few], |[many, few]| many.median() / few.median());
        println!(
            "| {connections} | {:.0} | {:.2} | {:.0} | {:.2} |",
            many.median(),
            ratio.value,
            admitted.median(),
            admitted.median() / few_admitted.median(),
        );
        findings.figures.push(json!({
            "backend": C::NAME,
            "server": version,
            "part": "contended",
            "connections": connections,
            "cycles_per_second": many.median(),
            "cycles_per_second_admitted": admitted.median(),
        }));
        if *connections > CONNECTIONS[0] {
            findings.targets.push(Target {
                text: format!(
                    "{version}, one semaphore of 8 permits, {connections} connections: cycles per second, wait in \
                     acquire_slot / in a queue before it"
                ),
                ratio: figure([many, admitted], |[many, admitted]| {
                    many.median() / admitted.median()
                }),
                limit: Limit::AtLeast(0.9),
            });
        }
    }
    println!();
    Ok(findings)
}

/// Lets a number of threads work at a time, in the order in which they came.
struct Turns(Mutex<TurnState>);

struct TurnState {
    /// How many threads may enter without waiting.
    free: usize,
    waiting: VecDeque<Arc<Waiter>>,
}

struct Waiter {
    thread: Thread,
    is_admitted: AtomicBool,
}

impl Turns {
    fn new(free: usize) -> Self {
        let waiting = VecDeque::new();
        Self(Mutex::new(TurnState { free, waiting }))
    }

    fn enter(&self) {
        let mut state = self.0.lock().expect("no thread panics");
        if state.free > 0 {
            state.free -= 1;
            return;
        }
        let waiter = Arc::new(Waiter {
            thread: std::thread::current(),
            is_admitted: AtomicBool::new(false),
        });
        state.waiting.push_back(Arc::clone(&waiter));
        drop(state);
        while !waiter.is_admitted.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    fn leave(&self) {
        let mut state = self.0.lock().expect("no thread panics");
        let Some(next) = state.waiting.pop_front() else {
            state.free += 1;
            return;
        };
        drop(state);
        next.is_admitted.store(true, Ordering::Release);
        next.thread.unpark();
    }
}

/// Cycles per second of all connections together.
fn run<C: Backend + SemaphoreExt>(
    conns: &mut Connections<C>,
    turns: Option<&Turns>,
    time: Duration,
) -> Result<f64> {
    let measured = conns.measure(
        |_, passed| passed >= time,
        |conn, _| {
            let lease = LeaseOptions::new(Duration::from_secs(60));
            if let Some(turns) = turns {
                turns.enter();
            }
            let slot = conn.acquire_slot(&EIGHT, lease, Wait::Forever)?;
            conn.release_slot(slot)?;
            if let Some(turns) = turns {
                turns.leave();
            }
            Ok(())
        },
    )?;
    Ok(f64::from(measured.cycles) / (measured.time.as_secs_f64() / f64::from(conns.len())))
}
