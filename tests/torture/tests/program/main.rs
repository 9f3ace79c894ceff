//! The program as a whole. The check must be able to fail: a worker that is broken in one way is found to violate
//! exactly what that breaks.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How much longer than its faults a run may take: what was begun comes back within a minute, then leases end.
const GRACE: Duration = Duration::from_secs(150);
/// How often is looked whether a process has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// What is not a kind of violation in the last line.
const OTHERS: [&str; 14] = [
    "async_threads",
    "clients",
    "faults",
    "judged",
    "operations",
    "outcomes",
    "phases",
    "processes",
    "queued",
    "seconds",
    "seed",
    "shared",
    "threads",
    "violations",
];

/// A run's last line, and all that it printed.
struct Line {
    value: Value,
    printed: String,
}

impl Line {
    fn number(&self, key: &str) -> u64 {
        let number = self.value[key].as_u64();
        number.unwrap_or_else(|| panic!("no number {key:?} in {}", self.value))
    }

    /// Whether this kind is that of unexpected errors, and each of them one of a pool that opened no connection in time.
    fn is_of_a_slow_pool(&self, kind: &str) -> bool {
        let heading = format!("  unexpected_errors: {}", self.number("unexpected_errors"));
        let after = self.printed.lines().skip_while(|line| *line != heading);
        let errors = after.skip(1).take_while(|line| line.starts_with("    "));
        let errors: Vec<&str> = errors.collect();
        let of_pool = "the pool gave no connection: no connection was opened";
        kind == "unexpected_errors"
            && !errors.is_empty()
            && errors.iter().all(|error| error.contains(of_pool))
    }

    /// The kinds of violations that were found.
    fn found(&self) -> BTreeSet<&str> {
        let object = self.value.as_object().expect("an object");
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
    let directory = TempDir::new().expect("a directory");
    command
        .arg("--keep")
        .arg(directory.path().join("histories"));
    let ended = ended(
        command.args(options),
        Duration::from_secs(seconds) + GRACE,
        directory.path(),
    );
    let last = ended.printed.lines().last().unwrap_or_default();
    let value = serde_json::from_str(last)
        .unwrap_or_else(|error| panic!("{error}: {last:?}\n{}", ended.errors));
    let line = Line {
        value,
        printed: ended.printed,
    };
    (line, ended.status.success())
}

/// A process that has ended.
struct Ended {
    status: ExitStatus,
    printed: String,
    errors: String,
}

/// Waits for a process, but not for ever. It prints into files, which whatever it leaves behind can't keep open.
fn ended(command: &mut Command, limit: Duration, directory: &Path) -> Ended {
    let [printed, errors] = ["printed", "errors"].map(|name| directory.join(name));
    let file = |path| File::create(path).expect("a file");
    let mut child = command
        .stdout(file(&printed))
        .stderr(file(&errors))
        .spawn()
        .expect("it starts");
    let status = status_within(&mut child, limit);
    let read = |path| fs::read_to_string(path).expect("what it printed");
    let (printed, errors) = (read(&printed), read(&errors));
    let Some(status) = status else {
        panic!("{command:?} did not end within {limit:?}\n{printed}\n{errors}");
    };
    Ended {
        status,
        printed,
        errors,
    }
}

/// The status of a process that ends within this time. Otherwise it is asked to end, and killed.
fn status_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let within = |child: &mut Child, limit| {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if let Some(status) = child.try_wait().expect("its status") {
                return Some(status);
            }
            sleep(PAUSE);
        }
        None
    };
    let status = within(child, limit);
    if status.is_none() {
        // A run that is interrupted ends its workers.
        let _ = kill_process(Pid::from_child(child), Signal::INT);
        if within(child, Duration::from_secs(10)).is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
    status
}

/// The kinds that a machine without time for the workers brings about.
const OF_TIME: [&str; 3] = ["late_hand_overs", "late_timeouts", "lost_leases"];

/// A sabotaged run finds these kinds of violations, all of them and no others. How long that takes is not known before:
/// a run that finds nothing is followed by a longer one. So is one that finds [`OF_TIME`] beside them: other tests may have
/// taken the processors, for which a pool may open no connection within its 5 s.
fn is_found(variable: Option<&str>, sabotage: &str, kinds: &[&str]) {
    is_found_with(variable, "none", sabotage, kinds);
}

/// As [`is_found`], with these faults.
fn is_found_with(variable: Option<&str>, faults: &str, sabotage: &str, kinds: &[&str]) {
    let expected: BTreeSet<String> = kinds.iter().map(ToString::to_string).collect();
    let mut runs = Vec::new();
    for seconds in [3, 6, 12, 24, 48, 48] {
        let options = ["--faults", faults, "--sabotage", sabotage];
        let (line, success) = run(variable, seconds, &options);
        let found: BTreeSet<String> = line.found().into_iter().map(ToOwned::to_owned).collect();
        let mut others = found.difference(&expected);
        assert!(
            others.all(|kind| OF_TIME.contains(&kind.as_str()) || line.is_of_a_slow_pool(kind)),
            "{sabotage}: {found:?} and not only {expected:?}\n{}",
            line.printed
        );
        let total: u64 = found.iter().map(|kind| line.number(kind)).sum();
        assert_eq!(line.number("violations"), total);
        assert_eq!(success, total == 0, "the exit code");
        for check in ["late_timeouts", "unexpected_errors"] {
            let judged = line.value["judged"][check].as_u64();
            assert!(
                judged > Some(0),
                "without faults nothing excuses from {check}"
            );
        }
        if found == expected {
            return;
        }
        runs.push((seconds, line.number("operations"), found));
    }
    panic!("{sabotage}: runs of so many seconds, their operations, and what they found: {runs:?}");
}

/// A run with these faults, each of which takes place, finds nothing. A run in which one did not is followed by a
/// longer one.
fn nothing_is_found(variable: Option<&str>, faults: &str) {
    for seconds in [6, 12, 24, 48] {
        let (line, success) = run(variable, seconds, &["--faults", faults]);
        assert_eq!(line.found(), BTreeSet::new(), "{}", line.printed);
        assert_eq!(line.number("violations"), 0);
        assert!(success, "the exit code");
        assert!(line.number("operations") > 0);
        let took_place = |kind: &str| line.value["faults"][kind].as_u64() > Some(0);
        if faults.split(',').all(took_place) {
            return;
        }
    }
    panic!("not all of {faults} took place");
}

/// A worker that is asked to stop while its pool opens connections ends with its exit code and does not crash.
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
            "async_threads": 2,
            "drops": true,
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
        let status = status_within(&mut worker, GRACE).expect("its end");
        assert!(status.success(), "{status}");
    }
}

/// A worker without instructions waits for ever.
#[test]
#[should_panic(expected = "did not end within 500ms")]
fn hanging_worker_is_reported() {
    let directory = TempDir::new().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.arg("worker").stdin(Stdio::piped());
    ended(&mut command, Duration::from_millis(500), directory.path());
}

/// A run that fails half-way keeps what it knows: here its server can't be killed.
#[test]
fn a_run_that_fails_keeps_its_histories() {
    let directory = TempDir::new().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.args(["run", "--faults", "crash", "--kill-server", "false"]);
    command.env("TMPDIR", directory.path());
    let printed = TempDir::new().expect("a directory");
    let ended = ended(
        &mut command,
        Duration::from_secs(60) + GRACE,
        printed.path(),
    );
    assert_eq!(ended.status.code(), Some(2), "{}", ended.errors);
    let kept: Vec<_> = fs::read_dir(directory.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    let [kept] = kept.as_slice() else {
        panic!("only the histories stay: {kept:?}");
    };
    let told = format!("the histories stay in {}", kept.display());
    assert!(ended.errors.contains(&told), "{}", ended.errors);
    let faults = fs::read(kept.join("faults.json")).expect("what the nemesis did");
    let faults: Value = serde_json::from_slice(&faults).expect("JSON");
    assert_eq!(faults, json!([]));
    assert!(kept.join("1.history").exists());
}

/// Tests of these names: the sabotage, and the kinds of violations that are found. It is the workers that are broken and the checker
/// that finds it, so one engine tells: one on which several sessions write at a time.
macro_rules! found {
    ($($test:ident: $sabotage:literal => $kinds:expr,)*) => {$(
        #[test]
        fn $test() {
            is_found(Some("PG_DATABASE_URL"), $sabotage, $kinds);
        }
    )*};
}

found! {
    no_lock_is_found: "no-lock" => &["lost_updates", "overlapping_holders", "unexpected_errors"],
    a_reader_without_a_lock_is_found: "no-shared-lock" => &["overlapping_holders", "unexpected_errors"],
    a_stale_read_is_found: "stale-read" => &["lost_updates"],
    no_fence_is_found: "no-fence" => &["stale_writes"],
    over_capacity_is_found: "over-capacity" => &["over_capacity"],
    a_lease_of_too_few_permits_is_found: "partial-permits" => &["over_capacity"],
    an_ignored_limit_is_found: "ignored-limit" => &["over_capacity"],
    a_leaky_sequence_is_found: "leaky-sequence" => &["sequence_gaps"],
    an_unrenewed_lease_is_found: "no-renewal" => &["lost_leases"],
    a_loss_reported_as_success_is_found: "loss-as-success" => &["unreported_losses"],
    a_fence_that_grows_in_its_slot_only_is_found: "fence-per-slot" => &["fences"],
    transactions_whose_slots_ignore_leases_are_found: "slot-ignores-leases" => &["over_capacity"],
    a_guard_that_does_not_report_its_loss_is_found: "silent-guard" => &["unreported_losses"],
    a_holder_that_hangs_and_is_renewed_is_found: "false-progress" => &["unreported_losses"],
    a_tick_that_is_run_again_is_found: "repeated-tick" => &["repeated_ticks"],
    releases_that_are_not_handed_over_are_found: "no-hand-over" => &["late_hand_overs"],
}

/// What depends on the engine.
macro_rules! tests_on {
    ($engine:ident, $name:literal, $variable:expr, $faults:literal, $left:expr, $dropped:literal) => {
        mod $engine {
            use super::{a_worker_stops, is_found, is_found_with, nothing_is_found};

            const VARIABLE: Option<&str> = $variable;

            #[test]
            fn a_lock_left_by_a_panic_is_found() {
                is_found(VARIABLE, "lock-after-panic", $left);
            }

            #[test]
            fn a_transaction_left_by_a_dropped_future_is_found() {
                is_found_with(VARIABLE, "drop", "no-rollback-on-drop", &[$dropped]);
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

/// Not on SQLite, whose pin is the lock of all writers.
macro_rules! unlocked_pin_is_found {
    ($name:ident, $variable:literal) => {
        #[test]
        fn $name() {
            let kinds = ["lost_updates", "overlapping_holders"];
            is_found(Some($variable), "unlocked-pin", &kinds);
        }
    };
}

unlocked_pin_is_found!(postgres_unlocked_pin_is_found, "PG_DATABASE_URL");
unlocked_pin_is_found!(mysql_unlocked_pin_is_found, "MYSQL_DATABASE_URL");

// SQLite's lock is the write lock: a write after the panic, or the drop, shows whether it is held.
tests_on!(
    sqlite,
    "Sqlite",
    None,
    "kill,pause,drop",
    &["lost_commits"],
    "lost_commits"
);
tests_on!(
    postgres,
    "Postgres",
    Some("PG_DATABASE_URL"),
    "kill,pause,reset,black-hole,drop",
    &["left_locks", "lost_commits"],
    "left_locks"
);
tests_on!(
    mysql,
    "Mysql",
    Some("MYSQL_DATABASE_URL"),
    "kill,pause,reset,black-hole,drop",
    &["left_locks", "lost_commits"],
    "left_locks"
);
