//! What the clones and the guards of a renewer share.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::shared::Shared;
use crate::Slot;
use crate::cancel::unless_dropped;
use crate::lender::Lender;
use crate::pooled::discard_if_unusable;
use crate::semaphore::guard::{ReleaseKind, Releasing, Renew};
use crate::semaphore::holding;

/// Held by the renewer's clones and its guards, not by its loop: the last one ends the loop.
pub(super) struct Handle<L>(pub(super) Arc<Shared<L>>);

impl<L> Drop for Handle<L> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<L: Lender> Renew for Handle<L> {
    fn remove(&self, slot: &Slot) {
        self.0.remove(slot);
    }

    fn release<'a>(&'a self, slot: &'a Slot) -> Releasing<'a> {
        Box::pin(async move {
            let pool_timeout = self.0.connections().pool().timeout();
            let mut conn = self.0.lend(pool_timeout).await?;
            let released = unless_dropped!(&mut *conn, |conn| holding::release(conn, slot));
            discard_if_unusable(&mut *conn, released)
        })
    }

    fn release_in_background(
        &self,
        slot: &Slot,
        kind: ReleaseKind,
        remaining: Duration,
    ) -> Receiver<()> {
        self.0.release_in_background(slot, kind, remaining)
    }
}
