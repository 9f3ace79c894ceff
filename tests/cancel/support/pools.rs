//! Pools of both kinds.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use diesel_locks::{Async, LockPool, Pool};

use super::engine::{BoxFuture, Connections, Engine};

/// A kind of pool.
pub(crate) trait Kind: 'static {
    type Pool<E: Engine>: Pool<Style = Async, Connection = E::Conn> + Connections<E::Conn>;

    /// A pool of so many connections, which counts their statements.
    fn counted<E: Engine>(
        database: &E,
        size: u32,
        statements: Arc<AtomicUsize>,
    ) -> BoxFuture<'_, Self::Pool<E>>;

    fn pool<E: Engine>(database: &E, size: u32) -> BoxFuture<'_, Self::Pool<E>> {
        Self::counted(database, size, Arc::default())
    }
}

pub(crate) type Locks<E, K> = LockPool<<K as Kind>::Pool<E>>;

pub(crate) struct Bb8;

impl Kind for Bb8 {
    type Pool<E: Engine> = E::Bb8;

    fn counted<E: Engine>(
        database: &E,
        size: u32,
        statements: Arc<AtomicUsize>,
    ) -> BoxFuture<'_, E::Bb8> {
        database.bb8(size, statements)
    }
}

pub(crate) struct Deadpool;

impl Kind for Deadpool {
    type Pool<E: Engine> = E::Deadpool;

    fn counted<E: Engine>(
        database: &E,
        size: u32,
        statements: Arc<AtomicUsize>,
    ) -> BoxFuture<'_, E::Deadpool> {
        database.deadpool(size, statements)
    }
}
