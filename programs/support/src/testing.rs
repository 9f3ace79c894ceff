//! What the tests of the programs share: runs, processes, and databases of their own.

use std::env;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel::{Connection, RunQueryDsl, SqliteConnection};
use rustix::process::{Pid as Number, kill_process};
use serde_json::Value;
use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System};

pub use rustix::process::Signal;
pub use tempfile::TempDir;

pub mod http;

/// How long a state is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the condition is met.
pub fn wait_until(condition: &str, mut is_met: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_met() {
        assert!(started.elapsed() < PATIENCE, "not so: {condition}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The path of a file in a directory.
pub fn path_in(directory: &TempDir, name: &str) -> String {
    let path: &Path = directory.as_ref();
    path.join(name).to_str().expect("UTF-8").to_owned()
}

/// The output of a program with `--json`, and its exit code.
#[derive(Debug)]
pub struct Run {
    /// The last line of standard output.
    pub outcome: Value,
    /// What the program wrote to standard error.
    pub messages: String,
    /// The exit code.
    pub code: Option<i32>,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = printed.lines().last().unwrap_or_default();
        Self {
            outcome: serde_json::from_str(last)
                .unwrap_or_else(|error| panic!("{error}: {printed}{messages}")),
            messages,
            code: output.status.code(),
        }
    }
}

impl Run {
    /// Runs a program to its end.
    pub fn of(command: &mut Command) -> Self {
        command.output().expect("the program starts").into()
    }

    /// The number in a field of the outcome.
    pub fn number(&self, field: &str) -> u64 {
        self.outcome[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no number {field} in {self:?}"))
    }

    /// The sum of the numbers in these fields.
    pub fn sum(&self, fields: &[&str]) -> u64 {
        fields.iter().map(|field| self.number(field)).sum()
    }

    /// Asserts that these fields have numbers greater than 0.
    pub fn assert_some(&self, fields: &[&str]) {
        for field in fields {
            assert!(self.number(field) > 0, "{field}: {self:?}");
        }
    }

    /// Asserts that these fields are 0.
    pub fn assert_zero(&self, fields: &[&str]) {
        for field in fields {
            assert_eq!(self.number(field), 0, "{field}: {self:?}");
        }
    }

    /// Asserts that these fields have these numbers.
    pub fn assert_numbers(&self, expected: &[(&str, u64)]) {
        for (field, number) in expected {
            assert_eq!(self.number(field), *number, "{field}: {self:?}");
        }
    }

    /// Asserts the exit code.
    pub fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{self:?}");
    }
}

/// Starts a program that fills a table of an SQLite file, and waits until the table has this many rows.
pub fn started(command: &mut Command, path: &str, table: &str, rows: i64) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let count = sql::<BigInt>(&format!("(SELECT count(*) FROM {table})"));
    // An error while the table is missing or locked.
    let has_rows = || {
        let mut conn = SqliteConnection::establish(path).ok()?;
        let found: i64 = diesel::select(count.clone()).get_result(&mut conn).ok()?;
        Some(found >= rows)
    };
    wait_until("the table has rows", || has_rows().unwrap_or(false));
    child
}

/// A database for one test on a server, which is dropped with this value.
pub struct OwnDatabase<C: Connection> {
    /// A connection to the server.
    pub server: C,
    /// The name of the database.
    pub name: String,
    /// The URL of the database.
    pub url: String,
}

impl<C: Connection> OwnDatabase<C> {
    /// Creates the database. `variable` is an environment variable with the URL of any database on the server.
    pub fn create(variable: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let given = env::var(variable).unwrap_or_else(|_| {
            panic!(
                "{variable} is not set: run the tests with `cargo xtask test`, which starts the servers, \
                 or set it to the URL of a server on which databases may be created"
            )
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("program_test_{}_{number}", std::process::id());
        let (address, path) = given.rsplit_once('/').expect("a URL with a database");
        let options = path
            .split_once('?')
            .map_or(String::new(), |(_, options)| format!("?{options}"));
        let url = format!("{address}/{name}{options}");
        let mut server = C::establish(&given).expect("the server answers");
        server
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .expect("a database");
        Self { server, name, url }
    }
}

impl<C: Connection> Drop for OwnDatabase<C> {
    fn drop(&mut self) {
        let dropped = self
            .server
            .batch_execute(&format!("DROP DATABASE {}", self.name));
        if !thread::panicking() {
            dropped.expect("the database can be dropped");
        }
    }
}

/// Tests that call these functions of the module with the URL of a database on each server, in `PG_DATABASE_URL` and
/// `MYSQL_DATABASE_URL`.
#[macro_export]
macro_rules! on_servers {
    ($($test:ident),* $(,)?) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[test]
                fn $test() {
                    type Own = $crate::testing::OwnDatabase<diesel::PgConnection>;
                    super::$test(&Own::create("PG_DATABASE_URL").url);
                }
            )*
        }

        #[cfg(feature = "mysql")]
        mod mysql {
            $(
                #[test]
                fn $test() {
                    type Own = $crate::testing::OwnDatabase<diesel::MysqlConnection>;
                    super::$test(&Own::create("MYSQL_DATABASE_URL").url);
                }
            )*
        }
    };
}

/// Sends a signal to a process.
pub fn signal(process: u32, signal: Signal) {
    let number = Number::from_raw(process.cast_signed());
    kill_process(number.expect("not 0"), signal).expect("it runs");
}

/// The child processes of a process, without programs that are not on every machine, such as `ps`.
pub fn children(parent: u32) -> Vec<u32> {
    let parent = Some(Pid::from_u32(parent));
    processes(|process| process.parent() == parent)
}

/// Whether one of these processes has not ended.
pub fn any_alive(numbers: &[u32]) -> bool {
    // A process that has ended is listed until its parent has waited for it.
    let is_alive = |process: &Process| {
        process.status() != ProcessStatus::Zombie && numbers.contains(&process.pid().as_u32())
    };
    !processes(is_alive).is_empty()
}

fn processes(wanted: impl Fn(&Process) -> bool) -> Vec<u32> {
    let mut system = System::new();
    let known = ProcessRefreshKind::nothing().without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, known);
    let processes = system.processes().values();
    processes
        .filter(|process| wanted(process))
        .map(|process| process.pid().as_u32())
        .collect()
}
