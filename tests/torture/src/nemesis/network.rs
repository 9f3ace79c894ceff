//! The network between a worker and the server.

use torture_history::workload_spec;

use super::hit::Hit;
use super::rng::NemesisRng;
use crate::engine::Engine;
use crate::run_context::{FAULT_FREE_WINDOW, RunContext};

/// The longest fault of all, in milliseconds, and longer than servers wait for silent clients.
const LONGEST_SILENCE_MS: u64 = 9000;

/// A fault that began before the window lasts into it, and excuses operations for some time after its end. The rest of
/// the window has to be long enough.
const _: () = {
    let fault = LONGEST_SILENCE_MS / 1000;
    let aftermath =
        workload_spec::SILENT_CLIENT_TIMEOUT.as_secs() + workload_spec::POOL_TIMEOUT.as_secs();
    assert!(
        FAULT_FREE_WINDOW.0 - FAULT_FREE_WINDOW.1 > fault + aftermath + 5,
        "no time is free of faults"
    );
};

/// Resets some of a worker's connections, or of everybody's.
pub(super) fn reset(context: &RunContext, rng: &mut NemesisRng) -> Hit {
    if rng.percent(30) {
        for proxy in &context.proxies {
            proxy.reset(|| rng.percent(50));
        }
        return Hit::ALL;
    }
    let worker = rng.number(0..context.proxies.len());
    context.proxies[worker].reset(|| rng.percent(70));
    Hit::one(worker)
}

/// Nothing arrives for some seconds. Then what was sent arrives after all, or connections are reset, or, on PostgreSQL,
/// nothing is ever heard of them again.
pub(super) fn black_hole(context: &RunContext, rng: &mut NemesisRng) -> Hit {
    let worker = rng.number(0..context.proxies.len());
    let proxy = &context.proxies[worker];
    proxy.silence(true);
    context.sleep(rng.time(1000..LONGEST_SILENCE_MS));
    match rng.number(0..3) {
        // A client that waits for an answer never gets one. Diesel's connections to MySQL have no time-out for that.
        0 if context.engine == Engine::Postgres => proxy.abandon(),
        1 => proxy.reset(|| true),
        _ => {}
    }
    proxy.silence(false);
    Hit::one(worker)
}

/// Everything takes longer.
pub(super) fn delay(context: &RunContext, rng: &mut NemesisRng) -> Hit {
    let worker = rng.number(0..context.proxies.len());
    let proxy = &context.proxies[worker];
    proxy.delay(rng.time(10..300));
    context.sleep(rng.time(500..3000));
    proxy.delay(std::time::Duration::ZERO);
    Hit::one(worker)
}

/// Open connections stay open, and new ones are refused. Some are reset, so that new ones are needed.
pub(super) fn refuse(context: &RunContext, rng: &mut NemesisRng) -> Hit {
    let worker = rng.number(0..context.proxies.len());
    let proxy = &context.proxies[worker];
    proxy.refuse(true);
    proxy.reset(|| rng.percent(50));
    context.sleep(rng.time(500..3000));
    proxy.refuse(false);
    Hit::one(worker)
}
