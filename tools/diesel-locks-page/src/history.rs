//! The last hour of object locks and of each semaphore in this process, from its metrics.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::{task, time};

/// How often the metrics are read.
const INTERVAL: Duration = Duration::from_secs(5);

/// In seconds.
const MINUTE: u64 = 60;
/// Those that are kept.
const MINUTES: u64 = 60;

pub(crate) type Render = dyn Fn() -> String + Send + Sync;

pub(crate) struct History {
    render: Arc<Render>,
    started: Instant,
    /// By the name of the semaphore; `None` for object locks.
    series: Mutex<BTreeMap<Option<String>, Series>>,
}

/// Why there is no history.
const NO_METRICS: &str = "the metrics of this process contain none of diesel-locks: enable its feature `metrics`, and call \
     `diesel_locks::describe_metrics` when the recorder is installed";

#[derive(Default)]
struct Series {
    last: Metrics,
    minutes: VecDeque<Minute>,
}

/// Of a series, as they are read.
#[derive(Clone, Copy, Default)]
struct Metrics {
    counters: Counters,
    inside: f64,
    waiting: f64,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    granted: f64,
    refused: f64,
    timed_out: f64,
    failed: f64,
    stopped: f64,
    waits: f64,
    waited_s: f64,
}

#[derive(Default)]
struct Minute {
    /// Since the start of the history.
    number: u64,
    added: Counters,
    most_inside: f64,
    most_waiting: f64,
}

impl History {
    pub(crate) fn new(render: Arc<Render>) -> Self {
        let first = read(&render()).into_iter().map(|(name, last)| {
            let minutes = VecDeque::new();
            (name, Series { last, minutes })
        });
        Self {
            series: Mutex::new(first.collect()),
            started: Instant::now(),
            render,
        }
    }

    /// Reads the metrics again and again, until the history is dropped.
    pub(crate) async fn keep(history: Weak<Self>) {
        loop {
            time::sleep(INTERVAL).await;
            let Some(history) = history.upgrade() else {
                return;
            };
            // The application may have many metrics. After a panic they are read again.
            let _ = task::spawn_blocking(move || history.add_sample()).await;
        }
    }

    fn add_sample(&self) {
        let found = read(&(self.render)());
        let mut series = self.series();
        let number = self.started.elapsed().as_secs() / MINUTE;
        for (name, metrics) in found {
            series.entry(name).or_default().add(&metrics, number);
        }
    }

    fn series(&self) -> MutexGuard<'_, BTreeMap<Option<String>, Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of those whose names begin with the prefix, and that were in use in the last hour.
    pub(crate) fn rows(&self, prefix: &str) -> Value {
        let series = self.series();
        // Not before: a later minute may have come.
        let age = self.started.elapsed().as_secs();
        let named = series.iter().filter(|(name, _)| match name {
            Some(name) => name.starts_with(prefix),
            None => prefix.is_empty(),
        });
        let rows = named.filter_map(|(name, of)| of.row(name.as_deref(), age / MINUTE));
        let rows: Vec<_> = rows.collect();
        let refusal = series.is_empty().then_some(NO_METRICS);
        json!({ "total": rows.len(), "rows": rows, "may_be_more": false, "refusal": refusal, "seconds": age.min(MINUTES * MINUTE) })
    }
}

impl Series {
    fn add(&mut self, metrics: &Metrics, number: u64) {
        let mut minute = match self.minutes.pop_back() {
            Some(last) if last.number == number => last,
            last => {
                self.minutes.extend(last);
                Minute {
                    number,
                    ..Minute::default()
                }
            }
        };
        // Some exporters forget what was not changed for a time, and count from 0 again.
        let grown = |now: f64, before: f64| if now < before { now } else { now - before };
        let (now, last, added) = (metrics.counters, self.last.counters, &mut minute.added);
        added.granted += grown(now.granted, last.granted);
        added.refused += grown(now.refused, last.refused);
        added.timed_out += grown(now.timed_out, last.timed_out);
        added.failed += grown(now.failed, last.failed);
        added.stopped += grown(now.stopped, last.stopped);
        added.waits += grown(now.waits, last.waits);
        added.waited_s += grown(now.waited_s, last.waited_s);
        minute.most_inside = minute.most_inside.max(metrics.inside);
        minute.most_waiting = minute.most_waiting.max(metrics.waiting);
        self.last = *metrics;
        self.minutes.push_back(minute);
        self.minutes.retain(|it| it.number + MINUTES > number);
    }

    /// `None` if nothing has happened.
    fn row(&self, name: Option<&str>, now: u64) -> Option<Value> {
        let recent = self.minutes.iter();
        let minutes: Vec<_> = recent.filter(|it| it.number + MINUTES > now).collect();
        let sum = |of: fn(&Counters) -> f64| minutes.iter().map(|it| of(&it.added)).sum::<f64>();
        let most = |of: fn(&Minute) -> f64| minutes.iter().map(|it| of(it)).fold(0.0, f64::max);
        let most_inside = most(|it| it.most_inside);
        let most_waiting = most(|it| it.most_waiting);
        let ended = sum(|it| it.granted + it.refused + it.timed_out + it.failed + it.stopped);
        if ended + most_inside + most_waiting == 0.0 {
            return None;
        }
        let waits = sum(|it| it.waits);
        let points = minutes.iter().map(|it| {
            let not_granted = it.added.refused + it.added.timed_out + it.added.failed;
            json!([now - it.number, it.most_inside, not_granted])
        });
        Some(json!({
            "name": name,
            "granted": sum(|it| it.granted),
            "refused": sum(|it| it.refused),
            "timed_out": sum(|it| it.timed_out),
            "failed": sum(|it| it.failed),
            "mean_wait_s": (waits > 0.0).then(|| sum(|it| it.waited_s) / waits),
            "most_inside": most_inside,
            "most_waiting": most_waiting,
            // How many minutes ago, the most inside, and how many were refused, timed out or failed.
            "minutes": points.collect::<Vec<_>>(),
        }))
    }
}

/// The metrics of this crate in a text of Prometheus. Other labels than those of this crate may be the application's.
fn read(text: &str) -> BTreeMap<Option<String>, Metrics> {
    let mut found: BTreeMap<_, Metrics> = BTreeMap::new();
    for (metric, labels, value) in text.lines().filter_map(sample) {
        let label = |name| labels.iter().find(|(label, _)| *label == name);
        let Some((_, kind)) = label("kind") else {
            continue;
        };
        let semaphore = label("semaphore").map(|(_, name)| name.clone());
        if (kind == "slot") != semaphore.is_some() {
            continue;
        }
        let outcome = label("outcome").map(|(_, outcome)| outcome.as_str());
        let metrics = found.entry(semaphore).or_default();
        let counters = &mut metrics.counters;
        let field = match (metric, outcome) {
            ("requests_total", Some("granted")) => &mut counters.granted,
            ("requests_total", Some("refused")) => &mut counters.refused,
            ("requests_total", Some("timed_out")) => &mut counters.timed_out,
            ("requests_total", Some("failed")) => &mut counters.failed,
            ("requests_total", Some("stopped")) => &mut counters.stopped,
            ("wait_seconds_count", _) => &mut counters.waits,
            ("wait_seconds_sum", _) => &mut counters.waited_s,
            ("inside_requests", _) => &mut metrics.inside,
            ("waiting_requests", _) => &mut metrics.waiting,
            _ => continue,
        };
        *field += value;
    }
    found
}

type Labels<'a> = Vec<(&'a str, String)>;

/// The metric without `diesel_locks_`, its labels and value. (The crate `prometheus-parse` splits values of labels at commas.)
fn sample(line: &str) -> Option<(&str, Labels<'_>, f64)> {
    let (metric, mut rest) = line.strip_prefix("diesel_locks_")?.split_once('{')?;
    let mut labels = Vec::new();
    while let Some((label, quoted)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (end, '"') => break end,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    escaped => value.push(escaped),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((label, value));
        rest = &quoted[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let value = rest.strip_prefix('}')?.split_whitespace().next()?;
    let value = value.parse().ok().filter(|value: &f64| value.is_finite())?;
    Some((metric, labels, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read() {
        let text = concat!(
            "# TYPE diesel_locks_requests_total counter\n",
            "diesel_locks_requests_total{node=\"a, b\",kind=\"slot\",semaphore=\"a\\\\b\\\"},c=\\\"d\\nü\",outcome=\"granted\"} 7\n",
            "diesel_locks_wait_seconds_sum{kind=\"object_lock\"} 1.5e-3 1395066363000\n",
            "diesel_locks_wait_seconds{kind=\"object_lock\",quantile=\"0.5\"} 3\n",
            "diesel_locks_requests_total{kind=\"object_lock\",outcome=\"failed\"} NaN\n",
            "diesel_locks_renewals_total{outcome=\"failed\"} 1\n",
            "http_requests_total{kind=\"slot\",semaphore=\"other\"} 9\n",
            "diesel_locks_inside_requests{kind=\"slot\",semaphore=\"cut",
        );
        let found = read(text);
        assert_eq!(found.len(), 2);
        let semaphore = &found[&Some("a\\b\"},c=\"d\nü".to_owned())];
        assert_eq!(semaphore.counters.granted.to_string(), "7");
        assert_eq!(found[&None].counters.waited_s.to_string(), "0.0015");
    }

    #[test]
    fn counters_are_added_up_for_an_hour() {
        let mut series = Series::default();
        let at = |granted, inside| {
            let counters = Counters {
                granted,
                ..Counters::default()
            };
            Metrics {
                counters,
                inside,
                waiting: 0.0,
            }
        };
        for (number, granted, inside) in [(0, 5.0, 2.0), (0, 7.0, 1.0), (59, 8.0, 0.0)] {
            series.add(&at(granted, inside), number);
        }
        let row = series.row(Some("it"), 59).expect("it was in use");
        assert_eq!(row["granted"], 8.0);
        assert_eq!(row["minutes"], json!([[59, 2.0, 0.0], [0, 0.0, 0.0]]));
        let row = series.row(Some("it"), 60).expect("it was in use");
        assert_eq!([&row["granted"], &row["most_inside"]], [1.0, 0.0]);
        assert_eq!(series.row(Some("it"), 119), None);
        // The exporter has forgotten it, and counts again.
        for granted in [0.0, 1.0] {
            series.add(&at(granted, 0.0), 60);
        }
        assert_eq!(series.minutes.len(), 2);
        let row = series.row(Some("it"), 60).expect("it was in use");
        assert_eq!(row["granted"], 2.0);
    }

    #[test]
    fn other_metrics_are_no_history() {
        let history = History::new(Arc::new(|| "http_requests_total 7".to_owned()));
        assert_eq!(history.rows("")["refusal"], NO_METRICS);
    }

    #[test]
    fn what_was_counted_before_is_not_shown() {
        let text = Arc::new(Mutex::new(1));
        let rendered = Arc::clone(&text);
        let history = History::new(Arc::new(move || {
            let granted = rendered.lock().expect("unpoisoned");
            format!(
                "diesel_locks_requests_total{{kind=\"object_lock\",outcome=\"granted\"}} {granted}"
            )
        }));
        history.add_sample();
        let rows = history.rows("");
        assert_eq!(
            [&rows["total"], &rows["refusal"]],
            [&json!(0), &Value::Null]
        );
        *text.lock().expect("unpoisoned") = 4;
        history.add_sample();
        assert_eq!(history.rows("")["rows"][0]["granted"], 3.0);
        assert_eq!(history.rows("a")["total"], 0);
    }
}
