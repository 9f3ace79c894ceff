//! Pools of connections of diesel-async, and the lock pools that use them.

use std::ops::DerefMut;
use std::sync::Arc;

use async_trait::async_trait;
use diesel_locks::{
    Async, LeaseOptions, LockPool, LockRequest, Pool, Semaphore, SlotRenewer, StopToken, Tick, Wait,
};
use torture_history::Client;

use crate::async_store::AsyncStore;
use crate::worker::{Failure, Ticking, timer_job};

/// Which pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    Deadpool,
    Bb8,
}

impl PoolKind {
    /// The client that uses a connection of it.
    pub(crate) fn connection(self) -> Client {
        match self {
            Self::Deadpool => Client::Deadpool,
            Self::Bb8 => Client::Bb8,
        }
    }

    /// The client that uses a lock pool.
    pub(crate) fn lock_pool(self) -> Client {
        match self {
            Self::Deadpool => Client::DeadpoolLockPool,
            Self::Bb8 => Client::Bb8LockPool,
        }
    }
}

/// A connection of a pool.
pub(crate) type Taken<C> = Box<dyn DerefMut<Target = C> + Send>;

/// A pool.
#[async_trait]
pub(crate) trait AsyncConnections<C>: Send + Sync {
    /// Waits for a connection.
    async fn take(&self) -> anyhow::Result<Taken<C>>;

    /// A lock pool of its own that uses the connections.
    fn lock_pool(&self) -> Arc<dyn AsyncLocks<C>>;
}

/// What is done in a transaction that holds a lock or a slot.
#[async_trait]
pub(crate) trait Section<C>: Send + Sync {
    /// Runs it.
    async fn run(&self, conn: &mut C) -> Result<(), Failure>;
}

/// A lock pool.
#[async_trait]
pub(crate) trait AsyncLocks<C>: Send + Sync {
    /// How many requests wait for a lock or a slot, or make an attempt.
    fn waiting(&self) -> usize;

    async fn with_object_lock(
        &self,
        request: LockRequest,
        section: &dyn Section<C>,
    ) -> Result<(), Failure>;

    async fn with_slot(
        &self,
        semaphore: &Semaphore,
        wait: Wait,
        section: &dyn Section<C>,
    ) -> Result<(), Failure>;

    /// Does not wait for a slot.
    async fn try_with_slot(
        &self,
        semaphore: &Semaphore,
        section: &dyn Section<C>,
    ) -> Result<(), Failure>;

    async fn with_slots(
        &self,
        semaphore: &Semaphore,
        permits: u32,
        wait: Wait,
        section: &dyn Section<C>,
    ) -> Result<(), Failure>;

    /// Runs ticks, with a renewer of its own that uses the connections, until a stop.
    async fn run_on_timer(
        &self,
        lease: &LeaseOptions,
        stop: &StopToken,
        ticking: &Ticking<'_, C>,
    ) -> Result<(), Failure>;
}

#[async_trait]
impl<P: Pool<Style = Async, Connection: AsyncStore>> AsyncLocks<P::Connection> for LockPool<P> {
    fn waiting(&self) -> usize {
        self.waiting()
    }

    async fn with_object_lock(
        &self,
        request: LockRequest,
        section: &dyn Section<P::Connection>,
    ) -> Result<(), Failure> {
        let work = async move |conn: &mut P::Connection| section.run(conn).await;
        self.with_object_lock(request, work).await
    }

    async fn with_slot(
        &self,
        semaphore: &Semaphore,
        wait: Wait,
        section: &dyn Section<P::Connection>,
    ) -> Result<(), Failure> {
        let work = async move |conn: &mut P::Connection| section.run(conn).await;
        self.with_slot(semaphore, wait, work).await
    }

    async fn try_with_slot(
        &self,
        semaphore: &Semaphore,
        section: &dyn Section<P::Connection>,
    ) -> Result<(), Failure> {
        let work = async move |conn: &mut P::Connection| section.run(conn).await;
        self.try_with_slot(semaphore, work).await?;
        Ok(())
    }

    async fn with_slots(
        &self,
        semaphore: &Semaphore,
        permits: u32,
        wait: Wait,
        section: &dyn Section<P::Connection>,
    ) -> Result<(), Failure> {
        let work = async move |conn: &mut P::Connection| section.run(conn).await;
        self.with_slots(semaphore, permits, wait, work).await
    }

    async fn run_on_timer(
        &self,
        lease: &LeaseOptions,
        stop: &StopToken,
        ticking: &Ticking<'_, P::Connection>,
    ) -> Result<(), Failure> {
        let renewer = SlotRenewer::new(self.pool().clone()).stopped_by(stop);
        let work = async move |tick: &Tick<Async>| {
            let ran = ticking.run(tick).await;
            stop.stop();
            ran
        };
        renewer.run_on_timer(&timer_job(), lease, work).await
    }
}

/// Opens a pool. None of its time-outs is longer than that of the workers' other pools.
macro_rules! open_pool {
    ($manager:expr, $pool:expr, $size:expr) => {{
        use diesel_async::pooled_connection::{bb8, deadpool};
        use torture_history::workload_spec::POOL_TIMEOUT;

        Ok(match $pool {
            $crate::async_pools::PoolKind::Deadpool => {
                let pool: deadpool::Pool<Self> = deadpool::Pool::builder($manager)
                    .max_size(usize::try_from($size)?)
                    .wait_timeout(Some(POOL_TIMEOUT))
                    .create_timeout(Some(POOL_TIMEOUT))
                    .recycle_timeout(Some(POOL_TIMEOUT))
                    .runtime(::deadpool::Runtime::Tokio1)
                    .build()?;
                Arc::new(pool)
            }
            $crate::async_pools::PoolKind::Bb8 => {
                let pool: bb8::Pool<Self> = bb8::Pool::builder()
                    .max_size($size)
                    .connection_timeout(POOL_TIMEOUT)
                    .build_unchecked($manager);
                Arc::new(pool)
            }
        })
    }};
}
pub(crate) use open_pool;

/// Implements [`AsyncConnections`] by a macro for each engine: the pools themselves are implemented for connections with
/// traits that diesel-async does not export.
macro_rules! implement_pools {
    ($connection:ty) => {
        #[async_trait::async_trait]
        impl $crate::async_pools::AsyncConnections<$connection>
            for diesel_async::pooled_connection::deadpool::Pool<$connection>
        {
            async fn take(&self) -> anyhow::Result<$crate::async_pools::Taken<$connection>> {
                // It may refuse a broken connection, and open another.
                let taken = tokio::time::timeout(workload_spec::POOL_TIMEOUT, self.get());
                Ok(Box::new(taken.await??) as _)
            }

            fn lock_pool(&self) -> Arc<dyn $crate::async_pools::AsyncLocks<$connection>> {
                Arc::new(diesel_locks::LockPool::new(self.clone()))
            }
        }

        #[async_trait::async_trait]
        impl $crate::async_pools::AsyncConnections<$connection>
            for diesel_async::pooled_connection::bb8::Pool<$connection>
        {
            async fn take(&self) -> anyhow::Result<$crate::async_pools::Taken<$connection>> {
                let pool = self.clone();
                // In a task of its own: bb8 lends a connection again whose check was dropped.
                let taken = tokio::spawn(async move { pool.get_owned().await });
                Ok(Box::new(taken.await??) as _)
            }

            fn lock_pool(&self) -> Arc<dyn $crate::async_pools::AsyncLocks<$connection>> {
                Arc::new(diesel_locks::LockPool::new(self.clone()))
            }
        }
    };
}
pub(crate) use implement_pools;
