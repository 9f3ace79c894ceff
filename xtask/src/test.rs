//! `cargo xtask test` and `cargo xtask with-servers`.

use std::iter;
use std::num::NonZero;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::cargo::{self, ALL, DIESEL_CLI, Program, cargo, forget_own_package, root};
use crate::run::{self, words};
use crate::servers::{Engine, Plan, ServerArguments, Servers};
use crate::setup;

/// The test that fails if Diesel can't use the client library of MySQL, without which hundreds fail, each in its own way.
const CLIENT_LIBRARY_TEST: &str = "client_library::client_library_hands_out_texts";
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// 225 tests of slots and waits take 67 s with 1, 42 s with 2 and 30 s with 3, on 2 processors. With 3 and other programs on
/// the machine, limits of time pass that tests rely on.
const TESTS_PER_PROCESSOR: usize = 2;
/// The test programs of one database.
const INTEGRATION: [&str; 4] = ["it", "cancel", "cancel_tls", "asynchronous"];
/// They run one after the other, beside the others. MariaDB returns a list of locks once more as long as anybody asks
/// for one again within 0.1 s.
const READ_LISTS_OF_LOCKS: [&str; 5] = [
    "it",
    "programs/web/program",
    "tools/diesel-locks-cli/program",
    "tools/diesel-locks-page/browser",
    "tools/diesel-locks-page/pools",
];

/// What differs between MySQL and MariaDB: a run without sabotage, and locks that a panic leaves, which are read from the engine's
/// own tables.
const TORTURE: [&str; 2] = [
    "mysql::without_sabotage_nothing_is_found",
    "mysql::a_lock_left_by_a_panic_is_found",
];
/// They begin first, so that no long one is left at the end.
const LONGEST: [&str; 8] = [
    "it on ",
    "cancel",
    "tests/torture/program",
    "asynchronous",
    "programs/ingest/program",
    "compile",
    "programs/systems/program",
    "documentation",
];

/// A program to be run, with the servers that it uses.
struct Step {
    name: String,
    command: Command,
}

impl Step {
    /// Steps with a smaller rank begin first.
    fn rank(&self) -> usize {
        let is_it = |name: &&str| self.name.starts_with(name);
        LONGEST.iter().position(is_it).unwrap_or(LONGEST.len())
    }
}

/// `cargo xtask test`: the exit code is that of the first tests that failed.
pub(crate) fn test(arguments: &ServerArguments, test_arguments: &[String]) -> Result<u8> {
    let start = Instant::now();
    let all = arguments.only.is_empty();
    let mut plan = Plan::requested(arguments);
    // Tests of one engine are those of the library.
    plan.others.extend(all.then_some(&setup::BROWSER));
    let plan = setup::prepare(plan)?;
    let diesel_cli = cargo::diesel_cli()?;
    let mut build = cargo("test --no-run");
    build.args(ALL);
    if !all {
        build.args(INTEGRATION.iter().flat_map(|name| ["--test", name]));
    }
    let mut programs = cargo::build(&mut build)?;
    // Other packages have tests of the same names.
    programs.retain(|program| all || program.directory == root());
    let servers = Servers::start(arguments, &plan, all)?;
    let command = |mut command: Command, mysql| {
        servers.set_variables(&mut command, mysql);
        command.env(DIESEL_CLI, &diesel_cli);
        command
    };
    let run = |program: &Program, mysql| {
        let mut run = Command::new(&program.file);
        forget_own_package(run.current_dir(&program.directory));
        if program.directory == root() {
            set_test_threads(&mut run);
        }
        command(run, mysql)
    };
    if !servers.mysql.is_empty() {
        let it = programs.iter().find(|program| program.name == "it");
        let mut first = run(it.context("cargo has not built `it`")?, 0);
        let succeeded = run::succeed(first.args(["--exact", CLIENT_LIBRARY_TEST]));
        succeeded.context("no other test was run")?;
    }

    let mut steps = Vec::new();
    for (number, server) in servers.mysql.iter().enumerate().skip(1) {
        for program in &programs {
            let mut command = run(program, number);
            match program.name.as_str() {
                // The server's version makes no difference to how a connection is wrapped or awaited, nor to the threads of a
                // runtime: `--only mysql` runs these too.
                "it" | "cancel" | "asynchronous" => command
                    .args(without_others(&[Engine::Mysql]))
                    .args(["--skip", "connection_wrapper::"])
                    .args(["--skip", "one_thread::"])
                    .args(["--skip", "async_connections::"]),
                "tests/torture/program" if test_arguments.is_empty() => command.args(TORTURE),
                _ => continue,
            };
            command.args(test_arguments);
            let name = format!("{} on {}", program.name, server.title);
            steps.push(Step { name, command });
        }
    }
    for program in &programs {
        let mut command = run(program, 0);
        if program.is_test {
            if !all {
                command.args(without_others(&arguments.only));
            }
            command.args(test_arguments);
        } else if !program.is_example || !test_arguments.is_empty() {
            continue;
        }
        let name = program.name.clone();
        steps.push(Step { name, command });
    }
    if all {
        let mut command = command(cargo("test --doc --no-fail-fast"), 0);
        command.args(ALL).arg("--").args(test_arguments);
        let name = "documentation".to_owned();
        steps.push(Step { name, command });
    }

    let reads_lists = |step: &Step| READ_LISTS_OF_LOCKS.contains(&step.name.as_str());
    let (readers, mut others): (Vec<_>, Vec<_>) = steps.into_iter().partition(reads_lists);
    others.sort_by_key(Step::rank);
    let others = Mutex::new(others.into_iter());
    let next = || others.lock().expect("no panic").next();
    let ended = thread::scope(|scope| {
        let with_readers =
            scope.spawn(|| run_steps(readers.into_iter().chain(iter::from_fn(next))));
        let without = scope.spawn(|| run_steps(iter::from_fn(next)));
        [with_readers, without].map(|steps| steps.join().expect("no panic"))
    });
    println!();
    let mut code = 0;
    for steps in ended {
        let (first, report) = steps?;
        code = if code == 0 { first } else { code };
        for line in report {
            println!("xtask: {line}");
        }
    }
    println!("xtask: {} s, exit code {code}", start.elapsed().as_secs());
    Ok(code)
}

/// Runs one after the other. Returns the exit code of the first that failed, and a report.
fn run_steps(steps: impl Iterator<Item = Step>) -> Result<(u8, Vec<String>)> {
    let mut code = 0;
    let mut report = Vec::new();
    for Step { name, mut command } in steps {
        let start = Instant::now();
        let (status, failed) = run::run_tests(&name, &mut command)?;
        let result = if status.success() { "passed" } else { "FAILED" };
        let seconds = start.elapsed().as_secs();
        report.push(format!("{result}: {name} ({seconds} s)"));
        if !status.success() {
            // Tests of the runner itself print names of failed tests too.
            report.extend(failed);
        }
        if code == 0 {
            code = run::code(status);
        }
    }
    Ok((code, report))
}

/// `cargo xtask with-servers`: the exit code is that of the command.
pub(crate) fn with_servers(arguments: &ServerArguments, words: &[String]) -> Result<u8> {
    let mut plan = Plan::requested(arguments);
    // A command can use one of each kind only: a server that is named replaces the private one, and is the last.
    plan.mysql = plan.mysql.pop().into_iter().collect();
    let plan = setup::prepare(plan)?;
    let servers = Servers::start(arguments, &plan, false)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    forget_own_package(&mut command);
    servers.set_variables(&mut command, 0);
    if let Some(path) = cargo::installed_diesel_cli()? {
        command.env(DIESEL_CLI, path);
    }
    Ok(run::code(run::run_foreground(&mut command)?))
}

/// Parts of the names of an engine's integration tests, and of no other's.
fn test_names(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => "postgres:: schema::postgres_ crash::postgres_",
        Engine::Mysql => {
            "mysql:: schema::mysql_ crash::mysql_ client_library:: runtime_is_shut_down_in_a_check_of_ \
             slow_release_of_a_dropped_future_ while_rows_arrive_of_mysql_"
        }
        Engine::Sqlite => "sqlite:: schema::sqlite_",
    }
}

/// Options of test programs that leave out the tests of other databases.
fn without_others(engines: &[Engine]) -> Vec<&'static str> {
    let others = Engine::value_variants().iter().copied();
    let others = others.filter(|engine| !engines.contains(engine));
    let names = others.flat_map(|engine| words(test_names(engine)));
    names.flat_map(|name| ["--skip", name]).collect()
}

/// The tests of the library mostly wait, so more of them run at a time than the machine has processors. `--test-threads`
/// and a variable of the environment take precedence.
fn set_test_threads(command: &mut Command) {
    if std::env::var_os(TEST_THREADS).is_none() {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        command.env(TEST_THREADS, (processors * TESTS_PER_PROCESSOR).to_string());
    }
}
