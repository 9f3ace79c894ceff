//! What happens when the future of a method is dropped before it is ready.

use std::ops::{Deref, DerefMut};

use crate::Error;
use crate::engine::HasEngine;
use crate::transaction::backend::TransactionBackend;
use crate::transaction::depth::depth;

/// A connection while a method of this crate uses it. If the guard is dropped before [`finish`](Self::finish), it ends what
/// the method has started on the server: see [`TransactionBackend::abandon`].
///
/// The future of the method owns the guard, and borrows the connection from it for everything that it sends. So when the
/// future is dropped, what it was waiting for is dropped first.
pub(crate) struct CancelGuard<'c, C: HasEngine> {
    conn: &'c mut C,
    /// The number of open transactions before the method.
    depth: u32,
    undo: Option<String>,
    finished: bool,
}

impl<'c, C: HasEngine> CancelGuard<'c, C> {
    /// Fails on a connection that is marked as broken.
    pub(crate) fn new(conn: &'c mut C) -> Result<Self, Error> {
        let depth = depth(conn)?;
        Ok(Self {
            conn,
            depth,
            undo: None,
            finished: false,
        })
    }

    /// Sets a statement that takes back what may be committed when the future is dropped.
    pub(crate) fn undo_by(&mut self, statement: String) {
        self.undo = Some(statement);
    }

    /// The method has ended, and with it all that it has started.
    pub(crate) fn finish(mut self) {
        self.finished = true;
    }
}

impl<C: HasEngine> Deref for CancelGuard<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.conn
    }
}

impl<C: HasEngine> DerefMut for CancelGuard<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.conn
    }
}

impl<C: HasEngine> Drop for CancelGuard<'_, C> {
    fn drop(&mut self) {
        if !self.finished {
            tracing::debug!(
                target: "diesel_locks::cancel",
                depth = self.depth,
                "future dropped: what it has started is rolled back"
            );
            C::LockEngine::abandon(self.conn, self.depth, self.undo.as_deref());
        }
    }
}

/// Awaits `$work`, in which `$conn` is the connection of a [`CancelGuard`]. A macro, because a closure that returns a future
/// hides whether that is `Send`.
macro_rules! unless_dropped {
    ($guarded:expr, |$conn:ident| $work:expr) => {{
        let mut guard = crate::cancel::CancelGuard::new($guarded)?;
        let $conn = &mut *guard;
        let result = $work.await;
        guard.finish();
        result
    }};
}
pub(crate) use unless_dropped;
