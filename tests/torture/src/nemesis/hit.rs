//! What a fault hit.

use torture_history::Moment;

/// A fault that took place.
pub(super) struct Hit {
    /// The worker it was for; none, when it was for all.
    pub(super) worker: Option<usize>,
    /// When the database's clock jumped ahead.
    pub(super) ahead: Option<(Moment, Moment)>,
}

impl Hit {
    pub(super) const ALL: Self = Self {
        worker: None,
        ahead: None,
    };

    pub(super) fn one(worker: usize) -> Self {
        Self {
            worker: Some(worker),
            ..Self::ALL
        }
    }
}
