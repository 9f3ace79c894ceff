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
                let lent = self.lend_keeping(limit, stop, ()).await?;
                Ok(lent.map(|(conn, ())| conn))
            }

            async fn lend_keeping<K: Send + 'static>(
                &self,
                limit: std::time::Duration,
                stop: Option<&crate::StopToken>,
                kept: K,
            ) -> Result<Option<(Self::Lent, K)>, crate::Error> {
                use diesel_async::pooled_connection::bb8::RunError;

                let started = std::time::Instant::now();
                let pool = self.clone();
                super::get(limit, stop, || None, async {
                    let taken = super::on_task(async move {
                        loop {
                            let mut conn = pool.get_owned().await?;
                            if super::is_in_step(&mut *conn).await {
                                return Ok((conn, kept));
                            }
                        }
                    });
                    taken.await.map_err(|error| match error {
                        RunError::User(error) => error.into(),
                        RunError::TimedOut => crate::error::AsyncPoolError::TimedOut {
                            waited: Some(started.elapsed()),
                            step: None,
                        },
                    })
                })
                .await
            }

            fn give_back_abandoned<K: Send + 'static>(conn: Self::Lent, kept: K) {
                super::give_back_abandoned(conn, kept);
            }

            fn timed_out(&self, waited: std::time::Duration) -> Option<crate::Error> {
                Some(super::timed_out(waited))
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
