//! An operation: what its records say together.

use anyhow::{Result, ensure};
use torture_history::{Moment, Op, Outcome, Release, SlotHeld, Task, scene};

/// It got what it had asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    pub(crate) slot: Option<SlotHeld>,
    pub(crate) at: Moment,
}

/// It refreshed its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refreshed {
    pub(crate) expired: bool,
    pub(crate) asked: Moment,
    pub(crate) at: Moment,
}

/// It gave its leased slot back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released<'a> {
    pub(crate) is_held: bool,
    pub(crate) release: &'a Release,
    pub(crate) at: Moment,
}

/// It came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    pub(crate) outcome: &'a Outcome,
    pub(crate) held_until: Option<Moment>,
    pub(crate) at: Moment,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) op: Op,
    pub(crate) worker: u32,
    /// Which does one after the other.
    pub(crate) thread: u32,
    pub(crate) task: &'a Task,
    pub(crate) began: Moment,
    /// Once for each attempt that got so far.
    pub(crate) entered: Vec<Entered>,
    /// Each time, in order.
    pub(crate) refreshed: Vec<Refreshed>,
    pub(crate) released: Option<Released<'a>>,
    pub(crate) end: Option<End<'a>>,
    /// Whether all of it is in the database.
    pub(crate) committed: bool,
}

impl Operation<'_> {
    /// The attempt that counts: the last. One that failed is followed by another, or by the end.
    pub(crate) fn entered(&self) -> Option<Entered> {
        self.entered.last().copied()
    }

    /// The slot that it held last.
    pub(crate) fn slot(&self) -> Option<SlotHeld> {
        self.entered()?.slot
    }

    /// Whether it was told that all of it took place.
    pub(crate) fn done(&self) -> Option<End<'_>> {
        self.end.filter(|end| *end.outcome == Outcome::Done)
    }

    /// From when until when the transaction that was committed held what it had asked for, for certain. When the
    /// process was killed, the moment at which it entered: the COMMIT came later.
    pub(crate) fn held(&self) -> Option<(Moment, Moment)> {
        let from = self.entered()?.at;
        let until = self.end.and_then(|end| end.held_until);
        self.committed
            .then(|| (from, until.unwrap_or(from).max(from)))
    }

    /// The semaphore that it asks for a slot of.
    pub(crate) fn semaphore(&self) -> Option<scene::Semaphore> {
        match self.task {
            Task::Lease { semaphore, .. } => scene::LEASED
                .into_iter()
                .find(|leased| leased.name == semaphore),
            Task::Ensured { .. } => Some(scene::ENSURED),
            Task::Slot { .. } => Some(scene::HELD_BY_TRANSACTIONS),
            Task::Lock { .. } | Task::Pass { .. } | Task::Transfer { .. } | Task::Purge => None,
        }
    }

    /// Time goes one way, and who is done had what it needed.
    pub(crate) fn verify(&self) -> Result<()> {
        for refreshed in &self.refreshed {
            let (asked, at) = (refreshed.asked, refreshed.at);
            ensure!(
                self.began <= asked && asked <= at,
                "it refreshed before it had asked to"
            );
        }
        let mut last = self.began;
        let entered = self.entered.iter().map(|entered| entered.at);
        let refreshed = self.refreshed.iter().map(|refreshed| refreshed.at);
        let released = self.released.iter().map(|released| released.at);
        let ends = self.end.iter().map(|end| end.at);
        for at in entered.chain(refreshed).chain(released).chain(ends) {
            ensure!(at >= last, "its records are not in the order of time");
            last = at;
        }
        if let Some(held_until) = self.end.and_then(|end| end.held_until) {
            ensure!(
                held_until <= last,
                "it knew before its end that it would hold on after it"
            );
        }
        let semaphore = self.semaphore();
        if let Task::Lease {
            semaphore: name, ..
        } = self.task
        {
            ensure!(
                semaphore.is_some(),
                "there is no semaphore {name:?} to lease"
            );
        }
        let slots = matches!(self.task, Task::Lease { .. } | Task::Ensured { .. });
        ensure!(
            slots && !self.entered.is_empty()
                || self.refreshed.is_empty() && self.released.is_none(),
            "it refreshed or gave back what it had not leased"
        );
        let without = self.entered.iter().any(|entered| entered.slot.is_none());
        ensure!(!slots || !without, "it leased a slot without a number");
        if let Some(end) = self.done() {
            let enters = slots || matches!(self.task, Task::Lock { .. } | Task::Slot { .. });
            ensure!(
                !enters || !self.entered.is_empty(),
                "it is done and never entered"
            );
            let transaction = enters && !matches!(self.task, Task::Lease { .. });
            let held = end.held_until >= self.entered().map(|entered| entered.at);
            ensure!(
                !transaction || held,
                "it is done and did not hold what it entered with"
            );
        }
        Ok(())
    }
}
