//! The server: sessions that it ends, connections that it has not got, its own end.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use diesel::Connection;

use super::hit::Hit;
use super::rng::NemesisRng;
use crate::engine::with_connection;
use crate::run_context::RunContext;
use crate::sessions::Sessions;

/// The longest that a server may take to come back.
const TIMEOUT: Duration = Duration::from_secs(60);

/// More connections than a server has that may be exhausted.
const MANY: usize = 1000;

/// Ends some sessions of the run's database.
pub(super) fn terminate(context: &RunContext, rng: &mut NemesisRng) -> Option<Hit> {
    let some = rng.number(1..6);
    let mut ended = 0;
    with_connection!(context.engine, C => {
        // When the server is not there, or has no connection left, there is nothing to be done to it.
        let mut conn = C::establish(&context.url).ok()?;
        let mut others = conn.others().ok()?;
        rng.shuffle(&mut others);
        for session in others.into_iter().take(some) {
            ended += usize::from(conn.terminate(session).unwrap_or(false));
        }
    });
    (ended > 0).then_some(Hit::ALL)
}

/// Takes all connections that the server has, and keeps them for a while.
pub(super) fn exhaust(context: &RunContext, rng: &mut NemesisRng) -> Option<Hit> {
    let held = with_connection!(context.engine, C => {
        let held: Vec<C> = (0..MANY).map_while(|_| C::establish(&context.url).ok()).collect();
        context.sleep(rng.time(500..2500));
        held.len()
    });
    (held > 0).then_some(Hit::ALL)
}

/// Kills the server, and waits until it is back.
pub(super) fn crash(context: &RunContext) -> Result<Hit> {
    let program = context.kill_server.as_ref().context("no server to kill")?;
    let status = Command::new(program)
        .status()
        .context("can't kill the server")?;
    ensure!(status.success(), "{}: {status}", program.display());
    let started = Instant::now();
    with_connection!(context.engine, C => while C::establish(&context.url).is_err() {
        ensure!(started.elapsed() < TIMEOUT, "the server does not come back");
        sleep(Duration::from_millis(50));
    });
    Ok(Hit::ALL)
}
