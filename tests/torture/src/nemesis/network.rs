//! The network between a worker and the server.

use super::Hit;
use super::fate::Fate;
use crate::engine::Engine;
use crate::stage::Stage;

/// The longest fault of all, in milliseconds, and longer than a server's patience with silent clients.
pub(crate) const LONGEST_SILENCE_MS: u64 = 9000;

/// Resets some of a worker's connections, or of everybody's.
pub(super) fn reset(stage: &Stage, fate: &mut Fate) -> Hit {
    if fate.percent(30) {
        for proxy in &stage.proxies {
            proxy.reset(|| fate.percent(50));
        }
        return Hit::ALL;
    }
    let worker = fate.number(0..stage.proxies.len());
    stage.proxies[worker].reset(|| fate.percent(70));
    Hit::one(worker)
}

/// Nothing arrives for some seconds. Then what was sent arrives after all, or connections are reset, or, on PostgreSQL,
/// nothing is ever heard of them again.
pub(super) fn black_hole(stage: &Stage, fate: &mut Fate) -> Hit {
    let worker = fate.number(0..stage.proxies.len());
    let proxy = &stage.proxies[worker];
    proxy.silence(true);
    stage.rest(fate.time(1000..LONGEST_SILENCE_MS));
    match fate.number(0..3) {
        // Who waits for an answer gets none, ever. Diesel's connections to MySQL can't be told to give up.
        0 if stage.engine == Engine::Postgres => proxy.abandon(),
        1 => proxy.reset(|| true),
        _ => {}
    }
    proxy.silence(false);
    Hit::one(worker)
}

/// Everything takes longer.
pub(super) fn delay(stage: &Stage, fate: &mut Fate) -> Hit {
    let worker = fate.number(0..stage.proxies.len());
    let proxy = &stage.proxies[worker];
    proxy.delay(fate.time(10..300));
    stage.rest(fate.time(500..3000));
    proxy.delay(std::time::Duration::ZERO);
    Hit::one(worker)
}

/// Who has a connection keeps it; nobody gets a new one. Some are reset, so that they need one.
pub(super) fn refuse(stage: &Stage, fate: &mut Fate) -> Hit {
    let worker = fate.number(0..stage.proxies.len());
    let proxy = &stage.proxies[worker];
    proxy.refuse(true);
    proxy.reset(|| fate.percent(50));
    stage.rest(fate.time(500..3000));
    proxy.refuse(false);
    Hit::one(worker)
}
