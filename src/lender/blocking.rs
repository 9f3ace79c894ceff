//! Diesel's pool r2d2, for a connection of which the thread waits: the futures are ready at once.

use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, PooledConnection, R2D2Connection};

use super::Lender;
use crate::Error;
use crate::engine::HasBlockingEngine;
use crate::stop::StopToken;

/// How often a waiter that waits for a connection looks whether it was stopped. r2d2 can't be woken.
const STOP_INTERVAL: Duration = Duration::from_millis(25);

pub(crate) type R2d2Pool<C> = Pool<ConnectionManager<C>>;

pub(crate) type Borrowed<C> = PooledConnection<ConnectionManager<C>>;

impl<C: HasBlockingEngine + R2D2Connection + 'static> Lender for R2d2Pool<C> {
    type Connection = C;
    type Lent = Borrowed<C>;

    async fn lend(
        &self,
        limit: Duration,
        stop: Option<&StopToken>,
    ) -> Result<Option<Borrowed<C>>, Error> {
        let started = Instant::now();
        let limit = self.timeout().min(limit);
        loop {
            if stop.is_some_and(StopToken::is_stopped) {
                return Ok(None);
            }
            let left = limit.saturating_sub(started.elapsed());
            let slice = match stop {
                Some(_) => left.min(STOP_INTERVAL),
                None => left,
            };
            match self.get_timeout(slice) {
                Ok(conn) => return Ok(Some(conn)),
                Err(error) if left <= slice => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    fn timed_out(&self, _: Duration) -> Option<Error> {
        None
    }

    fn timeout(&self) -> Duration {
        self.connection_timeout()
    }

    fn max_size(&self) -> usize {
        usize::try_from(Pool::max_size(self)).unwrap_or(usize::MAX)
    }
}
