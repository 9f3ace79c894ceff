//! Events and spans for `tracing`: those of the page `operation::events` of the documentation. What they tell is counted too, by the
//! feature `metrics`.

use std::time::{Duration, Instant};

use tracing::{Span, debug_span};

use crate::acts::metrics::{self, Counted, INSIDE, WAITING};
use crate::values::lock_request::{LockOutcome, Request};
use crate::values::retry_policy::RetryReason;
use crate::{Error, Semaphore};

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// How a request has ended.
fn outcome_of<T>(ended: &Result<T, &Error>) -> &'static str {
    match ended {
        Ok(_) => "granted",
        Err(Error::Unavailable { .. }) => "refused",
        #[cfg(feature = "_pool")]
        Err(Error::Stopped { .. }) => "stopped",
        Err(error) if error.is_timeout() => "timed_out",
        Err(_) => "failed",
    }
}

/// The events of a request, by its outcome.
macro_rules! record_request {
    ($target:literal, $subject:literal, $outcome:expr, $waited:expr, $error:expr, $($field:tt)+) => {{
        let (outcome, waited) = ($outcome, $waited);
        let waited_us = micros(waited);
        match outcome {
            "granted" => tracing::debug!(
                target: $target, outcome, $($field)+, ?waited, waited_us, concat!($subject, " acquired")
            ),
            "refused" => tracing::debug!(
                target: $target, outcome, $($field)+, concat!($subject, " not acquired: held by others")
            ),
            "stopped" => tracing::debug!(
                target: $target, outcome, $($field)+, ?waited, waited_us, concat!("wait for ", $subject, " stopped")
            ),
            "timed_out" => tracing::warn!(
                target: $target, outcome, $($field)+, ?waited, waited_us, concat!($subject, " timed out")
            ),
            _ => tracing::warn!(
                target: $target, outcome, $($field)+, error = $error.map(tracing::field::display),
                concat!($subject, " failed")
            ),
        }
    }};
}

pub(crate) fn record_locks(request: &Request, ended: Result<LockOutcome, &Error>) {
    let waited = request.elapsed();
    let outcome = match ended {
        Ok(LockOutcome::Unavailable) => "refused",
        ended => outcome_of(&ended),
    };
    metrics::count_request(None, outcome, waited);
    record_request!(
        "diesel_locks::object_lock", "object lock", outcome, waited, ended.err(),
        ids = %request.event_ids()
    );
}

/// Object locks are held from now on. The caller calls the result after the end of their transaction.
pub(crate) fn locks_held(request: &Request) -> impl FnOnce() {
    let inside = Period::hold_locks(request);
    move || {
        let held = inside.elapsed();
        metrics::observe_hold(None, held);
        tracing::debug!(
            target: "diesel_locks::object_lock",
            outcome = "released",
            ids = %request.event_ids(),
            ?held,
            held_us = micros(held),
            "object lock released"
        );
    }
}

/// The wait of a request, or the time in which what it was granted is held. Counted, and in a span, until it is dropped. The span is
/// not entered: those of the application keep their parents.
#[must_use]
pub(crate) struct Period {
    since: Instant,
    _counted: Counted,
    _span: Span,
}

impl Period {
    pub(crate) fn wait_for_locks(request: &Request) -> Self {
        let span = debug_span!(
            target: "diesel_locks::object_lock",
            "diesel_locks.wait",
            ids = %request.event_ids()
        );
        Self::begin(WAITING, None, span)
    }

    fn hold_locks(request: &Request) -> Self {
        let span = debug_span!(
            target: "diesel_locks::object_lock",
            "diesel_locks.hold",
            ids = %request.event_ids()
        );
        Self::begin(INSIDE, None, span)
    }

    pub(crate) fn wait_for_slot(semaphore: &str) -> Self {
        let span = debug_span!(target: "diesel_locks::slot", "diesel_locks.wait", semaphore);
        Self::begin(WAITING, Some(semaphore), span)
    }

    pub(crate) fn hold_slot(semaphore: &str) -> Self {
        let span = debug_span!(target: "diesel_locks::slot", "diesel_locks.hold", semaphore);
        Self::begin(INSIDE, Some(semaphore), span)
    }

    /// Without a parent, which would stay open as long as the guard lives.
    #[cfg(feature = "_pool")]
    pub(crate) fn hold_guarded_slot(semaphore: &str) -> Self {
        let span = debug_span!(
            target: "diesel_locks::slot", parent: None, "diesel_locks.hold", semaphore
        );
        span.follows_from(Span::current());
        Self::begin(INSIDE, Some(semaphore), span)
    }

    fn begin(gauge: &'static str, semaphore: Option<&str>, span: Span) -> Self {
        Self {
            since: Instant::now(),
            _counted: Counted::new(gauge, semaphore),
            _span: span,
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

/// Records the outcome of a request for a slot: its number if it is leased.
pub(crate) fn record_slot(
    semaphore: &Semaphore,
    started: Instant,
    ended: Result<Option<u32>, &Error>,
) {
    let (semaphore, waited) = (semaphore.name(), started.elapsed());
    let outcome = outcome_of(&ended);
    metrics::count_request(Some(semaphore), outcome, waited);
    let number = ended.as_ref().ok().copied().flatten();
    record_request!(
        "diesel_locks::slot",
        "slot",
        outcome,
        waited,
        ended.err(),
        semaphore,
        number
    );
}

pub(crate) fn record_slot_released(semaphore: &str, number: Option<u32>, held: Duration) {
    metrics::observe_hold(Some(semaphore), held);
    tracing::debug!(
        target: "diesel_locks::slot",
        outcome = "released",
        semaphore,
        number,
        ?held,
        held_us = micros(held),
        "slot released"
    );
}

#[cfg(feature = "_pool")]
pub(crate) fn record_slot_lost(semaphore: &str, number: u32, held: Duration) {
    metrics::count_lost(semaphore);
    metrics::observe_hold(Some(semaphore), held);
    tracing::warn!(
        target: "diesel_locks::slot",
        outcome = "lost",
        semaphore,
        number,
        ?held,
        held_us = micros(held),
        "slot lost: its lease was not renewed, or it was released by force"
    );
}

#[cfg(feature = "_pool")]
pub(crate) fn record_slot_stalled(semaphore: &str, number: u32, pause: Duration) {
    metrics::count_stalled(semaphore);
    tracing::warn!(
        target: "diesel_locks::slot",
        outcome = "stalled",
        semaphore,
        number,
        ?pause,
        "slot not renewed: its holder has not reported progress"
    );
}

/// Records a renewal of all slots of a renewer, as many as there are leases: whether all have a full lease again.
#[cfg(feature = "_pool")]
pub(crate) fn record_renewal(renewed: &Result<bool, Error>, guards: usize) {
    let is_renewed = matches!(renewed, Ok(true));
    metrics::count_renewal(if is_renewed { "renewed" } else { "failed" });
    if let Err(error) = renewed {
        tracing::warn!(%error, guards, "slots not renewed; retrying");
    }
}

pub(crate) fn record_retry(reason: RetryReason, attempt: u32, pause: Duration) {
    metrics::count_retry(reason);
    tracing::warn!(
        target: "diesel_locks::transaction",
        outcome = "retried",
        %reason,
        attempt,
        ?pause,
        "transaction aborted by the database, retrying"
    );
}
