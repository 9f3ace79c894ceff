//! Diesel's pool r2d2, for a connection of which the thread waits: the futures are ready at once.

use std::time::{Duration, Instant};
use std::{io, thread};

use diesel::r2d2::{ConnectionManager, Pool, PoolError, PooledConnection, R2D2Connection};

use crate::engine::HasBlockingEngine;
use crate::pools::{self, Blocking, Lending};
use crate::rt::permits::Permit;
use crate::rt::stop_token::StopToken;

/// How often a waiter that waits for a connection looks whether it was stopped. r2d2 can't be woken.
const STOP_INTERVAL: Duration = Duration::from_millis(25);

pub(crate) type R2d2Pool<C> = Pool<ConnectionManager<C>>;

/// Whether the error says why r2d2 could not open a connection. r2d2 tells that by the text only: it writes the cause behind a
/// colon.
fn has_cause(error: &PoolError) -> bool {
    error.to_string().contains(": ")
}

impl<C: HasBlockingEngine + R2D2Connection + 'static> pools::Pool for R2d2Pool<C> {
    type Connection = C;
    type Style = Blocking;
    type Lent = PooledConnection<ConnectionManager<C>>;

    const BLOCKS: bool = true;

    async fn drive<T: Send>(work: impl Future<Output = T> + Send) -> T {
        C::block_on(work)
    }

    async fn lend(
        &self,
        limit: Duration,
        stop: Option<&StopToken>,
        permit: Option<Permit>,
    ) -> Lending<Self::Lent> {
        let started = Instant::now();
        let limit = self.timeout().min(limit);
        // r2d2 returns the error of a failed connection once, at the end of whichever slice comes next.
        let mut with_cause = None;
        loop {
            if stop.is_some_and(StopToken::is_stopped) {
                return Ok(None);
            }
            let left = limit.saturating_sub(started.elapsed());
            let slice = match stop {
                Some(_) => left.min(STOP_INTERVAL),
                None => left,
            };
            let error = match self.get_timeout(slice) {
                Ok(conn) => return Ok(Some((conn, permit))),
                Err(error) => error,
            };
            let error = with_cause
                .take()
                .filter(|_| !has_cause(&error))
                .unwrap_or(error);
            if left <= slice {
                return Err(error.into());
            }
            with_cause = has_cause(&error).then_some(error);
        }
    }

    fn spawn(
        name: &str,
        _: bool,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || C::block_on(work)).map(drop)
    }

    fn timeout(&self) -> Duration {
        self.connection_timeout()
    }

    fn max_size(&self) -> usize {
        usize::try_from(Pool::max_size(self)).unwrap_or(usize::MAX)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use diesel::SqliteConnection;

    use super::*;
    use crate::Error;
    use crate::pools::Pool as _;
    use crate::rt::block_on;

    #[test]
    fn error_of_a_wait_that_can_be_stopped_names_the_cause() {
        // r2d2 tries at once, and then with growing pauses. The last slice is in one of these.
        let manager = ConnectionManager::<SqliteConnection>::new("/no/such/directory/database");
        let pool = Pool::builder().max_size(1).build_unchecked(manager);
        let stop = StopToken::new();
        for stop in [None, Some(&stop)] {
            let lent = block_on(pool.lend(Duration::from_secs(1), stop, None));
            let Some(Error::Pool(error)) = lent.err() else {
                panic!("no connection");
            };
            assert!(error.to_string().contains("unable to open"), "{error}");
        }
    }

    #[test]
    fn error_without_a_cause_replaces_none() {
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder().max_size(1).build_unchecked(manager);
        let _borrowed = pool.get().expect("a connection");
        let error = pool.get_timeout(Duration::from_millis(1)).err();
        assert!(!has_cause(&error.expect("none is left")));
    }
}
