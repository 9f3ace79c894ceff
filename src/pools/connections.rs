//! The connections of a pool, borrowed for the attempts of waits.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::acts::cancel_guard::unless_dropped;
use crate::acts::waiting::Waiting;
use crate::engine::{Engine, HasEngine};
#[cfg(feature = "_async_pool")]
use crate::error::{AsyncPoolError, PoolStep};
use crate::link::depth::{counted, depth};
use crate::rt::lock;
use crate::rt::permits::{Permit, Permits};
use crate::{Error, Pool, Wait};

/// From this number of connections on, one is left to other users of the pool: see "Waiting" in DESIGN.md. Requests wait for a
/// permit, and dropping one leaves nothing in the pool's queue. A request that stays in the queue of bb8 when it is dropped
/// keeps its permit until it has left that.
const SMALLEST_SHARED_POOL: usize = 4;

/// The number of connections of a pool of this size that requests may borrow at the same time. Any number of a pool without
/// connections: deadpool sets its size to 0 when it is closed, and tells it to each request.
fn share_of(pool_size: usize) -> usize {
    match pool_size {
        0 => usize::MAX,
        1..SMALLEST_SHARED_POOL => pool_size,
        _ => pool_size - 1,
    }
}

/// How long a waiter waits for a connection at least, so that what is free is acquired with any time limit: the pool may
/// have to open a connection.
const SHORTEST_BORROW: Duration = Duration::from_millis(200);

/// How old the identity of the database may be before a waiter reads it again.
const IDENTITY_AGE: Duration = Duration::from_secs(10);

/// How long others wait for the one that reads it for the first time: it may get no answer, or be a future that is not polled.
const LONGEST_READING: Duration = Duration::from_secs(1);

type Identity = (Instant, Option<String>);

pub(crate) struct Connections<P> {
    pool: P,
    share: Arc<Permits>,
    identity: Mutex<Option<Identity>>,
    /// Of the waiter that reads it for the first time. Thousands would each borrow a connection.
    identifying: Arc<Permits>,
}

impl<P> Connections<P> {
    pub(crate) fn new(pool: P) -> Self {
        Self {
            pool,
            share: Arc::default(),
            identity: Mutex::default(),
            identifying: Arc::default(),
        }
    }

    pub(crate) fn pool(&self) -> &P {
        &self.pool
    }

    pub(crate) fn known_identity(&self) -> Option<Identity> {
        lock(&self.identity).clone()
    }
}

impl<P: Pool> Connections<P> {
    /// Borrows a connection, within the time of the pool and that of the waiter.
    pub(crate) async fn borrow(&self, waiting: &Waiting) -> Result<Borrowed<P>, Error> {
        self.borrow_within(waiting, Instant::now(), self.limit(waiting))
            .await
    }

    async fn borrow_within(
        &self,
        waiting: &Waiting,
        started: Instant,
        limit: Duration,
    ) -> Result<Borrowed<P>, Error> {
        waiting.check_stop()?;
        let deadline = started.checked_add(limit);
        let permit = self.share.acquire(self.share(), deadline, waiting.stop());
        let permit = permit.await;
        waiting.check_stop()?;
        #[cfg(feature = "_async_pool")]
        if permit.is_none() && !P::BLOCKS {
            let (waited, step) = (Some(started.elapsed()), Some(PoolStep::Queue));
            return Err(AsyncPoolError::TimedOut { waited, step }.into());
        }
        let left = limit.saturating_sub(started.elapsed());
        // In memory of its own: a future that waits in a queue would have room for it (deadpool: 17 kB).
        let lending = Box::pin(self.pool.lend(left, waiting.stop(), permit));
        match lending.await? {
            Some(taken) => Ok(Borrowed {
                lent: Some(taken),
                leases: false,
            }),
            None => Err(waiting.stopped_error()),
        }
    }

    fn limit(&self, waiting: &Waiting) -> Duration {
        let limit = match waiting.wait {
            Wait::AtMost(limit) => limit.saturating_sub(waiting.elapsed()).max(SHORTEST_BORROW),
            Wait::Forever | Wait::No => Duration::MAX,
        };
        self.pool.timeout().min(limit)
    }

    /// How many connections requests may borrow at the same time.
    pub(crate) fn share(&self) -> usize {
        share_of(self.pool.max_size())
    }

    /// How many waiters for a semaphore of `permits` permits may make their first attempts at the same time: half of
    /// the connections stay for others.
    pub(crate) fn max_concurrent(&self, permits: usize) -> usize {
        permits.min(self.pool.max_size() / 2).max(1)
    }

    /// The identity of the database, which one waiter reads for all.
    pub(crate) async fn database_id(&self, waiting: &Waiting) -> Result<Option<String>, Error> {
        if let Some((_, database)) = self.known_identity() {
            return Ok(database);
        }
        let (started, limit) = (Instant::now(), self.limit(waiting));
        let deadline = Some(started + LONGEST_READING.min(limit / 2));
        let _permit = self.identifying.acquire(1, deadline, waiting.stop()).await;
        if let Some((_, database)) = self.known_identity() {
            return Ok(database);
        }
        let mut conn = self.borrow_within(waiting, started, limit).await?;
        self.read_identity(&mut *conn.engine()?).await
    }

    /// Reads the identity with the connection of a waiter that was refused, unless it was read recently: a server may be
    /// replaced by another one. Not with a connection that was lost at the end of the attempt: the next one has another.
    pub(crate) async fn refresh_identity(&self, engine: &mut dyn Engine) -> Result<(), Error> {
        let known = self.known_identity();
        let is_old = known.is_none_or(|(read, _)| read.elapsed() > IDENTITY_AGE);
        if is_old && depth(engine.status()).is_ok() {
            self.read_identity(engine).await?;
        }
        Ok(())
    }

    async fn read_identity(&self, engine: &mut dyn Engine) -> Result<Option<String>, Error> {
        let database = unless_dropped!(borrowed engine, |engine| engine.database_id())?;
        *lock(&self.identity) = Some((Instant::now(), database.clone()));
        Ok(database)
    }
}

/// A connection that is borrowed until this is dropped, and its permit. The permit is dropped after the connection, so that
/// the next one finds it in the pool. There is none if the time was up, and the pool had a connection.
pub(crate) struct Borrowed<P: Pool> {
    lent: Option<(P::Lent, Option<Permit>)>,
    leases: bool,
}

const BORROWED: &str = "a connection until it is dropped";

impl<P: Pool> Deref for Borrowed<P> {
    type Target = P::Connection;

    fn deref(&self) -> &P::Connection {
        &self.lent.as_ref().expect(BORROWED).0
    }
}

impl<P: Pool> DerefMut for Borrowed<P> {
    fn deref_mut(&mut self) -> &mut P::Connection {
        &mut self.lent.as_mut().expect(BORROWED).0
    }
}

impl<P: Pool> Borrowed<P> {
    pub(crate) fn engine(&mut self) -> Result<Box<dyn Engine + '_>, Error> {
        P::Connection::engine(self)
    }

    pub(crate) fn is_lost(&mut self) -> bool {
        let engine = self.engine();
        engine.is_ok_and(|mut engine| counted(engine.status()).is_err())
    }

    /// The session leases slots from now on. If a future is dropped meanwhile, it has to release the slot.
    pub(crate) fn begin_to_lease(&mut self) {
        self.leases = true;
    }
}

impl<P: Pool> Drop for Borrowed<P> {
    fn drop(&mut self) {
        let Some((conn, permit)) = self.lent.take() else {
            return;
        };
        if self.leases {
            P::give_back_abandoned(conn, permit);
        } else {
            drop(conn);
            drop(permit);
        }
    }
}

#[cfg(all(test, feature = "r2d2", feature = "sqlite"))]
mod tests {
    use diesel::SqliteConnection;
    use diesel::r2d2::{ConnectionManager, Pool};

    use super::*;
    use crate::link::depth::mark_broken;
    use crate::rt::block_on;

    #[test]
    fn identity_is_not_read_with_a_connection_that_is_lost() {
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        let mut conn = pool.get().expect("a connection");
        let mut engine = SqliteConnection::engine(&mut conn).expect("an engine");
        mark_broken(engine.status());
        let connections = Connections::new(pool.clone());
        let refreshed = block_on(connections.refresh_identity(&mut *engine));
        assert!(refreshed.is_ok(), "{refreshed:?}");
    }

    #[test]
    fn one_of_four_connections_is_left_to_others() {
        for (size, share) in [(0, usize::MAX), (1, 1), (2, 2), (3, 3), (4, 3), (16, 15)] {
            assert_eq!(share_of(size), share, "of {size}");
        }
    }
}
