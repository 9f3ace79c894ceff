//! The connections of a pool, borrowed for the attempts of waits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, PooledConnection, R2D2Connection};

use crate::engine::HasBlockingEngine;
use crate::semaphore::backend::SemaphoreBackend;
use crate::waiting::Waiting;
use crate::{Error, Wait};

/// How often a waiter that waits for a connection looks whether it was stopped. r2d2 can't be woken.
const STOP_INTERVAL: Duration = Duration::from_millis(25);

/// How long a waiter waits for a connection at least, so that what is free is acquired with any time limit: the pool may
/// have to open a connection.
const SHORTEST_BORROW: Duration = Duration::from_millis(200);

/// How old the identity of the database may be before a waiter reads it again.
const IDENTITY_AGE: Duration = Duration::from_secs(10);

pub(crate) type Borrowed<C> = PooledConnection<ConnectionManager<C>>;

/// When it was read, and the result of [`SemaphoreBackend::database_id`].
type Identity = (Instant, Option<String>);

/// A pool from which waiters borrow a connection for each attempt.
pub(crate) struct Connections<C: R2D2Connection + 'static> {
    pool: Pool<ConnectionManager<C>>,
    identity: Mutex<Option<Identity>>,
}

impl<C: R2D2Connection + 'static> Connections<C> {
    pub(crate) fn new(pool: Pool<ConnectionManager<C>>) -> Self {
        Self {
            pool,
            identity: Mutex::default(),
        }
    }

    pub(crate) fn pool(&self) -> &Pool<ConnectionManager<C>> {
        &self.pool
    }

    /// Borrows a connection, within the time of the pool and that of the waiter.
    pub(crate) fn borrow(&self, waiting: &Waiting) -> Result<Borrowed<C>, Error> {
        let started = Instant::now();
        let limit = match waiting.wait {
            Wait::AtMost(limit) => limit.saturating_sub(waiting.elapsed()).max(SHORTEST_BORROW),
            Wait::Forever | Wait::No => Duration::MAX,
        };
        let limit = self.pool.connection_timeout().min(limit);
        loop {
            waiting.check_stop()?;
            let left = limit.saturating_sub(started.elapsed());
            let step = match waiting.stop() {
                Some(_) => left.min(STOP_INTERVAL),
                None => left,
            };
            match self.pool.get_timeout(step) {
                Ok(conn) => return Ok(conn),
                Err(error) if left <= step => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    /// How many waiters for a semaphore of `permits` permits may make their first attempts at the same time: half of
    /// the connections stay for others.
    pub(crate) fn max_concurrent(&self, permits: usize) -> usize {
        let half = usize::try_from(self.pool.max_size() / 2).unwrap_or(usize::MAX);
        permits.min(half).max(1)
    }
}

impl<C: HasBlockingEngine + R2D2Connection + 'static> Connections<C> {
    /// Identifies the database: see [`SemaphoreBackend::database_id`]. Borrows a connection only if no waiter has read the
    /// identity: when many wait, each needs it.
    pub(crate) fn database_id(&self, waiting: &Waiting) -> Result<Option<String>, Error> {
        if let Some((_, database)) = &*self.lock_identity() {
            return Ok(database.clone());
        }
        self.read_identity(&mut *self.borrow(waiting)?)
    }

    /// Reads the identity with the connection of a waiter that was refused, unless it was read recently: a server may be
    /// replaced by another one.
    pub(crate) fn refresh_identity(&self, conn: &mut C) -> Result<(), Error> {
        let read = self.lock_identity().as_ref().map(|(read, _)| *read);
        if read.is_none_or(|read| read.elapsed() > IDENTITY_AGE) {
            self.read_identity(conn)?;
        }
        Ok(())
    }

    fn read_identity(&self, conn: &mut C) -> Result<Option<String>, Error> {
        let database = C::block_on(C::LockEngine::database_id(conn))?;
        *self.lock_identity() = Some((Instant::now(), database.clone()));
        Ok(database)
    }

    fn lock_identity(&self) -> MutexGuard<'_, Option<Identity>> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
