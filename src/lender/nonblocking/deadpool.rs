//! diesel-async's pool for deadpool.

use super::for_each_connection;

/// How long a waiter waits for a connection if the pool sets no time-out: as the other pools by default.
const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

macro_rules! implement {
    ($conn:ty) => {
        impl crate::lender::Lender for diesel_async::pooled_connection::deadpool::Pool<$conn> {
            type Connection = $conn;
            type Lent = diesel_async::pooled_connection::deadpool::Object<$conn>;

            async fn lend(
                &self,
                limit: std::time::Duration,
                stop: Option<&crate::StopToken>,
            ) -> Result<Option<Self::Lent>, crate::Error> {
                use diesel_async::pooled_connection::deadpool::PoolError;

                use crate::error::AsyncPoolError;

                let started = std::time::Instant::now();
                // The limits of the pool for opening and checking a connection hold as well.
                super::get(limit.min(self.timeout()), stop, async {
                    self.get().await.map_err(|error| match error {
                        PoolError::Timeout(_) => AsyncPoolError::TimedOut {
                            waited: started.elapsed(),
                        },
                        PoolError::Backend(error) => error.into(),
                        PoolError::Closed => AsyncPoolError::Closed,
                        error @ (PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
                            AsyncPoolError::Other(Box::new(error))
                        }
                    })
                })
                .await
            }

            fn timeout(&self) -> std::time::Duration {
                self.timeouts().wait.unwrap_or(DEFAULT_TIMEOUT)
            }

            fn max_size(&self) -> usize {
                self.status().max_size
            }
        }

        impl crate::AsyncPool for diesel_async::pooled_connection::deadpool::Pool<$conn> {}
    };
}

for_each_connection!(implement);
