//! `cargo xtask test` and `cargo xtask with-servers`.

use std::iter;
use std::num::NonZero;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::cargo::{self, ALL, Program, cargo, forget_own_package, root};
use crate::requirements::MYSQL_LIBRARIES;
use crate::run::words;
use crate::servers::{Engine, Plan, ServerArguments, Servers};
use crate::{diesel_cli, run, setup};

/// The test that fails if Diesel can't use the client library of MySQL.
const CLIENT_LIBRARY_TEST: &str = "client_library::client_library_hands_out_texts";
/// The variable with the number of tests that a test program runs at a time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// 225 tests of slots and waits take 67 s with 1, 42 s with 2 and 30 s with 3, on 2 processors. With 3 and other programs on
/// the machine, limits of time pass that tests rely on.
const TESTS_PER_PROCESSOR: usize = 2;
/// The test programs of one database.
const INTEGRATION: [&str; 4] = ["it", "cancel", "cancel_tls", "asynchronous"];
/// They run one after the other, beside the others. MariaDB returns a list of locks once more as long as anybody asks
/// for one again within 0.1 s.
const READ_LISTS_OF_LOCKS: [&str; 3] = ["it", "programs/web/browser", "programs/web/program"];

/// A program to be run, with the servers that it uses.
struct Step {
    name: String,
    command: Command,
}

/// `cargo xtask test`: the exit code is that of the first tests that failed.
pub(crate) fn test(arguments: &ServerArguments, test_arguments: &[String]) -> Result<u8> {
    let start = Instant::now();
    let plan = setup::prepare(Plan::requested(arguments))?;
    let diesel_cli = diesel_cli::path()?;
    let all = arguments.only.is_empty();
    let mut build = cargo(["test", "--no-run"]);
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
        command.env(diesel_cli::VARIABLE, &diesel_cli);
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
    if !servers.mysql.is_empty() && !client_library_works(&programs, &run)? {
        return Ok(1);
    }

    let (mut readers, mut others) = (Vec::new(), Vec::new());
    for (number, server) in servers.mysql.iter().enumerate().skip(1) {
        let mut add = |program: &Program, names: &[&str]| {
            let mut command = run(program, number);
            command.args(names).args(test_arguments);
            let name = format!("{} on {}", program.name, server.title);
            others.push(Step { name, command });
        };
        for program in &programs {
            match program.name.as_str() {
                // The server's version makes no difference to how a connection is wrapped or awaited: `--only mysql` runs these
                // too.
                "it" | "cancel" | "asynchronous" => {
                    let mut skipped = without_others(&[Engine::Mysql]);
                    skipped.extend(["--skip", "connection_wrapper::"]);
                    skipped.extend(["--skip", "async_connections::"]);
                    add(program, &skipped);
                }
                // Sabotage, which is to be found.
                "tests/torture/program" if test_arguments.is_empty() => add(program, &["mysql::"]),
                _ => {}
            }
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
        let reads_lists = READ_LISTS_OF_LOCKS.contains(&name.as_str());
        let steps = if reads_lists {
            &mut readers
        } else {
            &mut others
        };
        steps.push(Step { name, command });
    }
    if all {
        let mut documentation = command(cargo(["test", "--doc", "--no-fail-fast"]), 0);
        documentation.args(ALL).arg("--").args(test_arguments);
        others.push(Step {
            name: "documentation".to_owned(),
            command: documentation,
        });
    }

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
        report.push(format!(
            "{result}: {name} ({} s)",
            start.elapsed().as_secs()
        ));
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

/// Whether Diesel and the client library of MySQL understand each other, without which hundreds of tests fail, each
/// in its own way.
fn client_library_works(
    programs: &[Program],
    run: &dyn Fn(&Program, usize) -> Command,
) -> Result<bool> {
    let program = programs.iter().find(|program| program.name == "it");
    let mut command = run(program.context("cargo has not built `it`")?, 0);
    let works = run::run(command.args(["--exact", CLIENT_LIBRARY_TEST]))?.success();
    if !works {
        println!("xtask: FAILED: {CLIENT_LIBRARY_TEST}, see above; no other test was run");
        for name in MYSQL_LIBRARIES {
            let version = run::output(Command::new("pkg-config").args(["--modversion", name]));
            if let Ok(version) = version {
                println!("xtask: installed: {name} {}", version.trim());
            }
        }
    }
    Ok(works)
}

/// `cargo xtask with-servers`: the exit code is that of the command.
pub(crate) fn with_servers(arguments: &ServerArguments, words: &[String]) -> Result<u8> {
    let plan = setup::prepare(Plan::requested_single(arguments))?;
    let servers = Servers::start(arguments, &plan, false)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    forget_own_package(&mut command);
    servers.set_variables(&mut command, 0);
    if let Some(path) = diesel_cli::found()? {
        command.env(diesel_cli::VARIABLE, path);
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
