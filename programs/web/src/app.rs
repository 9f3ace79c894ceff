//! What all handlers of an instance share.

use std::sync::Arc;

use axum::http::StatusCode;
use diesel::r2d2::{ConnectionManager, Pool, PooledConnection};
use diesel_locks::{LockPool, Shutdown, SlotRenewer, StopToken, Wait};
use tokio::sync::{Mutex, Semaphore, TryAcquireError, watch};
use tokio::task;

use crate::args::Arguments;
use crate::jobs::Jobs;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::state::Snapshot;
use crate::state::rates::{Wait as RunningWait, Waits};
use crate::store::{Asker, Pools, Store};

/// The releases by an operator that run at a time: more than there are connections for them.
const RELEASES: u32 = 8;

/// One for each process.
pub(crate) struct App<C: Store> {
    /// Waits for object locks without a connection.
    pub(crate) locks: LockPool<Pool<ConnectionManager<C>>>,
    /// Renews the slots of jobs, on a pool of its own.
    pub(crate) renewer: SlotRenewer<Pool<ConnectionManager<C>>>,
    /// For releases by an operator.
    pub(crate) operator: Pool<ConnectionManager<C>>,
    /// For the page.
    pub(crate) page: Asker<C>,
    /// For health checks.
    pub(crate) health: Asker<C>,
    /// Held while a health check asks the database.
    pub(crate) health_turn: Arc<Mutex<()>>,
    /// Ends waits, jobs and transactions when the process is asked to end.
    pub(crate) shutdown: Shutdown,
    /// The requests that use the database, or wait for it.
    places: Arc<Semaphore>,
    /// The releases by an operator: they don't depend on the number of requests that wait.
    releases: Arc<Semaphore>,
    pub(crate) waits: Waits,
    pub(crate) jobs: Jobs,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The name of this instance: the holder of its slots.
    pub(crate) instance: String,
    /// The permits of each semaphore, which all instances share.
    pub(crate) permits: u32,
    pub(crate) arguments: Arguments,
}

/// A request that runs on a thread that may block.
pub(crate) struct Call {
    /// Stopped when the client hangs up, and when the process is to end.
    pub(crate) stop: StopToken,
    /// Dropped when the wait is over.
    pub(crate) wait: RunningWait,
}

impl<C: Store> App<C> {
    pub(crate) fn new(
        pools: Pools<C>,
        metrics: Arc<Metrics>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        instance: String,
        arguments: &Arguments,
    ) -> Self {
        let shutdown = Shutdown::new();
        Self {
            locks: shutdown.add_lock_pool(&LockPool::new(pools.requests)),
            renewer: shutdown.add_renewer(&SlotRenewer::new(pools.renewer)),
            operator: pools.operator,
            page: pools.page,
            health: pools.health,
            health_turn: Arc::default(),
            shutdown,
            places: Arc::new(Semaphore::new(arguments.max_waiting as usize)),
            releases: Arc::new(Semaphore::new(RELEASES as usize)),
            waits: Waits::default(),
            jobs: Jobs::default(),
            metrics,
            snapshots,
            instance,
            permits: pools.permits,
            arguments: arguments.clone(),
        }
    }

    /// How long a request waits for a lock.
    pub(crate) fn wait(&self) -> Wait {
        Wait::AtMost(self.arguments.wait())
    }

    /// Runs `work` on a thread that may block. The call is stopped when the future is dropped, as it is when the client
    /// hangs up. Answers 503 at once when too many requests wait.
    pub(crate) async fn blocking<T, F>(self: &Arc<Self>, work: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Self>, Call) -> Result<T, Problem> + Send + 'static,
    {
        let most = self.arguments.max_waiting;
        self.blocking_in(&self.places, most, work).await
    }

    /// As [`Self::blocking`], for a release by an operator.
    pub(crate) async fn releasing<T, F>(self: &Arc<Self>, work: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Self>, Call) -> Result<T, Problem> + Send + 'static,
    {
        self.blocking_in(&self.releases, RELEASES, work).await
    }

    async fn blocking_in<T, F>(
        self: &Arc<Self>,
        places: &Arc<Semaphore>,
        most: u32,
        work: F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Self>, Call) -> Result<T, Problem> + Send + 'static,
    {
        let place = Arc::clone(places)
            .try_acquire_owned()
            .map_err(|error| match error {
                TryAcquireError::NoPermits => Problem::temporary(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!(
                        "{most} requests use the database or wait for it; more are not accepted"
                    ),
                ),
                TryAcquireError::Closed => Problem::shutting_down(),
            })?;
        let stop = self.shutdown.stop_token().child();
        let _hang_up = stop.stop_on_drop();
        let call = Call {
            stop: stop.clone(),
            wait: self.waits.begin(),
        };
        let app = Arc::clone(self);
        let work = task::spawn_blocking(move || {
            let _place = place;
            work(&app, call)
        });
        work.await.unwrap_or_else(|_panicked| {
            Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "an error of the service; its log has the cause",
            ))
        })
    }

    /// How many releases by an operator run.
    pub(crate) fn running_releases(&self) -> usize {
        (RELEASES as usize).saturating_sub(self.releases.available_permits())
    }

    /// Waits until no request uses the database, also none whose client has hung up. None can begin afterwards.
    pub(crate) async fn closures_ended(&self) {
        for (places, most) in [
            (&self.places, self.arguments.max_waiting),
            (&self.releases, RELEASES),
        ] {
            // It fails only if the semaphore is closed.
            let _ = places.acquire_many(most).await;
            places.close();
        }
    }

    /// A connection for a short transaction, unless the client has hung up before there is one.
    pub(crate) fn connection(
        &self,
        call: &Call,
    ) -> Result<PooledConnection<ConnectionManager<C>>, Problem> {
        let conn = self.locks.pool().get().map_err(diesel_locks::Error::from)?;
        if call.stop.is_stopped() {
            return Err(Problem::temporary(
                StatusCode::SERVICE_UNAVAILABLE,
                "stopped before anything was done",
            ));
        }
        Ok(conn)
    }

    /// A connection for a release by an operator.
    pub(crate) fn operator_connection(
        &self,
    ) -> Result<PooledConnection<ConnectionManager<C>>, Problem> {
        self.operator.get().map_err(|_| Problem::database_down())
    }
}
