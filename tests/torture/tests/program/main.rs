//! The program as a whole. The check must be able to fail: a worker that is broken in one way is found to violate exactly
//! what that breaks.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// What is not a kind of violation in the last line.
const OTHERS: [&str; 10] = [
    "faults",
    "judged",
    "operations",
    "outcomes",
    "phases",
    "processes",
    "seconds",
    "seed",
    "threads",
    "violations",
];

/// A run's last line.
struct Line(Value);

impl Line {
    fn number(&self, key: &str) -> u64 {
        let number = self.0[key].as_u64();
        number.unwrap_or_else(|| panic!("no number {key:?} in {}", self.0))
    }

    /// The kinds of violations that were found.
    fn found(&self) -> BTreeSet<&str> {
        let object = self.0.as_object().expect("an object");
        let kinds = object.keys().map(String::as_str);
        kinds
            .filter(|key| !OTHERS.contains(key) && self.number(key) > 0)
            .collect()
    }
}

/// Of a server, in this variable.
fn url_in(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run the tests with `cargo xtask test`, which starts the servers, \
             or set it to the URL of a server on which databases may be created"
        )
    })
}

/// A run on the server that the variable names; without one, on SQLite. Also whether it ended as a success.
fn run(variable: Option<&str>, seconds: u64, options: &[&str]) -> (Line, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.args(["run", "--json", "--seconds", &seconds.to_string()]);
    if let Some(variable) = variable {
        command.args(["--url", &url_in(variable)]);
    }
    let output = command.args(options).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = printed.lines().last().unwrap_or_default();
    let line = serde_json::from_str(last).unwrap_or_else(|error| {
        let errors = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {last:?}\n{errors}")
    });
    (Line(line), output.status.success())
}

/// A sabotaged run finds these kinds of violations, all of them and no others. How long that takes is not known before:
/// a run that finds nothing is followed by a longer one.
fn is_found(variable: Option<&str>, sabotage: &str, kinds: &[&str]) {
    for seconds in [3, 6, 12, 24, 48] {
        let options = ["--faults", "none", "--sabotage", sabotage];
        let (line, success) = run(variable, seconds, &options);
        let found = line.found();
        let expected: BTreeSet<&str> = kinds.iter().copied().collect();
        assert!(
            found.is_subset(&expected),
            "{sabotage}: {found:?} and not only {expected:?}"
        );
        let total: u64 = found.iter().map(|kind| line.number(kind)).sum();
        assert_eq!(line.number("violations"), total);
        assert_eq!(success, total == 0, "the exit code");
        for check in ["late_timeouts", "unexpected_errors"] {
            let judged = line.0["judged"][check].as_u64();
            assert!(
                judged > Some(0),
                "without faults nothing excuses from {check}"
            );
        }
        if found == expected {
            return;
        }
    }
    panic!("{sabotage}: not found");
}

/// A run with these faults, each of which takes place, finds nothing. A run in which one did not is followed by a
/// longer one.
fn nothing_is_found(variable: Option<&str>, faults: &str) {
    for seconds in [6, 12, 24, 48] {
        let (line, success) = run(variable, seconds, &["--faults", faults]);
        assert_eq!(line.found(), BTreeSet::new());
        assert_eq!(line.number("violations"), 0);
        assert!(success, "the exit code");
        assert!(line.number("operations") > 0);
        let took_place = |kind: &str| line.0["faults"][kind].as_u64() > Some(0);
        if faults.split(',').all(took_place) {
            return;
        }
    }
    panic!("not all of {faults} took place");
}

/// A worker that is told to stop at once, while its pool opens connections, ends as it should and does not crash.
fn a_worker_stops(engine: &str, variable: Option<&str>) {
    for process in 1..=10 {
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("stopped.sqlite3");
        let url = variable.map_or_else(|| file.display().to_string(), url_in);
        let job = json!({
            "engine": engine,
            "url": url,
            "process": process,
            "worker": 0,
            "threads": 16,
            "seed": process,
            "sabotage": null,
            "directory": directory.path(),
        });
        let mut worker = Command::new(env!("CARGO_BIN_EXE_torture"))
            .arg("worker")
            .stdin(Stdio::piped())
            .spawn()
            .expect("a worker");
        let mut input = worker.stdin.take().expect("its input");
        writeln!(input, "{job}").expect("it reads");
        drop(input);
        let status = worker.wait().expect("its end");
        assert!(status.success(), "{status}");
    }
}

macro_rules! tests_on {
    ($engine:ident, $name:literal, $variable:expr, $faults:literal) => {
        mod $engine {
            use super::{a_worker_stops, is_found, nothing_is_found};

            const VARIABLE: Option<&str> = $variable;

            #[test]
            fn no_lock_is_found() {
                is_found(
                    VARIABLE,
                    "no-lock",
                    &["lost_updates", "overlapping_holders"],
                );
            }

            #[test]
            fn a_stale_read_is_found() {
                is_found(VARIABLE, "stale-read", &["lost_updates"]);
            }

            #[test]
            fn no_fence_is_found() {
                is_found(VARIABLE, "no-fence", &["stale_writes"]);
            }

            #[test]
            fn over_capacity_is_found() {
                is_found(VARIABLE, "over-capacity", &["over_capacity"]);
            }

            #[test]
            fn a_leaky_sequence_is_found() {
                is_found(VARIABLE, "leaky-sequence", &["sequence_gaps"]);
            }

            #[test]
            fn a_lease_that_nobody_renews_is_found() {
                is_found(VARIABLE, "no-renewal", &["lost_leases"]);
            }

            #[test]
            fn without_sabotage_nothing_is_found() {
                nothing_is_found(VARIABLE, $faults);
            }

            #[test]
            fn a_worker_that_opens_connections_stops() {
                a_worker_stops($name, VARIABLE);
            }
        }
    };
}

tests_on!(sqlite, "Sqlite", None, "kill,pause");
tests_on!(
    postgres,
    "Postgres",
    Some("PG_DATABASE_URL"),
    "kill,pause,reset,black-hole"
);
tests_on!(
    mysql,
    "Mysql",
    Some("MYSQL_DATABASE_URL"),
    "kill,pause,reset,black-hole"
);
