//! An operation: what its records say together.

use anyhow::{Result, ensure};
use torture_history::{
    Client, ErrorKind, GuardEvent, InjectedFault, Moment, Op, Outcome, Release, Row, SlotHeld,
    Task, workload_spec,
};

/// It got what it had asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    pub(crate) slot: Option<SlotHeld>,
    pub(crate) at: Moment,
}

/// It renewed its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewed {
    pub(crate) expired: bool,
    pub(crate) requested: Moment,
    pub(crate) at: Moment,
}

/// It gave its leased slot back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released<'a> {
    pub(crate) is_held: bool,
    pub(crate) release: &'a Release,
    pub(crate) at: Moment,
}

/// It asked for something after something had gone wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requested {
    /// `None` when it was granted.
    pub(crate) refused: Option<ErrorKind>,
    /// Whether its transaction was gone before.
    pub(crate) after_loss: bool,
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
    pub(crate) client: Client,
    pub(crate) task: &'a Task,
    pub(crate) began: Moment,
    /// Whether requests of its `LockPool` waited without a connection when it began.
    pub(crate) queued: bool,
    /// When it had the connection on which it waits.
    pub(crate) connected: Option<Moment>,
    /// Once for each attempt that got so far.
    pub(crate) entered: Vec<Entered>,
    /// The number that its last attempt has drawn.
    pub(crate) drawn: Option<i64>,
    /// Each time, in order.
    pub(crate) renewed: Vec<Renewed>,
    pub(crate) released: Option<Released<'a>>,
    /// What happened to the slot of its guard, in order.
    pub(crate) guard: Vec<(GuardEvent, Moment)>,
    /// Rows that the database took, where something goes wrong.
    pub(crate) wrote: Vec<Row>,
    /// Whether its transaction was gone before its closure returned.
    pub(crate) lost: bool,
    pub(crate) requested: Vec<Requested>,
    pub(crate) end: Option<End<'a>>,
    /// Whether all of it is in the database.
    pub(crate) committed: bool,
}

impl Operation<'_> {
    /// It asked for something.
    pub(crate) fn requested(&mut self, refused: Option<ErrorKind>, at: Moment) {
        let after_loss = self.lost;
        self.requested.push(Requested {
            refused,
            after_loss,
            at,
        });
    }

    /// The attempt that counts: the last. One that failed is followed by another, or by the end.
    pub(crate) fn entered(&self) -> Option<Entered> {
        self.entered.last().copied()
    }

    /// The slot that it held last.
    pub(crate) fn slot(&self) -> Option<SlotHeld> {
        self.entered()?.slot
    }

    /// Its end, if it was reported as done.
    pub(crate) fn done(&self) -> Option<End<'_>> {
        self.end.filter(|end| *end.outcome == Outcome::Done)
    }

    /// Whether it was done, or aborted because of the fault that it injected.
    pub(crate) fn is_completed(&self) -> bool {
        self.end.is_some_and(|end| match end.outcome {
            Outcome::Done => true,
            Outcome::Failed { kind, .. } => {
                *kind == ErrorKind::Aborted && matches!(self.task, Task::IgnoreFault { .. })
            }
            _ => false,
        })
    }

    /// Whether its transaction can't be committed as the whole that it should be.
    pub(crate) fn has_injected_fault(&self) -> bool {
        let Task::IgnoreFault { injected, .. } = self.task else {
            return false;
        };
        self.lost || *injected == InjectedFault::LeftOpen && !self.entered.is_empty()
    }

    /// From when until when the transaction that was committed held what it had asked for, for certain. When the
    /// process was killed, the moment at which it entered: the COMMIT came later.
    pub(crate) fn held(&self) -> Option<(Moment, Moment)> {
        let from = self.entered()?.at;
        let until = self.end.and_then(|end| end.held_until);
        self.committed
            .then(|| (from, until.unwrap_or(from).max(from)))
    }

    /// Whether what it requests is granted on a connection that the library takes from the pool.
    pub(crate) fn borrows_connection(&self) -> bool {
        self.client.is_lock_pool() || self.task.has_guard()
    }

    /// Whether its future was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        let failed = |outcome: &Outcome| match outcome {
            Outcome::Failed { kind, .. } => *kind == ErrorKind::Dropped,
            _ => false,
        };
        self.end.is_some_and(|end| failed(end.outcome))
    }

    /// Whether its future was dropped, or may have been before its process was killed.
    pub(crate) fn may_be_dropped(&self) -> bool {
        self.is_dropped() || self.end.is_none() && Client::ASYNCHRONOUS.contains(&self.client)
    }

    /// Whether what it asks for after something has gone wrong is the lock that it had, which is free.
    pub(crate) fn asks_for_its_own_lock(&self) -> bool {
        self.may_be_dropped() || matches!(self.task, Task::Panic { .. })
    }

    /// When this happened to the slot of its guard.
    pub(crate) fn guard(&self, event: GuardEvent) -> Option<Moment> {
        let found = self.guard.iter().find(|(of, _)| *of == event);
        found.map(|(_, at)| *at)
    }

    /// The semaphore that it asks for a slot of.
    pub(crate) fn semaphore(&self) -> Option<workload_spec::Semaphore> {
        match self.task {
            Task::Lease { semaphore, .. } => workload_spec::LEASED
                .into_iter()
                .find(|leased| leased.name == semaphore),
            Task::Pinned { .. } => Some(workload_spec::PINNED),
            Task::Tick { .. } => Some(workload_spec::TIMER),
            Task::Slot { .. } => Some(workload_spec::HELD_BY_TRANSACTIONS),
            // The first four have semaphores of their own.
            Task::Revoked { .. }
            | Task::Asked { .. }
            | Task::Stuck { .. }
            | Task::HandOver
            | Task::Lock(_)
            | Task::Pass { .. }
            | Task::Transfer { .. }
            | Task::SetPermits { .. }
            | Task::Purge
            | Task::IgnoreFault { .. }
            | Task::Panic { .. } => None,
        }
    }

    /// Checks that times do not decrease, and that an operation that is done held what it requested.
    pub(crate) fn verify(&self) -> Result<()> {
        for renewed in &self.renewed {
            let (requested, at) = (renewed.requested, renewed.at);
            ensure!(
                self.began <= requested && requested <= at,
                "it renewed before it had asked to"
            );
        }
        let mut last = self.began;
        let connected = self.connected.into_iter();
        let entered = self.entered.iter().map(|entered| entered.at);
        let renewed = self.renewed.iter().map(|renewed| renewed.at);
        let released = self.released.iter().map(|released| released.at);
        let ends = self.end.iter().map(|end| end.at);
        for at in connected
            .chain(entered)
            .chain(renewed)
            .chain(released)
            .chain(ends)
        {
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
        let goes_wrong = matches!(self.task, Task::IgnoreFault { .. } | Task::Panic { .. })
            || self.may_be_dropped();
        ensure!(
            goes_wrong || self.wrote.is_empty() && !self.lost && self.requested.is_empty(),
            "nothing was to go wrong in it"
        );
        for requested in &self.requested {
            ensure!(requested.at >= self.began, "it asked before it began");
        }
        let slots =
            self.task.has_guard() || matches!(self.task, Task::Lease { .. } | Task::Pinned { .. });
        ensure!(
            slots && !self.entered.is_empty() || self.renewed.is_empty() && self.released.is_none(),
            "it renewed or gave back what it had not leased"
        );
        let guard: &[_] = match self.task {
            Task::Revoked { .. } => &[GuardEvent::Revoked, GuardEvent::LossReported],
            Task::Asked { .. } => &[GuardEvent::Asked, GuardEvent::LossReported],
            Task::Stuck { .. } => &[GuardEvent::Stuck, GuardEvent::LossReported],
            Task::HandOver => &[GuardEvent::HandedOver],
            _ => &[],
        };
        let events = self.guard.iter().map(|(event, _)| event);
        ensure!(
            !self.entered.is_empty() && events.eq(guard.iter().take(self.guard.len()))
                || self.guard.is_empty(),
            "this does not happen to its guard"
        );
        let is_tick = matches!(self.task, Task::Tick { .. });
        let mut slots_held = self.entered.iter().filter_map(|entered| entered.slot);
        ensure!(
            slots_held.all(|slot| slot.due_us.is_some() == is_tick),
            "ticks are due, and nothing else is"
        );
        let without = self.entered.iter().any(|entered| entered.slot.is_none());
        ensure!(!slots || !without, "it leased a slot without a number");
        if let Some(end) = self.done() {
            let locks = matches!(
                self.task,
                Task::Lock(_) | Task::Slot { .. } | Task::IgnoreFault { .. } | Task::Panic { .. }
            );
            let enters = slots || locks;
            ensure!(
                !enters || !self.entered.is_empty(),
                "it is done and never entered"
            );
            let transaction =
                enters && !self.task.has_guard() && !matches!(self.task, Task::Lease { .. });
            let held = end.held_until >= self.entered().map(|entered| entered.at);
            ensure!(
                !transaction || held,
                "it is done and did not hold what it entered with"
            );
        }
        Ok(())
    }
}
