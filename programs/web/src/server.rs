//! Starts an instance, and serves until it is asked to end.

use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use program_support::database::Database;
use program_support::terminal;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::app::App;
use crate::args::Arguments;
use crate::metrics::Metrics;
use crate::state::{Snapshot, publisher};
use crate::store::{Pools, Store};
use crate::{name, routes, shutdown};

/// Threads that may block, besides those of requests: health checks and releases.
const MORE_THREADS: usize = 64;

/// Serves until SIGTERM or SIGINT. Returns the exit code.
pub(crate) fn serve<C: Store>(database: &Database, arguments: &Arguments) -> Result<i32> {
    let name = arguments.name.clone().map_or_else(name::default, Ok)?;
    let pools = Pools::<C>::open(database, arguments)?;
    let engine = pools.operator.get()?.engine()?;
    let metrics = Metrics::new()?;
    metrics.install()?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(arguments.max_waiting as usize + MORE_THREADS)
        .build()?;
    let ended = runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen)
            .await
            .with_context(|| format!("can't listen on {}", arguments.listen))?;
        let address = listener.local_addr()?.to_string();
        let (sender, snapshots) = watch::channel(Arc::new(Snapshot::new(0, None, "{}".to_owned())));
        let app = App::new(pools, metrics, snapshots, name, arguments);
        let app = Arc::new(app);
        let publisher = Arc::clone(&app);
        let shown = engine.clone();
        thread::spawn(move || publisher::run(&publisher, &shown, &sender));
        // The first snapshot: the page begins with it.
        app.snapshots.clone().changed().await?;
        terminal::print(format!("web: {engine}; listening on http://{address}"));
        if app.settings.operator_token.is_none() {
            terminal::print_to_stderr(
                "web: without --operator-token everyone who reaches the page can release slots",
            );
        }
        let router = routes::router(Arc::clone(&app));
        shutdown::serve(&app, listener, router, arguments.shutdown()).await
    });
    // Threads that still wait for the database are left behind.
    runtime.shutdown_background();
    Ok(i32::from(!ended?))
}
