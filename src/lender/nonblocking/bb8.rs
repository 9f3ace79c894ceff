//! diesel-async's pool for bb8.

use super::for_each_connection;

macro_rules! implement {
    ($conn:ty) => {
        impl crate::lender::Lender for diesel_async::pooled_connection::bb8::Pool<$conn> {
            type Connection = $conn;
            type Lent = diesel_async::pooled_connection::bb8::PooledConnection<'static, $conn>;

            async fn lend(
                &self,
                limit: std::time::Duration,
                stop: Option<&crate::StopToken>,
            ) -> Result<Option<Self::Lent>, crate::Error> {
                use diesel_async::pooled_connection::bb8::RunError;

                let started = std::time::Instant::now();
                super::get(limit, stop, async {
                    self.get_owned().await.map_err(|error| match error {
                        RunError::User(error) => error.into(),
                        RunError::TimedOut => crate::error::AsyncPoolError::TimedOut {
                            waited: started.elapsed(),
                        },
                    })
                })
                .await
            }

            fn timeout(&self) -> std::time::Duration {
                self.config().connection_timeout
            }

            fn max_size(&self) -> usize {
                usize::try_from(self.config().max_size).unwrap_or(usize::MAX)
            }
        }

        impl crate::AsyncPool for diesel_async::pooled_connection::bb8::Pool<$conn> {}
    };
}

for_each_connection!(implement);
