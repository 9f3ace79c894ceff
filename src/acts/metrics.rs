//! Metrics on the facade of the crate `metrics`: those of the [guide]. Called where events are recorded.
//!
//! Functions get the name of the semaphore, or `None` for object locks.
//!
//! [guide]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#metrics

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Gauge, Label, SharedString, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use crate::rt::lock;
use crate::values::retry_policy::RetryReason;

const REQUESTS: &str = "diesel_locks_requests_total";
const WAIT: &str = "diesel_locks_wait_seconds";
const HOLD: &str = "diesel_locks_hold_seconds";
/// Requests that have not ended.
pub(crate) const WAITING: &str = "diesel_locks_waiting_requests";
/// Requests that do not ask at once.
pub(crate) const QUEUED: &str = "diesel_locks_queued_requests";
pub(crate) const INSIDE: &str = "diesel_locks_inside_requests";
const LOST: &str = "diesel_locks_slots_lost_total";
const STALLED: &str = "diesel_locks_slots_stalled_total";
const RENEWALS: &str = "diesel_locks_renewals_total";
const RETRIES: &str = "diesel_locks_retries_total";

const OUTCOMES: [&str; 5] = ["granted", "refused", "timed_out", "stopped", "failed"];

/// So many names of semaphores are labels. Later ones are [`OTHER`], or the metrics would grow with the names of an application.
const MOST_NAMES: usize = 100;

const OTHER: &str = "other";

/// Describes the metrics of this crate to the recorder, and sets counters to 0, so that their first change is seen. Call it once,
/// when the recorder is installed. [The guide] lists the metrics.
///
/// ```
/// use metrics_exporter_prometheus::PrometheusBuilder;
///
/// // Without buckets the exporter makes summaries, which can't be added up over processes.
/// let seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// let handle = PrometheusBuilder::new().set_buckets(&seconds)?.install_recorder()?;
/// diesel_locks::describe_metrics();
/// // To GET /metrics. If nobody asks, call `handle.run_upkeep()` every few seconds.
/// let answer = handle.render();
/// # assert!(answer.contains("diesel_locks_renewals_total{outcome=\"failed\"} 0"), "{answer}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [The guide]: https://github.com/diesel-locks/diesel-locks/blob/main/docs/guide.md#metrics
pub fn describe_metrics() {
    for (name, text) in [
        (REQUESTS, "Requests that have ended, by their outcome"),
        (
            LOST,
            "Guards that lost their slots: not renewed in time, or released by force",
        ),
        (
            STALLED,
            "Guards that were not renewed, because no progress was reported",
        ),
        (
            RENEWALS,
            "Renewals, each of all slots of a renewer by one statement, by their outcome",
        ),
        (
            RETRIES,
            "Transactions that were run again, by the reason of the retry",
        ),
    ] {
        describe_counter!(name, text);
    }
    for (name, text) in [
        (
            WAIT,
            "Time from a request to its grant, its time-out or its stop",
        ),
        (HOLD, "Time from a grant to its release or its loss"),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
    for (name, text) in [
        (WAITING, "Requests that have not ended"),
        (
            QUEUED,
            "Requests that wait for their turn in a queue of the process",
        ),
        (
            INSIDE,
            "Granted requests whose closure runs or whose guard lives",
        ),
    ] {
        describe_gauge!(name, text);
    }
    begin(&labels(None));
    begin(&of_semaphore(OTHER));
    // Those of requests before the recorder was installed.
    let known: Vec<_> = lock(&NAMES).iter().cloned().collect();
    for name in known {
        begin(&of_semaphore(name));
    }
    for outcome in ["renewed", "failed"] {
        count(RENEWALS, Vec::new(), outcome, 0);
    }
}

/// Has the series with these labels exist: rates and increases need a first value.
fn begin(labels: &[Label]) {
    for outcome in OUTCOMES {
        count(REQUESTS, labels.to_vec(), outcome, 0);
    }
    for name in [WAIT, HOLD] {
        let _ = histogram!(name, labels.iter());
    }
    for name in [WAITING, QUEUED, INSIDE] {
        let _ = gauge!(name, labels.iter());
    }
    if labels.len() > 1 {
        for name in [LOST, STALLED] {
            counter!(name, labels.iter()).increment(0);
        }
    }
}

fn count(name: &'static str, mut labels: Vec<Label>, outcome: &'static str, number: u64) {
    labels.push(Label::from_static_parts("outcome", outcome));
    counter!(name, labels).increment(number);
}

/// The labels of object locks, or of a semaphore.
fn labels(semaphore: Option<&str>) -> Vec<Label> {
    let Some(name) = semaphore else {
        return vec![Label::from_static_parts("kind", "object_lock")];
    };
    let mut names = lock(&NAMES);
    if let Some(known) = names.get(name) {
        return of_semaphore(Arc::clone(known));
    }
    if names.len() == MOST_NAMES {
        return of_semaphore(OTHER);
    }
    let name: Arc<str> = name.into();
    names.insert(Arc::clone(&name));
    // Without the lock: the recorder is the application's.
    drop(names);
    let labels = of_semaphore(name);
    begin(&labels);
    labels
}

fn of_semaphore(name: impl Into<SharedString>) -> Vec<Label> {
    let kind = Label::from_static_parts("kind", "slot");
    vec![kind, Label::new("semaphore", name)]
}

static NAMES: Mutex<BTreeSet<Arc<str>>> = Mutex::new(BTreeSet::new());

/// One more in a gauge, until it is dropped.
#[must_use]
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn new(name: &'static str, semaphore: Option<&str>) -> Self {
        let gauge = gauge!(name, labels(semaphore));
        gauge.increment(1);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

pub(crate) fn count_request(semaphore: Option<&str>, outcome: &'static str, waited: Duration) {
    let labels = labels(semaphore);
    if matches!(outcome, "granted" | "timed_out" | "stopped") {
        histogram!(WAIT, labels.iter()).record(waited);
    }
    count(REQUESTS, labels, outcome, 1);
}

pub(crate) fn observe_hold(semaphore: Option<&str>, held: Duration) {
    histogram!(HOLD, labels(semaphore)).record(held);
}

#[cfg(feature = "_pool")]
pub(crate) fn count_lost(semaphore: &str) {
    counter!(LOST, labels(Some(semaphore))).increment(1);
}

#[cfg(feature = "_pool")]
pub(crate) fn count_stalled(semaphore: &str) {
    counter!(STALLED, labels(Some(semaphore))).increment(1);
}

#[cfg(feature = "_pool")]
pub(crate) fn count_renewal(outcome: &'static str) {
    count(RENEWALS, Vec::new(), outcome, 1);
}

pub(crate) fn count_retry(reason: RetryReason) {
    let reason = reason.to_string().replace(' ', "_");
    counter!(RETRIES, "reason" => reason).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_names_of_semaphores_are_other() {
        for number in 0..=MOST_NAMES {
            labels(Some(&format!("semaphore {number}")));
        }
        let label = &labels(Some("another"))[1];
        assert_eq!(label.value(), "other");
        assert_eq!(lock(&NAMES).len(), MOST_NAMES);
    }
}
