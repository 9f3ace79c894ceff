//! What runs in the background: renewals, elections, timers. Here are elections, and what they have in common with timers: when a
//! node stops, and which errors it survives.

pub(crate) mod callbacks;
pub(crate) mod guard;
pub(crate) mod renewer;
pub(crate) mod schedule;
pub(crate) mod timer;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::acts::several::Several;
use crate::acts::slot_queue::POLL_INTERVAL;
use crate::jobs::guard::Held;
use crate::rt::backoff;
use crate::rt::stop_token::StopToken;
use crate::{Error, LeaseOptions, Pool, Semaphore, SlotRenewer, Wait};

/// The pauses after errors that follow each other.
const MIN_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);

fn check_interval(
    subject: &'static str,
    requested: Duration,
    allowed: RangeInclusive<Duration>,
) -> Result<(), Error> {
    if allowed.contains(&requested) {
        return Ok(());
    }
    let (shortest, longest) = allowed.into_inner();
    Err(Error::InvalidInterval {
        subject,
        requested,
        shortest,
        longest,
    })
}

/// A node that calls `run_as_leader` or `run_on_timer`.
pub(crate) struct Participant<'a, P> {
    pub(crate) renewer: SlotRenewer<P>,
    pub(crate) semaphore: &'a Semaphore,
    pub(crate) lease: &'a LeaseOptions,
    /// Of the renewer: stopped when the node is to stop.
    pub(crate) stop: StopToken,
    failures: u32,
}

impl<'a, P: Pool> Participant<'a, P> {
    /// Checks the arguments. Sends nothing.
    pub(crate) fn new(
        renewer: &SlotRenewer<P>,
        semaphore: &'a Semaphore,
        lease: &'a LeaseOptions,
    ) -> Result<Self, Error> {
        semaphore.validate()?;
        lease.check()?;
        Several::leased(semaphore, lease)?;
        renewer.check_interval()?;
        Ok(Self {
            renewer: renewer.clone(),
            semaphore,
            lease,
            stop: renewer.stop.clone().unwrap_or_default(),
            failures: 0,
        })
    }

    /// Pauses after a slot that was lost before its use: a lease that is too short would be granted again and again.
    pub(crate) async fn pause_after_loss(&self) {
        let time = self.renewer.pace.interval.min(POLL_INTERVAL);
        self.stop.pause(time).await;
    }

    /// Logs an error that may pass, and pauses. Returns other errors.
    pub(crate) async fn survive(&mut self, error: Error) -> Result<(), Error> {
        let pause = pause_after(&mut self.failures, error, self.semaphore.name())?;
        self.stop.pause(pause).await;
        Ok(())
    }
}

fn pause_after(failures: &mut u32, error: Error, semaphore: &str) -> Result<Duration, Error> {
    if !may_pass(&error) {
        return Err(error);
    }
    let pause = backoff::jittered(backoff::growing(*failures, MIN_PAUSE, MAX_PAUSE));
    *failures = failures.saturating_add(1);
    tracing::warn!(semaphore, failures = *failures, ?pause, %error, "no slot requested: error; retrying");
    Ok(pause)
}

/// Whether the same request may succeed later although neither the program nor the database's schema changes.
fn may_pass(error: &Error) -> bool {
    error.is_busy()
        || error.is_retryable()
        || matches!(
            error,
            Error::Database(_)
                | Error::ReadOnly { .. }
                | Error::RefusedByGroup { .. }
                | Error::OutcomeUnknown { .. }
                | Error::TransactionAborted { .. }
                | Error::SlotLost { .. }
                | Error::LockTableFull { .. }
        )
}

/// What `run_as_leader` does around its closure.
pub(crate) struct Candidate<'a, P> {
    node: Participant<'a, P>,
    /// It has resigned: another node may be elected.
    has_resigned: bool,
}

impl<'a, P: Pool> Candidate<'a, P> {
    pub(crate) fn new(
        renewer: &SlotRenewer<P>,
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
            self.stop().pause(self.node.renewer.pace.interval).await;
            self.has_resigned = false;
        }
        while !self.stop().is_stopped() {
            let (semaphore, lease) = (self.node.semaphore, self.node.lease);
            let began = Instant::now();
            let wait = Some(Wait::Forever);
            match self.node.renewer.lease(semaphore, lease, wait).await {
                Ok(held) => {
                    self.node.failures = 0;
                    if self.leads(held.is_held()) {
                        let (name, fence) = (semaphore.name(), held.slot().fence);
                        tracing::info!(semaphore = name, fence, "elected as leader");
                        return Ok(Some(held));
                    }
                    held.give_back();
                    self.node.pause_after_loss().await;
                }
                Err(Error::Stopped { .. }) => break,
                Err(error) => {
                    // It has reached the database since the last error, unless the pool had no connection for it.
                    if began.elapsed() > MAX_PAUSE && !error.has_no_connection_yet() {
                        self.node.failures = 0;
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

#[cfg(all(test, feature = "_async_pool"))]
mod tests {
    use super::*;
    use crate::error::AsyncPoolError;

    #[test]
    fn error_of_a_pool_is_retried_unless_the_pool_is_closed() {
        let mut failures = 0;
        let (waited, step) = (None, None);
        let timed_out = AsyncPoolError::TimedOut { waited, step };
        for error in [timed_out, AsyncPoolError::Hook("no answer".into())] {
            assert!(pause_after(&mut failures, error.into(), "leader").is_ok());
        }
        for error in [
            AsyncPoolError::Closed,
            AsyncPoolError::Other("no runtime".into()),
        ] {
            let result = pause_after(&mut failures, error.into(), "leader");
            assert!(matches!(result, Err(Error::AsyncPool(_))), "{result:?}");
        }
    }
}
