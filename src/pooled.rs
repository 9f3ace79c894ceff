//! The connections of a pool, borrowed for the attempts of waits.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cancel::unless_dropped;
use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::semaphore::backend::SemaphoreBackend;
use crate::transaction::depth::{depth, mark_broken};
use crate::waiting::Waiting;
use crate::{Error, Wait};

mod share;

use share::{Permit, Share};

/// How long a waiter waits for a connection at least, so that what is free is acquired with any time limit: the pool may
/// have to open a connection.
const SHORTEST_BORROW: Duration = Duration::from_millis(200);

/// How old the identity of the database may be before a waiter reads it again.
const IDENTITY_AGE: Duration = Duration::from_secs(10);

/// When it was read, and the result of [`SemaphoreBackend::database_id`].
type Identity = (Instant, Option<String>);

/// A pool from which waiters borrow a connection for each attempt.
pub(crate) struct Connections<L> {
    pool: L,
    share: Arc<Share>,
    identity: Mutex<Option<Identity>>,
    /// Whether a waiter reads it for the first time.
    identifying: AtomicBool,
}

impl<L> Connections<L> {
    pub(crate) fn new(pool: L) -> Self {
        Self {
            pool,
            share: Arc::default(),
            identity: Mutex::default(),
            identifying: AtomicBool::new(false),
        }
    }

    pub(crate) fn pool(&self) -> &L {
        &self.pool
    }

    /// Whether a waiter reads the identity, and it was never read before. Without that look, thousands of waiters would each
    /// borrow a connection to read it.
    pub(crate) fn is_being_identified(&self) -> bool {
        self.identifying.load(Ordering::SeqCst) && self.known_identity().is_none()
    }

    fn lock_identity(&self) -> MutexGuard<'_, Option<Identity>> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was read, and when.
    fn known_identity(&self) -> Option<Identity> {
        self.lock_identity().clone()
    }
}

impl<L: Lender> Connections<L> {
    /// Borrows a connection, within the time of the pool and that of the waiter. One connection of the pool is left to others.
    pub(crate) async fn borrow(&self, waiting: &Waiting) -> Result<Borrowed<L>, Error> {
        waiting.check_stop()?;
        let limit = match waiting.wait {
            Wait::AtMost(limit) => limit.saturating_sub(waiting.elapsed()).max(SHORTEST_BORROW),
            Wait::Forever | Wait::No => Duration::MAX,
        };
        let limit = self.pool.timeout().min(limit);
        let started = Instant::now();
        let deadline = started.checked_add(limit);
        let permit =
            self.share
                .acquire::<TimerOf<L>>(self.pool.max_size(), deadline, waiting.stop());
        let permit = permit.await;
        waiting.check_stop()?;
        if permit.is_none()
            && let Some(error) = self.pool.timed_out(started.elapsed())
        {
            return Err(error);
        }
        let left = limit.saturating_sub(started.elapsed());
        // In memory of its own: a future that waits in a queue would have room for it (deadpool: 17 kB).
        let lending = Box::pin(self.pool.lend_keeping(left, waiting.stop(), permit));
        match lending.await? {
            Some((conn, permit)) => Ok(Borrowed {
                lent: Some((conn, permit)),
                leases: false,
            }),
            None => Err(waiting.stopped_error()),
        }
    }

    /// How many waiters for a semaphore of `permits` permits may make their first attempts at the same time: half of
    /// the connections stay for others.
    pub(crate) fn max_concurrent(&self, permits: usize) -> usize {
        permits.min(self.pool.max_size() / 2).max(1)
    }

    /// The identity of the database, if a waiter has read it.
    pub(crate) fn known_database(&self) -> Option<String> {
        self.known_identity().and_then(|(_, database)| database)
    }

    /// Identifies the database: see [`SemaphoreBackend::database_id`]. Borrows a connection only if no waiter has read the
    /// identity: when many wait, each needs it.
    pub(crate) async fn database_id(&self, waiting: &Waiting) -> Result<Option<String>, Error> {
        if let Some((_, database)) = self.known_identity() {
            return Ok(database);
        }
        self.identifying.store(true, Ordering::SeqCst);
        let _identifying = Identifying(&self.identifying);
        let mut conn = self.borrow(waiting).await?;
        self.read_identity(&mut *conn).await
    }

    /// Reads the identity with the connection of a waiter that was refused, unless it was read recently: a server may be
    /// replaced by another one. Not with a connection that was lost at the end of the attempt: the next one has another.
    pub(crate) async fn refresh_identity(&self, conn: &mut L::Connection) -> Result<(), Error> {
        let known = self.known_identity();
        let is_old = known.is_none_or(|(read, _)| read.elapsed() > IDENTITY_AGE);
        if is_old && depth(conn).is_ok() {
            self.read_identity(conn).await?;
        }
        Ok(())
    }

    async fn read_identity(&self, conn: &mut L::Connection) -> Result<Option<String>, Error> {
        let database = database_id(conn).await?;
        *self.lock_identity() = Some((Instant::now(), database.clone()));
        Ok(database)
    }
}

type TimerOf<L> = <<L as Lender>::Connection as HasEngine>::LockTimer;

/// A connection that is borrowed until this is dropped, and its permit. The permit is dropped after the connection, so that
/// the next one finds it in the pool. There is none if the time was up, and the pool had a connection.
pub(crate) struct Borrowed<L: Lender> {
    lent: Option<(L::Lent, Option<Permit>)>,
    leases: bool,
}

const BORROWED: &str = "a connection until it is dropped";

impl<L: Lender> Deref for Borrowed<L> {
    type Target = L::Connection;

    fn deref(&self) -> &L::Connection {
        &self.lent.as_ref().expect(BORROWED).0
    }
}

impl<L: Lender> DerefMut for Borrowed<L> {
    fn deref_mut(&mut self) -> &mut L::Connection {
        &mut self.lent.as_mut().expect(BORROWED).0
    }
}

impl<L: Lender> Borrowed<L> {
    /// The session leases slots from now on. If a future is dropped meanwhile, it has to release the slot.
    pub(crate) fn begin_to_lease(&mut self) {
        self.leases = true;
    }
}

impl<L: Lender> Drop for Borrowed<L> {
    fn drop(&mut self) {
        let Some((conn, permit)) = self.lent.take() else {
            return;
        };
        if self.leases {
            L::give_back_abandoned(conn, permit);
        } else {
            drop(conn);
            drop(permit);
        }
    }
}

/// A waiter that reads the identity, until it has ended.
struct Identifying<'a>(&'a AtomicBool);

impl Drop for Identifying<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn database_id<C: HasEngine>(conn: &mut C) -> Result<Option<String>, Error> {
    let read = unless_dropped!(conn, |conn| C::LockEngine::database_id(conn));
    discard_if_unusable(conn, read)
}

/// Returns the outcome of an attempt. After an error that the connection may have, and another one may not, has the pool
/// discard the connection: a pool that does not check its connections would lend it again and again. Not in an open
/// transaction, which is the application's.
pub(crate) fn discard_if_unusable<C, T>(conn: &mut C, outcome: Result<T, Error>) -> Result<T, Error>
where
    C: HasEngine,
{
    let is_suspect = matches!(outcome, Err(Error::Database(_) | Error::ReadOnly { .. }));
    if is_suspect && depth(conn).is_ok_and(|depth| depth == 0) {
        mark_broken(conn);
    }
    outcome
}

#[cfg(all(test, feature = "r2d2", feature = "sqlite"))]
mod tests {
    use diesel::SqliteConnection;
    use diesel::r2d2::{ConnectionManager, Pool};

    use super::*;
    use crate::poll::poll_once;

    #[test]
    fn identity_is_not_read_with_a_connection_that_is_lost() {
        let manager = ConnectionManager::<SqliteConnection>::new(":memory:");
        let pool = Pool::builder().max_size(1).build(manager).expect("a pool");
        let mut conn = pool.get().expect("a connection");
        mark_broken(&mut *conn);
        let connections = Connections::new(pool.clone());
        let refreshed = poll_once(connections.refresh_identity(&mut *conn));
        assert!(refreshed.is_ok(), "{refreshed:?}");
    }
}
