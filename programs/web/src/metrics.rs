//! Figures for Prometheus, made of the events that diesel-locks records by `tracing`: see
//! `diesel_locks::operation::events`.

use std::fmt::{Debug, Write};
use std::sync::Arc;

use anyhow::Result;
use prometheus::core::Collector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::log;

/// What the targets of the events have in common.
const TARGETS: &str = "diesel_locks::";

/// Buckets of waits and holds, in seconds.
const BUCKETS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

/// The outcomes of a request for a lock or a slot.
const OUTCOMES: [&str; 5] = ["granted", "refused", "timed_out", "stopped", "failed"];

/// What is requested: the value of the label `kind`.
const KINDS: [&str; 2] = ["object_lock", "slot"];

/// The figures of this process.
pub(crate) struct Metrics {
    registry: Registry,
    attempts: IntCounterVec,
    outcomes: IntCounterVec,
    wait: HistogramVec,
    hold: HistogramVec,
    lost: IntCounterVec,
    retries: IntCounterVec,
    waiting: IntGauge,
    jobs: IntGauge,
    releases: IntGauge,
}

/// Requests since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) attempts: u64,
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    pub(crate) timed_out: u64,
}

impl Metrics {
    /// Creates the figures, all zero.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let registry = Registry::new();
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            register(&registry, counters)
        };
        let histograms = |name: &str, help: &str| {
            let options = HistogramOpts::new(name, help).buckets(BUCKETS.to_vec());
            register(&registry, HistogramVec::new(options, &["kind"])?)
        };
        let gauge = |name: &str, help: &str| register(&registry, IntGauge::new(name, help)?);
        let metrics = Self {
            attempts: counters(
                "diesel_locks_attempts_total",
                "Requests for object locks and slots that have ended",
                &["kind"],
            )?,
            outcomes: counters(
                "diesel_locks_outcomes_total",
                "Requests for object locks and slots, by outcome",
                &["kind", "outcome"],
            )?,
            wait: histograms(
                "diesel_locks_wait_seconds",
                "Time from a request to its grant or its time-out",
            )?,
            hold: histograms(
                "diesel_locks_hold_seconds",
                "Time from a grant to its release or its loss",
            )?,
            lost: counters(
                "diesel_locks_slots_lost_total",
                "Slots that were lost: not renewed in time, or released by force",
                &[],
            )?,
            retries: counters(
                "diesel_locks_retries_total",
                "Transactions that were run again after the database had aborted them",
                &[],
            )?,
            waiting: gauge("web_waiting_requests", "Requests that wait now")?,
            jobs: gauge("web_running_jobs", "Jobs that run now")?,
            releases: gauge(
                "web_running_releases",
                "Releases by an operator that run now",
            )?,
            registry,
        };
        // A figure that is 0 exists too: rates need a first value.
        for kind in KINDS {
            metrics.attempts.with_label_values(&[kind]);
            metrics.wait.with_label_values(&[kind]);
            metrics.hold.with_label_values(&[kind]);
            for outcome in OUTCOMES {
                metrics.outcomes.with_label_values(&[kind, outcome]);
            }
        }
        let none: [&str; 0] = [];
        metrics.lost.with_label_values(&none);
        metrics.retries.with_label_values(&none);
        Ok(Arc::new(metrics))
    }

    /// Counts the events of all threads from now on.
    pub(crate) fn install(self: &Arc<Self>) -> Result<()> {
        let events = Events(Arc::clone(self));
        let subscriber = tracing_subscriber::registry().with(events);
        Ok(tracing::subscriber::set_global_default(subscriber)?)
    }

    /// Sets the figures that no event tells.
    pub(crate) fn set_now(&self, waiting: usize, jobs: usize, releases: usize) {
        let figure = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.waiting.set(figure(waiting));
        self.jobs.set(figure(jobs));
        self.releases.set(figure(releases));
    }

    /// All figures in the text format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let encoded = TextEncoder::new().encode_to_string(&self.registry.gather());
        encoded.unwrap_or_else(|error| format!("# {error}\n"))
    }

    pub(crate) fn totals(&self) -> Totals {
        let outcome = |outcome| {
            let counts = KINDS.map(|kind| self.outcomes.with_label_values(&[kind, outcome]).get());
            counts.iter().sum()
        };
        let attempts = KINDS.map(|kind| self.attempts.with_label_values(&[kind]).get());
        Totals {
            attempts: attempts.iter().sum(),
            granted: outcome("granted"),
            refused: outcome("refused"),
            timed_out: outcome("timed_out"),
        }
    }

    fn count(&self, target: &str, fields: &Fields) {
        let none: [&str; 0] = [];
        let outcome = fields.outcome.as_str();
        let Some(kind) = KINDS.into_iter().find(|kind| *kind == target) else {
            if outcome == "retried" {
                self.retries.with_label_values(&none).inc();
            }
            return;
        };
        if OUTCOMES.contains(&outcome) {
            self.attempts.with_label_values(&[kind]).inc();
            self.outcomes.with_label_values(&[kind, outcome]).inc();
        }
        if outcome == "lost" {
            self.lost.with_label_values(&none).inc();
        }
        if let Some(waited_us) = fields.waited_us {
            self.wait
                .with_label_values(&[kind])
                .observe(seconds(waited_us));
        }
        if let Some(held_us) = fields.held_us {
            self.hold
                .with_label_values(&[kind])
                .observe(seconds(held_us));
        }
    }
}

fn register<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> Result<M> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

#[allow(clippy::cast_precision_loss, reason = "a duration for a histogram")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Counts the events of diesel-locks, and writes its warnings to standard error. Leaves other events out.
struct Events(Arc<Metrics>);

impl<S: Subscriber> Layer<S> for Events {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_counted(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        is_counted(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(target) = event.metadata().target().strip_prefix(TARGETS) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.0.count(target, &fields);
            // A wait that has timed out is an answer.
            if *event.metadata().level() <= Level::WARN && fields.outcome != "timed_out" {
                let mut text = event.metadata().target().to_owned();
                event.record(&mut |field: &Field, value: &dyn Debug| {
                    // Writing to a text does not fail.
                    let _ = write!(text, " {field}={value:?}");
                });
                log::line(&text);
            }
        }
    }
}

fn is_counted(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && metadata.target().starts_with(TARGETS)
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

    /// The names of metrics in the queries of the dashboard.
    fn names(dashboard: &str) -> Vec<&str> {
        let words = dashboard.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words
            .filter(|word| word.starts_with("diesel_locks_") || word.starts_with("web_"))
            .collect()
    }

    #[test]
    fn dashboard_names_only_metrics_that_exist() {
        let dashboard = include_str!("../grafana.json");
        serde_json::from_str::<serde_json::Value>(dashboard).expect("JSON");
        let text = Metrics::new().expect("metrics").text();
        let names = names(dashboard);
        assert!(names.len() >= 8, "{names:?}");
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
        metrics.count("object_lock", &fields("granted"));
        metrics.count("slot", &fields("timed_out"));
        metrics.count("transaction", &fields("retried"));
        let totals = metrics.totals();
        assert_eq!(
            (totals.attempts, totals.granted, totals.timed_out),
            (2, 1, 1)
        );
        let text = metrics.text();
        assert!(text.contains("diesel_locks_retries_total 1"), "{text}");
        assert!(
            text.contains("diesel_locks_wait_seconds_sum{kind=\"slot\"} 1.5"),
            "{text}"
        );
    }
}
