//! The server: sessions that it ends, connections that it has not got, its own end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use diesel::Connection;

use super::hit::Hit;
use super::rng::NemesisRng;
use crate::cluster::Cluster;
use crate::database::primary;
use crate::engine::with_connection;
use crate::run_context::RunContext;
use crate::sessions::Sessions;

/// The longest that a server may take to come back.
const TIMEOUT: Duration = Duration::from_secs(60);

/// More connections than a server has that may be exhausted.
const MANY: usize = 1000;

/// The database on any node that takes writes.
pub(super) fn any_url<'a>(context: &'a RunContext, rng: &mut NemesisRng) -> &'a str {
    &context.urls[any(context, rng)]
}

/// Any node that takes writes.
fn any(context: &RunContext, rng: &mut NemesisRng) -> usize {
    let any = rng.number(0..context.urls.len());
    let has_primary = context.cluster.is_some_and(Cluster::has_primary);
    match primary(context.cluster, &context.urls) {
        Ok(primary) if has_primary => primary,
        _ => any,
    }
}

/// Ends some sessions of the run's database.
pub(super) fn terminate(context: &RunContext, rng: &mut NemesisRng) -> Option<Hit> {
    let some = rng.number(1..6);
    let mut ended = 0;
    with_connection!(context.engine, C => {
        // When the server is not there, or has no connection left, there is nothing to be done to it.
        let mut conn = C::establish(any_url(context, rng)).ok()?;
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
    let url = any_url(context, rng);
    let held = with_connection!(context.engine, C => {
        let held: Vec<C> = (0..MANY).map_while(|_| C::establish(url).ok()).collect();
        context.sleep(rng.time(500..2500));
        held.len()
    });
    (held > 0).then_some(Hit::ALL)
}

/// Kills the server, or a node, and waits until it is back.
pub(super) fn crash(context: &RunContext, rng: &mut NemesisRng) -> Result<Hit> {
    let node = target(context, rng)?;
    signal(&context.kill_server[node], "kill")?;
    if context.cluster.is_some() {
        // The other nodes exclude it after some seconds. Until then the cluster still looks whole.
        context.sleep(rng.time(1000..8000));
        return await_whole(context);
    }
    let started = Instant::now();
    with_connection!(context.engine, C => while C::establish(&context.urls[node]).is_err() {
        ensure!(started.elapsed() < TIMEOUT, "the server does not come back");
        sleep(Duration::from_millis(50));
    });
    Ok(Hit::ALL)
}

/// Stops a node, for longer than the others wait for it or less.
pub(super) fn freeze(context: &RunContext, rng: &mut NemesisRng) -> Result<Hit> {
    let node = target(context, rng)?;
    signal(&context.kill_server[node], "stop")?;
    context.sleep(rng.time(1000..12_000));
    signal(&context.kill_server[node], "continue")?;
    await_whole(context)
}

/// Cuts a node off from the others, but not from its clients.
pub(super) fn isolate(context: &RunContext, rng: &mut NemesisRng) -> Result<Hit> {
    let node = any(context, rng);
    if let Some(network) = context.kill_network.get(node) {
        signal(network, "stop")?;
        // Until another node is the primary.
        context.sleep(rng.time(9000..14_000));
        signal(network, "continue")?;
        return await_whole(context);
    }
    let url = &context.urls[node];
    // After an error the node may be cut off later: it is connected again in any case.
    if let Err(error) = Cluster::isolate(url, true) {
        eprintln!("torture: {url} is not cut off: {error:#}");
    } else {
        context.sleep(rng.time(1000..12_000));
    }
    let started = Instant::now();
    while Cluster::isolate(url, false).is_err() && started.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(50));
    }
    await_whole(context)
}

/// Makes another node the primary.
pub(super) fn promote(context: &RunContext, rng: &mut NemesisRng) -> Result<Hit> {
    let primary = primary(context.cluster, &context.urls)?;
    let other = (primary + rng.number(1..context.urls.len())) % context.urls.len();
    let promoted = match &context.switch_over {
        Some(program) => run(&mut Command::new(program)),
        None => Cluster::promote(&context.urls[other]),
    };
    // It is not the primary while it waits for transactions, and may give up.
    if let Err(error) = promoted {
        eprintln!("torture: no other node becomes the primary: {error:#}");
    }
    await_whole(context)
}

/// A node to be hit: the primary in most cases, if there is one.
fn target(context: &RunContext, rng: &mut NemesisRng) -> Result<usize> {
    let has_primary = context.cluster.is_some_and(Cluster::has_primary);
    if has_primary && rng.percent(70) {
        return primary(context.cluster, &context.urls);
    }
    Ok(rng.number(0..context.kill_server.len()))
}

/// Waits until all nodes are there.
fn await_whole(context: &RunContext) -> Result<Hit> {
    let cluster = context.cluster.context("a cluster")?;
    cluster.await_whole(&context.urls, |node| {
        // An error means that it is about to start.
        let killed = signal(&context.kill_server[node], "kill").is_ok();
        eprintln!("torture: node {} is stuck, killed: {killed}", node + 1);
    })?;
    Ok(Hit::ALL)
}

/// Sends a signal by way of this program.
fn signal(program: &Path, signal: &str) -> Result<()> {
    run(Command::new(program).arg(signal))
}

/// An error when the program fails. What it prints is not shown.
fn run(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("can't run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
