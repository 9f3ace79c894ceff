//! Figures for Prometheus, made of the events that diesel-locks records by `tracing`: see
//! `diesel_locks::operation::events`.

use std::fmt::{Debug, Write};

use anyhow::Result;
use prometheus::{
    HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder,
    register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
    register_int_counter_with_registry, register_int_gauge_with_registry,
};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Buckets of waits and holds, in seconds.
const BUCKETS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

/// The outcomes of a request for a lock or a slot.
const OUTCOMES: [&str; 5] = ["granted", "refused", "timed_out", "stopped", "failed"];

/// What is requested: the value of the label `kind`.
const KINDS: [&str; 2] = ["object_lock", "slot"];

/// The figures of this process. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Registry,
    outcomes: IntCounterVec,
    wait: HistogramVec,
    hold: HistogramVec,
    lost: IntCounter,
    retries: IntCounter,
    waiting: IntGauge,
    /// The jobs that run.
    pub(crate) jobs: IntGauge,
}

impl Metrics {
    /// Creates the figures, all zero.
    pub(crate) fn new() -> Result<Self> {
        let registry = Registry::new();
        let metrics = Self {
            outcomes: register_int_counter_vec_with_registry!(
                "diesel_locks_outcomes_total",
                "Requests for object locks and slots, by outcome",
                &["kind", "outcome"],
                registry
            )?,
            wait: register_histogram_vec_with_registry!(
                "diesel_locks_wait_seconds",
                "Time from a request to its grant or its time-out",
                &["kind"],
                BUCKETS.to_vec(),
                registry
            )?,
            hold: register_histogram_vec_with_registry!(
                "diesel_locks_hold_seconds",
                "Time from a grant to its release or its loss",
                &["kind"],
                BUCKETS.to_vec(),
                registry
            )?,
            lost: register_int_counter_with_registry!(
                "diesel_locks_slots_lost_total",
                "Slots that were lost: not renewed in time, or released by force",
                registry
            )?,
            retries: register_int_counter_with_registry!(
                "diesel_locks_retries_total",
                "Transactions that were run again after the database had aborted them",
                registry
            )?,
            waiting: register_int_gauge_with_registry!(
                "web_waiting_requests",
                "Requests that wait for object locks now",
                registry
            )?,
            jobs: register_int_gauge_with_registry!(
                "web_running_jobs",
                "Jobs that run now",
                registry
            )?,
            registry,
        };
        // A figure that is 0 exists too: rates need a first value.
        for kind in KINDS {
            metrics.wait.with_label_values(&[kind]);
            metrics.hold.with_label_values(&[kind]);
            for outcome in OUTCOMES {
                metrics.outcomes.with_label_values(&[kind, outcome]);
            }
        }
        Ok(metrics)
    }

    /// Counts the events of all threads from now on.
    pub(crate) fn install(&self) -> Result<()> {
        let of_diesel_locks = Targets::new().with_target("diesel_locks", LevelFilter::TRACE);
        let events = Events(self.clone()).with_filter(of_diesel_locks);
        let subscriber = tracing_subscriber::registry().with(events);
        Ok(tracing::subscriber::set_global_default(subscriber)?)
    }

    /// All figures in the text format of Prometheus, with the requests that wait now.
    pub(crate) fn text(&self, waiting: usize) -> String {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let encoded = TextEncoder::new().encode_to_string(&self.registry.gather());
        encoded.unwrap_or_else(|error| format!("# {error}\n"))
    }

    fn count(&self, target: &str, fields: &Fields) {
        let outcome = fields.outcome.as_str();
        let Some(kind) = KINDS.into_iter().find(|kind| *kind == target) else {
            if outcome == "retried" {
                self.retries.inc();
            }
            return;
        };
        if OUTCOMES.contains(&outcome) {
            self.outcomes.with_label_values(&[kind, outcome]).inc();
        }
        if outcome == "lost" {
            self.lost.inc();
        }
        for (histogram, micros) in [(&self.wait, fields.waited_us), (&self.hold, fields.held_us)] {
            if let Some(micros) = micros {
                let seconds = std::time::Duration::from_micros(micros).as_secs_f64();
                histogram.with_label_values(&[kind]).observe(seconds);
            }
        }
    }
}

/// Counts the events of diesel-locks, and writes its warnings to standard error.
struct Events(Metrics);

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.count(
            target.strip_prefix("diesel_locks::").unwrap_or(target),
            &fields,
        );
        // A wait that has timed out is an answer.
        if *event.metadata().level() <= Level::WARN && fields.outcome != "timed_out" {
            let mut text = target.to_owned();
            event.record(&mut |field: &Field, value: &dyn Debug| {
                // Writing to a text does not fail.
                let _ = write!(text, " {field}={value:?}");
            });
            crate::log(&text);
        }
    }
}

/// The fields that are counted.
#[derive(Default)]
struct Fields {
    outcome: String,
    waited_us: Option<u64>,
    held_us: Option<u64>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "outcome" {
            value.clone_into(&mut self.outcome);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "waited_us" => self.waited_us = Some(value),
            "held_us" => self.held_us = Some(value),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

#[cfg(test)]
mod tests {
    use super::{Fields, Metrics};

    #[test]
    fn dashboard_names_only_metrics_that_exist() {
        let dashboard = include_str!("../grafana.json");
        serde_json::from_str::<serde_json::Value>(dashboard).expect("JSON");
        let text = Metrics::new().expect("metrics").text(0);
        let words = dashboard.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<_> = words
            .filter(|word| word.starts_with("diesel_locks_") || word.starts_with("web_"))
            .collect();
        assert!(names.len() >= 9, "{names:?}");
        for name in names {
            let exists = text.lines().any(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            });
            assert!(exists, "{name} in\n{text}");
        }
    }

    #[test]
    fn events_become_counts() {
        let metrics = Metrics::new().expect("metrics");
        let fields = |outcome: &str| Fields {
            outcome: outcome.to_owned(),
            waited_us: Some(1_500_000),
            held_us: None,
        };
        metrics.count("slot", &fields("timed_out"));
        metrics.count("transaction", &fields("retried"));
        let text = metrics.text(0);
        for line in [
            "diesel_locks_retries_total 1",
            "diesel_locks_outcomes_total{kind=\"slot\",outcome=\"timed_out\"} 1",
            "diesel_locks_wait_seconds_sum{kind=\"slot\"} 1.5",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
