//! The last hour of object locks and of each semaphore in this process, from its metrics.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::{task, time};

/// How often the metrics are read.
const INTERVAL: Duration = Duration::from_secs(5);

const MINUTE: Duration = Duration::from_secs(60);
const MINUTES: usize = 60;

type Render = dyn Fn() -> String + Send + Sync;

pub(crate) struct History {
    render: Arc<Render>,
    started: Instant,
    /// By the name of the semaphore; `None` for object locks.
    series: Mutex<BTreeMap<Option<String>, Series>>,
}

#[derive(Default)]
struct Series {
    last: Metrics,
    minutes: VecDeque<Minute>,
}

/// Of a series, as they are read.
#[derive(Clone, Copy, Default)]
struct Metrics {
    granted: f64,
    refused: f64,
    timed_out: f64,
    waits: f64,
    waited_s: f64,
    inside: f64,
    waiting: f64,
}

#[derive(Default)]
struct Minute {
    /// Since the start of the history.
    number: u64,
    /// What was added to the counters.
    added: Metrics,
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
            // The application may have many metrics. One that panics is called again.
            let _ = task::spawn_blocking(move || history.add_sample()).await;
        }
    }

    fn add_sample(&self) {
        let found = read(&(self.render)());
        let number = self.started.elapsed().as_secs() / MINUTE.as_secs();
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, metrics) in found {
            series.entry(name).or_default().add(metrics, number);
        }
    }

    /// The rows of those whose names begin with the prefix, and that were in use in the last hour.
    pub(crate) fn rows(&self, prefix: &str) -> Value {
        let age = self.started.elapsed();
        let now = age.as_secs() / MINUTE.as_secs();
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let named = series.iter().filter(|(name, _)| match name {
            Some(name) => name.starts_with(prefix),
            None => prefix.is_empty(),
        });
        let rows: Vec<_> = named
            .filter_map(|(name, of)| of.row(name.as_deref(), now))
            .collect();
        let hour = MINUTE.as_secs() * MINUTES as u64;
        json!({ "total": rows.len(), "rows": rows, "may_be_more": false, "refusal": null, "seconds": age.as_secs().min(hour) })
    }
}

impl Series {
    fn add(&mut self, metrics: Metrics, number: u64) {
        if self.minutes.back().is_none_or(|last| last.number != number) {
            let minute = Minute {
                number,
                ..Minute::default()
            };
            self.minutes.push_back(minute);
        }
        while self
            .minutes
            .front()
            .is_some_and(|first| first.number + (MINUTES as u64) <= number)
        {
            self.minutes.pop_front();
        }
        let Some(minute) = self.minutes.back_mut() else {
            return;
        };
        let (last, added) = (self.last, &mut minute.added);
        added.granted += metrics.granted - last.granted;
        added.refused += metrics.refused - last.refused;
        added.timed_out += metrics.timed_out - last.timed_out;
        added.waits += metrics.waits - last.waits;
        added.waited_s += metrics.waited_s - last.waited_s;
        minute.most_inside = minute.most_inside.max(metrics.inside);
        minute.most_waiting = minute.most_waiting.max(metrics.waiting);
        self.last = metrics;
    }

    /// `None` if nothing has happened.
    fn row(&self, name: Option<&str>, now: u64) -> Option<Value> {
        let recent = self
            .minutes
            .iter()
            .filter(|it| it.number + MINUTES as u64 > now);
        let minutes: Vec<_> = recent.collect();
        let sum = |of: fn(&Minute) -> f64| minutes.iter().map(|&minute| of(minute)).sum::<f64>();
        let most =
            |of: fn(&Minute) -> f64| minutes.iter().map(|&minute| of(minute)).fold(0.0, f64::max);
        let granted = sum(|minute| minute.added.granted);
        let refused = sum(|minute| minute.added.refused);
        let timed_out = sum(|minute| minute.added.timed_out);
        let waits = sum(|minute| minute.added.waits);
        let most_inside = most(|minute| minute.most_inside);
        let most_waiting = most(|minute| minute.most_waiting);
        if granted + refused + timed_out + most_inside + most_waiting == 0.0 {
            return None;
        }
        let points = minutes.iter().map(|minute| {
            let turned_away = minute.added.refused + minute.added.timed_out;
            json!([now - minute.number, minute.most_inside, turned_away])
        });
        Some(json!({
            "name": name,
            "granted": granted,
            "refused": refused,
            "timed_out": timed_out,
            "mean_wait_s": (waits > 0.0).then(|| sum(|minute| minute.added.waited_s) / waits),
            "most_inside": most_inside,
            "most_waiting": most_waiting,
            // How many minutes ago, the most inside, and the refused and timed out.
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
        let field = match (metric, outcome) {
            ("requests_total", Some("granted")) => &mut metrics.granted,
            ("requests_total", Some("refused")) => &mut metrics.refused,
            ("requests_total", Some("timed_out")) => &mut metrics.timed_out,
            ("wait_seconds_count", _) => &mut metrics.waits,
            ("wait_seconds_sum", _) => &mut metrics.waited_s,
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
    Some((metric, labels, value.parse().ok()?))
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
            "diesel_locks_renewals_total{outcome=\"failed\"} 1\n",
            "http_requests_total{kind=\"slot\",semaphore=\"other\"} 9\n",
            "diesel_locks_inside_requests{kind=\"slot\",semaphore=\"cut",
        );
        let found = read(text);
        assert_eq!(found.len(), 2);
        let semaphore = &found[&Some("a\\b\"},c=\"d\nü".to_owned())];
        assert_eq!(semaphore.granted.to_string(), "7");
        assert_eq!(found[&None].waited_s.to_string(), "0.0015");
    }

    #[test]
    fn counters_are_added_up_for_an_hour() {
        let mut series = Series::default();
        let at = |granted, inside| Metrics {
            granted,
            inside,
            ..Metrics::default()
        };
        for (number, granted, inside) in [(0, 5.0, 2.0), (0, 7.0, 1.0), (59, 8.0, 0.0)] {
            series.add(at(granted, inside), number);
        }
        let row = series.row(Some("it"), 59).expect("it was in use");
        assert_eq!(row["granted"], 8.0);
        assert_eq!(row["minutes"], json!([[59, 2.0, 0.0], [0, 0.0, 0.0]]));
        let row = series.row(Some("it"), 60).expect("it was in use");
        assert_eq!([&row["granted"], &row["most_inside"]], [1.0, 0.0]);
        assert_eq!(series.row(Some("it"), 119), None);
        series.add(at(8.0, 0.0), 60);
        assert_eq!(series.minutes.len(), 2);
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
        assert_eq!(history.rows("")["total"], 0);
        *text.lock().expect("unpoisoned") = 4;
        history.add_sample();
        assert_eq!(history.rows("")["rows"][0]["granted"], 3.0);
        assert_eq!(history.rows("a")["total"], 0);
    }
}
