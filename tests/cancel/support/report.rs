//! How long it took after drops, for `--nocapture`.

use std::time::Duration;

pub(crate) struct Times {
    what: String,
    times: Vec<Duration>,
}

impl Times {
    pub(crate) fn new(engine: &str, source: &str, name: &str) -> Self {
        Self {
            what: format!("{engine} | {source} | {name}"),
            times: Vec::new(),
        }
    }

    /// The time after a drop until what the method held was free, and no statement of it ran.
    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    pub(crate) fn print(mut self) {
        self.times.sort_unstable();
        let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        let median = millis(self.times.get(self.times.len() / 2));
        let longest = millis(self.times.last());
        let late = self.times.iter().filter(|time| time.as_millis() > 100);
        println!(
            "| {} | {} drops | median {median:.1} ms | longest {longest:.1} ms | {} later than 100 ms |",
            self.what,
            self.times.len(),
            late.count(),
        );
    }
}
