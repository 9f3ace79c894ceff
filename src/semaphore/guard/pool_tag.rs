//! Which keeper a connection's pool has, noted on the connection.

use std::sync::{Arc, OnceLock, Weak};

use diesel::r2d2::{ConnectionManager, PooledConnection, R2D2Connection};

use super::renewer::Keeper;

/// The mark of a connection. It goes with the connection when that goes back into its pool, and can be set
/// then: by whoever has acquired with the connection, or by a search that comes across it. As no two
/// connections share one, it also tells a connection from all others.
pub(super) struct Mark<C: R2D2Connection + Send + 'static>(Arc<OnceLock<Weak<Keeper<C>>>>);

impl<C: R2D2Connection + Send + 'static> Mark<C> {
    /// That of this connection, which gets one if it has none, or one of a keeper that is gone.
    pub(super) fn of(conn: &mut PooledConnection<ConnectionManager<C>>) -> Self {
        let extensions = PooledConnection::extensions_mut(conn);
        if let Some(mark) = extensions.get::<Self>()
            && mark.0.get().is_none_or(|keeper| keeper.strong_count() > 0)
        {
            return mark.clone();
        }
        let mark = Self(Arc::default());
        extensions.insert(mark.clone());
        mark
    }

    /// If it is set.
    pub(super) fn keeper(&self) -> Option<Arc<Keeper<C>>> {
        self.0.get()?.upgrade()
    }

    /// If it is not set yet: of two keepers that renew in the connection's database either will do.
    pub(super) fn set(&self, keeper: &Arc<Keeper<C>>) {
        let _ = self.0.set(Arc::downgrade(keeper));
    }

    /// Whether both are of one connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<C: R2D2Connection + Send + 'static> Clone for Mark<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
