//! The faults of the workers, their connections, the server and its clock: lanes that run at the same time, each with one
//! fault after the other.

mod clock;
mod hit;
mod idle_sessions;
mod network;
mod processes;
mod rng;
mod server;

use std::thread;

use anyhow::{Result, anyhow};
use torture_history::{FaultKind, Moment};

use crate::arguments::Run;
use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::run_context::RunContext;

use rng::NemesisRng;

/// The faults of each lane. Those of different lanes run at the same time.
const LANES: [&[FaultKind]; 5] = [
    &[FaultKind::Kill, FaultKind::Pause],
    &[
        FaultKind::Reset,
        FaultKind::BlackHole,
        FaultKind::Delay,
        FaultKind::Refuse,
    ],
    &[
        FaultKind::Terminate,
        FaultKind::Crash,
        FaultKind::Freeze,
        FaultKind::Isolate,
        FaultKind::Promote,
        FaultKind::Exhaust,
        FaultKind::Hog,
    ],
    &[FaultKind::Snapshot],
    &[FaultKind::ClockAhead, FaultKind::ClockBack],
];

/// What this engine, and this server, can be made to suffer.
pub(crate) fn possible(
    engine: Engine,
    cluster: Option<Cluster>,
    arguments: &Run,
    has_clock: bool,
) -> Vec<FaultKind> {
    let may_kill = !arguments.kill_server.is_empty();
    let is_possible = |kind: &FaultKind| match kind {
        FaultKind::Kill | FaultKind::Pause | FaultKind::Hog | FaultKind::Drop => true,
        FaultKind::ClockAhead | FaultKind::ClockBack => has_clock,
        // A server that may not be killed has others to serve.
        FaultKind::Crash | FaultKind::Exhaust => may_kill,
        // A single server that is stopped is one that takes its time.
        FaultKind::Freeze => may_kill && cluster.is_some(),
        FaultKind::Isolate => {
            may_kill && (cluster == Some(Cluster::Galera) || !arguments.kill_network.is_empty())
        }
        FaultKind::Promote => {
            cluster == Some(Cluster::GroupReplication) || arguments.switch_over.is_some()
        }
        FaultKind::Reset
        | FaultKind::BlackHole
        | FaultKind::Delay
        | FaultKind::Refuse
        | FaultKind::Terminate
        | FaultKind::Snapshot => engine != Engine::Sqlite,
    };
    FaultKind::ALL.into_iter().filter(is_possible).collect()
}

/// Goes on until the run's end, and leaves everything as it was.
pub(crate) fn inject_faults(context: &RunContext, kinds: &[FaultKind], seed: u64) -> Result<()> {
    thread::scope(|scope| {
        let lanes: Vec<_> = LANES
            .iter()
            .zip(1..)
            .filter_map(|(lane, number)| {
                let lane: Vec<FaultKind> = lane
                    .iter()
                    .copied()
                    .filter(|kind| kinds.contains(kind))
                    .collect();
                (!lane.is_empty()).then(|| {
                    let rng = NemesisRng::new(seed, number);
                    scope.spawn(move || {
                        // A run without some of its faults is none.
                        walk(context, &lane, rng).inspect_err(|_| context.abort())
                    })
                })
            })
            .collect();
        let mut result = Ok(());
        for lane in lanes {
            let walked = lane
                .join()
                .unwrap_or_else(|_| Err(anyhow!("the nemesis panicked")));
            result = result.and(walked);
        }
        result
    })
}

/// One fault after the other, each kind once before any comes again.
fn walk(context: &RunContext, lane: &[FaultKind], mut rng: NemesisRng) -> Result<()> {
    let longest = match lane {
        // A session that keeps a snapshot is there all the while.
        [FaultKind::Snapshot] => 300,
        // Another kind that is alone leaves the time in which others would have been.
        [_] => 5000,
        _ => 1000,
    };
    loop {
        let mut round = lane.to_vec();
        rng.shuffle(&mut round);
        for kind in round {
            context.sleep(rng.time(200..longest));
            context.wait_out_fault_free_window();
            if context.is_over() {
                return Ok(());
            }
            inject(context, kind, &mut rng)?;
        }
    }
}

fn inject(context: &RunContext, kind: FaultKind, rng: &mut NemesisRng) -> Result<()> {
    let from = Moment::now();
    let hit = match kind {
        FaultKind::Kill => Some(processes::kill(context, rng)?),
        FaultKind::Pause => Some(processes::pause(context, rng)),
        FaultKind::Reset => Some(network::reset(context, rng)),
        FaultKind::BlackHole => Some(network::black_hole(context, rng)),
        FaultKind::Delay => Some(network::delay(context, rng)),
        FaultKind::Refuse => Some(network::refuse(context, rng)),
        FaultKind::Terminate => server::terminate(context, rng),
        FaultKind::Exhaust => server::exhaust(context, rng),
        FaultKind::Crash => Some(server::crash(context, rng)?),
        FaultKind::Freeze => Some(server::freeze(context, rng)?),
        FaultKind::Isolate => Some(server::isolate(context, rng)?),
        FaultKind::Promote => Some(server::promote(context, rng)?),
        FaultKind::ClockAhead | FaultKind::ClockBack => Some(clock::jump(context, rng, kind)?),
        FaultKind::Snapshot => idle_sessions::hold_snapshot(context, rng),
        FaultKind::Hog => idle_sessions::hold_locks(context, rng),
        // Workers do that themselves: it is in no lane.
        FaultKind::Drop => None,
    };
    if let Some(hit) = hit {
        context.note(kind, hit.worker, from, hit.ahead);
    }
    Ok(())
}
