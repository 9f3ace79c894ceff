//! Pools of connections of diesel-async, and the lock pools that use them.

use std::ops::DerefMut;
use std::sync::Arc;

use diesel_locks::{AsyncLockPool, AsyncPool, LockRequest, Semaphore, Wait};
use torture_history::Client;

use crate::async_store::BoxFuture;
use crate::worker::Failure;

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
pub(crate) trait AsyncConnections<C>: Send + Sync {
    /// Waits for a connection.
    fn take(&self) -> BoxFuture<'_, anyhow::Result<Taken<C>>>;

    /// A lock pool of its own that uses the connections.
    fn lock_pool(&self) -> Arc<dyn AsyncLocks<C>>;
}

/// What is done in a transaction that holds a lock or a slot.
pub(crate) trait Section<C>: Send + Sync {
    /// Runs it.
    fn run<'a>(&'a self, conn: &'a mut C) -> BoxFuture<'a, Result<(), Failure>>;
}

/// A lock pool.
pub(crate) trait AsyncLocks<C>: Send + Sync {
    /// How many requests wait for a lock or a slot, or make an attempt.
    fn waiting(&self) -> usize;

    fn with_object_lock<'a>(
        &'a self,
        request: LockRequest,
        section: &'a dyn Section<C>,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    fn with_slot<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        wait: Wait,
        section: &'a dyn Section<C>,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    /// Does not wait for a slot.
    fn try_with_slot<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        section: &'a dyn Section<C>,
    ) -> BoxFuture<'a, Result<(), Failure>>;
}

impl<P: AsyncPool> AsyncLocks<P::Connection> for AsyncLockPool<P> {
    fn waiting(&self) -> usize {
        self.waiting()
    }

    fn with_object_lock<'a>(
        &'a self,
        request: LockRequest,
        section: &'a dyn Section<P::Connection>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let work = async move |conn: &mut P::Connection| section.run(conn).await;
            self.with_object_lock(request, work).await
        })
    }

    fn with_slot<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        wait: Wait,
        section: &'a dyn Section<P::Connection>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let work = async move |conn: &mut P::Connection| section.run(conn).await;
            self.with_slot(semaphore, wait, work).await
        })
    }

    fn try_with_slot<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        section: &'a dyn Section<P::Connection>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let work = async move |conn: &mut P::Connection| section.run(conn).await;
            self.try_with_slot(semaphore, work).await?;
            Ok(())
        })
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
        impl $crate::async_pools::AsyncConnections<$connection>
            for diesel_async::pooled_connection::deadpool::Pool<$connection>
        {
            fn take(
                &self,
            ) -> BoxFuture<'_, anyhow::Result<$crate::async_pools::Taken<$connection>>> {
                Box::pin(async {
                    // It may refuse a broken connection, and open another.
                    let taken = tokio::time::timeout(workload_spec::POOL_TIMEOUT, self.get());
                    Ok(Box::new(taken.await??) as _)
                })
            }

            fn lock_pool(&self) -> Arc<dyn $crate::async_pools::AsyncLocks<$connection>> {
                Arc::new(diesel_locks::AsyncLockPool::new(self.clone()))
            }
        }

        impl $crate::async_pools::AsyncConnections<$connection>
            for diesel_async::pooled_connection::bb8::Pool<$connection>
        {
            fn take(
                &self,
            ) -> BoxFuture<'_, anyhow::Result<$crate::async_pools::Taken<$connection>>> {
                let pool = self.clone();
                Box::pin(async {
                    // In a task of its own: bb8 lends a connection again whose check was dropped.
                    let taken = tokio::spawn(async move { pool.get_owned().await });
                    Ok(Box::new(taken.await??) as _)
                })
            }

            fn lock_pool(&self) -> Arc<dyn $crate::async_pools::AsyncLocks<$connection>> {
                Arc::new(diesel_locks::AsyncLockPool::new(self.clone()))
            }
        }
    };
}
pub(crate) use implement_pools;
