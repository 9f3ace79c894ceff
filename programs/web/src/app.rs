//! What all handlers of an instance share.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::http::StatusCode;
use diesel::r2d2::{ConnectionManager, PooledConnection};
use diesel_locks::{Error, LockPool, Shutdown, SlotRenewer, StopToken};
use metrics_exporter_prometheus::PrometheusHandle;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use tokio::sync::{Semaphore, TryAcquireError, watch};
use tokio::task;

use crate::args::Arguments;
use crate::health::Health;
use crate::problem::Problem;
use crate::store::{self, Connections};

/// How long a request waits for a connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the renewer and a release by an operator wait for a connection.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(1);

/// One for each process.
pub(crate) struct App {
    pub(crate) arguments: Arguments,
    /// The name of this instance: the holder of its slots.
    pub(crate) instance: String,
    /// Waits for object locks without a connection.
    pub(crate) locks: LockPool<Connections>,
    /// Renews the slots of jobs, on a pool of its own: requests can't delay a renewal.
    pub(crate) renewer: SlotRenewer<Connections>,
    /// For the page, and releases by an operator, which do not depend on the number of requests that wait.
    pub(crate) operator: Connections,
    /// Ends waits, jobs and transactions when the process is asked to end.
    pub(crate) shutdown: Shutdown,
    /// The requests that use the database, or wait for it.
    places: Arc<Semaphore>,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) health: watch::Receiver<Health>,
}

impl App {
    pub(crate) fn new(
        database: &Database,
        arguments: Arguments,
        instance: String,
        metrics: PrometheusHandle,
        health: watch::Receiver<Health>,
    ) -> Result<Self> {
        let requests = store::pool(database, arguments.connections, REQUEST_TIMEOUT)?;
        let renewals = store::pool(database, 2, OPERATOR_TIMEOUT)?;
        let shutdown = Shutdown::new();
        Ok(Self {
            instance,
            locks: shutdown.add_lock_pool(&LockPool::new(requests)),
            renewer: shutdown.add_renewer(&SlotRenewer::new(renewals)),
            operator: store::pool(database, 2, OPERATOR_TIMEOUT)?,
            shutdown,
            places: Arc::new(Semaphore::new(arguments.max_waiting as usize)),
            metrics,
            health,
            arguments,
        })
    }

    /// Runs `work` on a thread that may block. Its token is stopped when the future is dropped, as it is when the client
    /// hangs up, and when the process is to end. Answers 503 at once when too many requests wait.
    pub(crate) async fn blocking<T, F>(self: &Arc<Self>, work: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Self, &StopToken) -> Result<T, Problem> + Send + 'static,
    {
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|error| match error {
                TryAcquireError::NoPermits => Problem::temporary(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!(
                        "{} requests use the database or wait for it; more are not accepted",
                        self.arguments.max_waiting
                    ),
                ),
                TryAcquireError::Closed => Problem::shutting_down(),
            })?;
        let stop = self.shutdown.stop_token().child();
        let _hang_up = stop.stop_on_drop();
        let (app, stop) = (Arc::clone(self), stop.clone());
        let work = task::spawn_blocking(move || {
            let _place = place;
            work(&app, &stop)
        });
        work.await
            .unwrap_or_else(|_panicked| Err(Problem::internal()))
    }

    /// Waits until no request uses the database, also none whose client has hung up. None can begin afterwards.
    pub(crate) async fn closures_ended(&self) {
        // It fails only if the semaphore is closed.
        let _ = self.places.acquire_many(self.arguments.max_waiting).await;
        self.places.close();
    }

    /// A connection for a short transaction, unless the client has hung up before there is one.
    pub(crate) fn connection(
        &self,
        stop: &StopToken,
    ) -> Result<PooledConnection<ConnectionManager<AnyConnection>>, Problem> {
        let conn = self.locks.pool().get().map_err(Error::from)?;
        if stop.is_stopped() {
            return Err(Problem::stopped());
        }
        Ok(conn)
    }
}
