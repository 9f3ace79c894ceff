//! A renewer of which a shutdown knows.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::shared::Shared;
use crate::Slot;
use crate::activity::Activity;
use crate::lender::Lender;

/// A renewer that ends, and gives its connections back, although this lives.
pub(crate) struct WeakRenewer<L> {
    shared: Weak<Shared<L>>,
    activity: Activity,
}

impl<L> WeakRenewer<L> {
    pub(super) fn new(shared: &Arc<Shared<L>>) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            activity: shared.activity().clone(),
        }
    }

    /// What runs with the renewer and its clones.
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Whether the renewer has ended, and nothing is left to release.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.strong_count() == 0
    }
}

impl<L: Lender> WeakRenewer<L> {
    /// Releases the slots of all guards, within `timeout` for a connection, and returns those that were held and are
    /// released. Has the others released in the background. If the connections do not block, `timeout` limits the whole.
    pub(crate) async fn cut_all(&self, timeout: Duration) -> Vec<Slot> {
        match self.shared.upgrade() {
            Some(shared) => shared.cut_all(timeout).await,
            None => Vec::new(),
        }
    }
}
