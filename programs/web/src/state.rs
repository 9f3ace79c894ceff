//! What the page shows: snapshots of all semaphores, locks and sequences, made once for all listeners.

mod handovers;
mod lists;
pub(crate) mod publisher;
pub(crate) mod rates;
mod snapshot;

use std::time::{Duration, Instant};

/// A snapshot counts as new for so long. A look at the database takes less than this while it answers.
const NEW: Duration = Duration::from_secs(2);

/// The newest state.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    made: Instant,
    /// Microseconds since 1970 by the database's clock, when this was made.
    now_us: i64,
    /// Why the rest is older than that.
    error: Option<&'static str>,
    /// A JSON object with all that does not change with time.
    rest: String,
}

impl Snapshot {
    pub(crate) fn new(now_us: i64, error: Option<&'static str>, rest: String) -> Self {
        Self {
            made: Instant::now(),
            now_us,
            error,
            rest,
        }
    }

    /// The snapshot as JSON, with the present time. It says how long the database is silent.
    pub(crate) fn json(&self) -> String {
        self.json_after(self.made.elapsed())
    }

    fn json_after(&self, age: Duration) -> String {
        let age_us = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        let now_us = self.now_us.saturating_add(age_us);
        let silent = || format!("the database has not answered for {} s", age.as_secs());
        let error = match self.error {
            Some(error) => Some(error.to_owned()),
            None => (age >= NEW).then(silent),
        };
        let error = serde_json::Value::from(error);
        let rest = self.rest.trim_start_matches('{');
        let separator = if rest == "}" { "" } else { "," };
        format!("{{\"now_us\":{now_us},\"error\":{error}{separator}{rest}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::Snapshot;

    #[test]
    fn snapshot_that_is_sent_again_says_that_the_database_is_silent() {
        let after = |snapshot: &Snapshot, age| -> Value {
            let json = snapshot.json_after(Duration::from_millis(age));
            serde_json::from_str(&json).expect("JSON")
        };
        let snapshot = Snapshot::new(1_000_000, None, r#"{"engine":"{"}"#.to_owned());
        let shown =
            |now_us: i64, error: Value| json!({ "now_us": now_us, "error": error, "engine": "{" });
        assert_eq!(after(&snapshot, 450), shown(1_450_000, Value::Null));
        assert_eq!(
            after(&snapshot, 3_999),
            shown(4_999_000, json!("the database has not answered for 3 s"))
        );
        let failed = Snapshot::new(0, Some("down"), "{}".to_owned());
        assert_eq!(
            after(&failed, 3_000),
            json!({ "now_us": 3_000_000, "error": "down" })
        );
    }
}
