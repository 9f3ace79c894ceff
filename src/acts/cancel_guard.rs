//! What happens when the future of a method is dropped before it is ready: [`CancelGuard`] has the engine abandon the connection
//! (`Engine::abandon`), whose link sends what ends the work on the server (`Link::abandon`, `link::nonblocking`).

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use uuid::Uuid;

use crate::Error;
use crate::engine::{Engine, HasEngine};
#[cfg(all(feature = "_pool", not(feature = "_async_pool")))]
use crate::link::activity::Activity;
use crate::link::depth;
use crate::link::depth::{depth, mark_broken};
#[cfg(feature = "_async_pool")]
pub(crate) use crate::link::nonblocking::counted;

/// What a method uses: a connection of the application, to call a closure, or else its engine.
pub(crate) trait Used: Send {
    /// Fails as [`HasEngine::engine`].
    fn with_engine<T>(&mut self, work: impl FnOnce(&mut dyn Engine) -> T) -> Result<T, Error>;
}

impl<C: HasEngine> Used for C {
    fn with_engine<T>(&mut self, work: impl FnOnce(&mut dyn Engine) -> T) -> Result<T, Error> {
        Ok(work(&mut *C::engine(self)?))
    }
}

impl Used for dyn Engine + '_ {
    fn with_engine<T>(&mut self, work: impl FnOnce(&mut dyn Engine) -> T) -> Result<T, Error> {
        Ok(work(self))
    }
}

/// A connection while a method of this crate uses it. If the guard is dropped before [`finish_with`](Self::finish_with), it
/// ends what the method has started on the server: see [`Engine::abandon`].
///
/// The future of the method owns the guard, and borrows the connection from it for everything that it sends. So when the
/// future is dropped, what it was waiting for is dropped first.
pub(crate) struct CancelGuard<'c, U: Used + ?Sized> {
    used: &'c mut U,
    depth: u32,
    /// The semaphore and the tokens of leases that may be committed.
    leases: Option<(&'c str, Vec<Uuid>)>,
    finished: bool,
}

impl<'c, U: Used + ?Sized> CancelGuard<'c, U> {
    /// Fails on a connection that is marked as broken.
    pub(crate) fn new(used: &'c mut U) -> Result<Self, Error> {
        let depth = used.with_engine(|engine| depth(engine.status()))??;
        Ok(Self {
            used,
            depth,
            leases: None,
            finished: false,
        })
    }

    /// [`new`](Self::new) after the method has begun a transaction or savepoint, without an await in between.
    pub(crate) fn after_begin(used: &'c mut U) -> Result<Self, Error> {
        let mut guard = Self::new(used)?;
        guard.depth = guard.depth.saturating_sub(1);
        Ok(guard)
    }

    /// Ends what a method has started on the server since the connection had `depth` open transactions.
    pub(crate) fn abandon(used: &'c mut U, depth: u32) {
        drop(Self {
            used,
            depth,
            leases: None,
            finished: false,
        });
    }

    /// Has slots released that may have been acquired with these tokens when the future is dropped.
    pub(crate) fn release_slots_of(&mut self, semaphore: &'c str, tokens: Vec<Uuid>) {
        self.leases = Some((semaphore, tokens));
    }

    /// The method has ended, and with it all that it has started, also if it has panicked.
    pub(crate) fn finish_with<T>(mut self, outcome: thread::Result<T>) -> T {
        self.finished = match &outcome {
            Ok(_) => true,
            // A lease may have been committed before the panic.
            Err(_) => {
                self.leases.is_none()
                    && self
                        .used
                        .with_engine(|engine| depth::counted(engine.status()))
                        .is_ok_and(|now| now.is_ok_and(|now| now == self.depth))
            }
        };
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<U: Used + ?Sized> Deref for CancelGuard<'_, U> {
    type Target = U;

    fn deref(&self) -> &U {
        self.used
    }
}

impl<U: Used + ?Sized> DerefMut for CancelGuard<'_, U> {
    fn deref_mut(&mut self) -> &mut U {
        self.used
    }
}

impl<U: Used + ?Sized> Drop for CancelGuard<'_, U> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let Self {
            used,
            depth,
            leases,
            ..
        } = self;
        // The application's instrumentation sees what is sent, and may panic. A panic here could end the process.
        let abandoned = catch_unwind(AssertUnwindSafe(|| {
            used.with_engine(|engine| {
                let undo = leases
                    .as_ref()
                    .map(|(semaphore, tokens)| engine.release_unused_statement(semaphore, tokens));
                engine.abandon(*depth, undo.as_deref());
            })
        }));
        if abandoned.is_err() {
            tracing::error!(
                target: "diesel_locks::cancel",
                "the instrumentation of a connection panicked: what a dropped future has left ends with the connection"
            );
            let _ = catch_unwind(AssertUnwindSafe(|| {
                used.with_engine(|engine| mark_broken(engine.status()))
            }));
        }
    }
}

/// Without asynchronous pools no future is dropped early, so there is nothing to count.
#[cfg(all(feature = "_pool", not(feature = "_async_pool")))]
pub(crate) fn counted<T, F: Future<Output = T> + Send>(_: &Activity, future: F) -> F {
    future
}

/// Returns the outcome of an attempt. After an error that the connection may have, and another one may not, has the pool
/// discard the connection. Not in an open transaction, which is the application's.
#[cfg(feature = "_pool")]
pub(crate) fn discard_if_unusable<T>(
    engine: &mut dyn Engine,
    outcome: Result<T, Error>,
) -> Result<T, Error> {
    let is_suspect = matches!(
        outcome,
        Err(Error::Database(_)
            | Error::ReadOnly { .. }
            | Error::RefusedByGroup { .. }
            | Error::UntrackedTransaction { .. })
    );
    if is_suspect && depth(engine.status()).is_ok_and(|depth| depth == 0) {
        mark_broken(engine.status());
    }
    outcome
}

/// Awaits `$work`, in which `$conn` is what a [`CancelGuard`] guards: an engine or a connection. A macro, because a closure
/// that returns a future hides whether that is `Send`. `borrowed`: [the engine of a pool's connection](discard_if_unusable).
macro_rules! unless_dropped {
    (borrowed $engine:expr, |$conn:ident| $work:expr) => {{
        let engine: &mut dyn crate::engine::Engine = $engine;
        let outcome = unless_dropped!(&mut *engine, |$conn| $work);
        crate::acts::cancel_guard::discard_if_unusable(engine, outcome)
    }};
    ($guarded:expr, |$conn:ident| $work:expr) => {{
        let mut guard = crate::acts::cancel_guard::CancelGuard::new($guarded)?;
        let $conn = &mut *guard;
        let outcome = crate::rt::caught($work).await;
        guard.finish_with(outcome)
    }};
}
pub(crate) use unless_dropped;
