//! A node that stands for election.

use std::time::Instant;

use crate::jobs::guard::{Held, ReleaseKind, await_release};
use crate::jobs::renewer::Renewer;
use crate::jobs::{MAX_PAUSE, Participant};
use crate::pools::lender::{Lender, Style};
use crate::rt::stop_token::StopToken;
use crate::{Error, LeaseOptions, Semaphore, Wait};

/// What `run_as_leader` does around its closure.
pub(crate) struct Candidate<'a, L> {
    node: Participant<'a, L>,
    /// It has resigned: another node may be elected.
    has_resigned: bool,
}

impl<'a, L: Lender> Candidate<'a, L> {
    pub(crate) fn new(
        renewer: &Renewer<L>,
        semaphore: &'a Semaphore,
        lease: &'a LeaseOptions,
    ) -> Result<Self, Error> {
        Ok(Self {
            node: Participant::new(&renewer.patient(), semaphore, lease)?,
            has_resigned: false,
        })
    }

    /// Stopped when the loop is to end.
    pub(crate) fn stop(&self) -> &StopToken {
        &self.node.stop
    }

    /// Waits until this node is elected. Returns `None` when it is stopped.
    pub(crate) async fn elected(&mut self) -> Result<Option<Held>, Error> {
        if self.has_resigned {
            self.stop().pause(self.node.renewer.interval()).await;
            self.has_resigned = false;
        }
        while !self.stop().is_stopped() {
            let (semaphore, lease) = (self.node.semaphore, self.node.lease);
            let began = Instant::now();
            let acquired = self.node.renewer.acquire(semaphore, lease, Wait::Forever);
            match acquired.await {
                Ok(held) => {
                    self.node.succeeded();
                    if self.leads(held.is_held()) {
                        let (name, fence) = (semaphore.name(), held.slot().fence);
                        tracing::info!(semaphore = name, fence, "elected as leader");
                        return Ok(Some(held));
                    }
                    held.release_as(ReleaseKind::Unused);
                    if let Some(released) = held.end()
                        && L::Style::BLOCKS
                    {
                        await_release(&released);
                    }
                    drop(held);
                    self.node.pause_after_loss().await;
                }
                Err(Error::Stopped { .. }) => break,
                Err(error) => {
                    // It has reached the database since the last error, unless the pool had no connection for it.
                    if began.elapsed() > MAX_PAUSE && !error.has_no_connection_yet() {
                        self.node.succeeded();
                    }
                    self.node.survive(error).await?;
                }
            }
        }
        Ok(None)
    }

    /// The closure has ended. `is_held`: as the leader, or after the loss of the slot.
    pub(crate) fn has_led(&mut self, is_held: bool) {
        self.has_resigned = self.leads(is_held);
    }

    fn leads(&self, is_held: bool) -> bool {
        is_held && !self.stop().is_stopped()
    }
}
