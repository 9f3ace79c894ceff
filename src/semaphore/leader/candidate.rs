//! A node that stands for election.

use std::time::Duration;

use crate::engine::HasEngine;
use crate::lender::Lender;
use crate::semaphore::failures::Failures;
use crate::semaphore::guard::ReleaseKind;
use crate::semaphore::guard::held::Held;
use crate::semaphore::pace::POLL_INTERVAL;
use crate::semaphore::renewer::generic::{Renewer, await_release};
use crate::stop::{Registration, StopToken};
use crate::{Error, LeaseOptions, Semaphore, Wait};

/// What `run_as_leader` does around its closure.
pub(super) struct Candidate<'a, L> {
    /// Its waits end when the loop is stopped.
    renewer: Renewer<L>,
    semaphore: &'a Semaphore,
    lease: &'a LeaseOptions,
    stop: StopToken,
    _registration: Option<Registration>,
    failures: Failures,
    /// It has resigned: another node may be elected.
    has_resigned: bool,
}

impl<'a, L: Lender> Candidate<'a, L> {
    /// Checks the arguments. Sends nothing.
    pub(super) fn new(
        renewer: &Renewer<L>,
        semaphore: &'a Semaphore,
        lease: &'a LeaseOptions,
        stop: &StopToken,
    ) -> Result<Self, Error> {
        semaphore.validate()?;
        lease.check()?;
        renewer.check_interval()?;
        let (stop, registration) = renewer.child_of_both(stop);
        Ok(Self {
            renewer: renewer.patient().stopped_by(&stop),
            semaphore,
            lease,
            stop,
            _registration: registration,
            failures: Failures::default(),
            has_resigned: false,
        })
    }

    /// Stopped when the loop is to end.
    pub(super) fn stop(&self) -> &StopToken {
        &self.stop
    }

    /// Waits until this node is elected. Returns `None` when it is stopped.
    pub(super) async fn elected(&mut self) -> Result<Option<Held>, Error> {
        if self.has_resigned {
            self.pause(self.renewer.interval()).await;
            self.has_resigned = false;
        }
        while !self.stop.is_stopped() {
            let acquired = self
                .renewer
                .acquire(self.semaphore, self.lease, Wait::Forever);
            match acquired.await {
                Ok(held) => {
                    self.failures.reset();
                    if self.accepts(held.is_held()) {
                        let (name, fence) = (self.semaphore.name(), held.slot().fence);
                        tracing::info!(semaphore = name, fence, "elected as leader");
                        return Ok(Some(held));
                    }
                    release_unused::<L>(held);
                    // Without a pause, a lease that is too short would be granted again and again.
                    self.pause(self.renewer.interval().min(POLL_INTERVAL)).await;
                }
                Err(Error::Stopped { .. }) => break,
                Err(error) => {
                    let pause = self.failures.pause_after(error, self.semaphore.name())?;
                    self.pause(pause).await;
                }
            }
        }
        Ok(None)
    }

    /// The closure has ended. `is_held`: as the leader, or after the loss of the slot.
    pub(super) fn has_led(&mut self, is_held: bool) {
        self.has_resigned = self.accepts(is_held);
    }

    fn accepts(&self, is_held: bool) -> bool {
        is_held && !self.stop.is_stopped()
    }

    async fn pause(&self, time: Duration) {
        self.stop
            .pause::<<L::Connection as HasEngine>::LockTimer>(time)
            .await;
    }
}

fn release_unused<L: Lender>(held: Held) {
    held.release_as(ReleaseKind::Unused);
    if let Some(released) = held.end() {
        await_release::<L>(&released);
    }
    drop(held);
}
