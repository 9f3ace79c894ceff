//! The slot of a guard, whatever the guard waits with.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::state::State;
use super::{ReleaseKind, Renew, expiry_watcher};
use crate::activity::Active;
use crate::{Error, LeaseState, Slot};

/// A slot that is renewed while this lives. Dropping it has the slot released in the background, and does not wait.
pub(in crate::semaphore) struct Held {
    slot: Slot,
    state: Arc<State>,
    renewer: Arc<dyn Renew>,
    /// A shutdown waits for it.
    _active: Active,
}

impl Held {
    /// Watches the end of the lease. The caller has the slot renewed.
    pub(in crate::semaphore) fn new(
        slot: Slot,
        state: Arc<State>,
        renewer: Arc<dyn Renew>,
        active: Active,
    ) -> Self {
        expiry_watcher::watch(&state);
        Self {
            slot,
            state,
            renewer,
            _active: active,
        }
    }

    /// Sets how the slot is released when this is dropped, and by a shutdown: as a used one by default.
    pub(in crate::semaphore) fn release_as(&self, kind: ReleaseKind) {
        self.state.release_as(kind);
    }

    /// Sets that the slot is released as a used one, if it is held. Returns whether it is.
    pub(in crate::semaphore) fn begin_use(&self) -> bool {
        self.state.begin_use()
    }

    pub(in crate::semaphore) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(in crate::semaphore) fn is_held(&self) -> bool {
        self.state.is_held()
    }

    pub(super) fn ensure_held(&self) -> Result<(), Error> {
        if self.is_held() {
            Ok(())
        } else {
            Err(self.lost())
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        self.state.remaining()
    }

    pub(super) fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
        self.state.on_lost(Box::new(callback));
    }

    /// [`on_lost`](Self::on_lost) of this crate: the callback returns at once.
    pub(super) fn signal_loss(&self, signal: impl FnOnce() + Send + 'static) {
        self.state.signal_loss(Box::new(signal));
    }

    /// The text of the guard with this name, for programmers.
    pub(super) fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("slot", &self.slot)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }

    fn lost(&self) -> Error {
        Error::SlotLost {
            semaphore: self.slot.semaphore.clone(),
            number: self.slot.number,
        }
    }

    /// Releases the slot with a connection of the pool. After an error other than [`Error::SlotLost`], and if the future is
    /// dropped, the slot is released in the background.
    pub(super) async fn release(&self) -> Result<LeaseState, Error> {
        self.renewer.remove(&self.slot);
        if self.state.mark_released().is_none() {
            // Released by `release_guards`.
            return Err(self.lost());
        }
        let mut later = ReleaseLater(Some(self));
        let released = self.renewer.release(&self.slot).await;
        if released.as_ref().map_or_else(Error::is_slot_lost, |_| true) {
            later.0 = None;
        }
        released
    }

    /// Leaves it to the caller to release the slot. `None` if it was released before.
    pub(in crate::semaphore) fn into_slot(self) -> Option<Slot> {
        self.renewer.remove(&self.slot);
        self.state.mark_released().map(|_| self.slot.clone())
    }

    /// Has the slot released in the background, unless it was released before. After a failure that is repeated until the lease
    /// ends. The receiver is disconnected when it is released.
    pub(in crate::semaphore) fn end(&self) -> Option<Receiver<()>> {
        self.state.mark_released().map(|kind| {
            self.renewer.remove(&self.slot);
            self.release_in_background(kind)
        })
    }

    fn release_in_background(&self, kind: ReleaseKind) -> Receiver<()> {
        let remaining = self.state.last_remaining();
        self.renewer
            .release_in_background(&self.slot, kind, remaining)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.end());
    }
}

/// Has the slot released in the background when it is dropped.
struct ReleaseLater<'a>(Option<&'a Held>);

impl Drop for ReleaseLater<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.0 {
            drop(held.release_in_background(ReleaseKind::Used));
        }
    }
}
