//! `cargo xtask test` and `cargo xtask with-servers`.

use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::arguments::ServerArguments;
use crate::cargo::{FEATURES, PACKAGE, cargo, forget_own_package, root};
use crate::engine::Engine;
use crate::plan::Plan;
use crate::requirements::MYSQL_LIBRARIES;
use crate::servers::Servers;
use crate::{diesel_cli, run, setup};

/// Features of the tests of the programs.
const PROGRAM_FEATURES: &str = "collate/postgres,collate/mysql,ingest/postgres,ingest/mysql,\
    lessons/postgres,lessons/mysql,passes/postgres,passes/mysql,\
    row-locking-matrix/postgres,row-locking-matrix/mysql,timeline/postgres,timeline/mysql,\
    web/postgres,web/mysql";
/// The test that fails if Diesel can't use the client library of MySQL.
const CLIENT_LIBRARY_TEST: &str = "client_library::client_library_hands_out_texts";
/// The variable with the number of tests that a test program runs at a time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// 225 tests of slots and waits take 67 s with 1, 42 s with 2 and 30 s with 3, on 2 processors. With 3 and other programs on
/// the machine, limits of time pass that tests rely on.
const TESTS_PER_PROCESSOR: usize = 2;
/// Options of test programs that take a value in the next argument, which is then not a test's name.
const OPTIONS_WITH_VALUE: [&str; 8] = [
    "--test-threads",
    "--skip",
    "--format",
    "--color",
    "--logfile",
    "--report-time",
    "--shuffle-seed",
    "-Z",
];

/// `cargo xtask test`: the exit code is that of the first tests that failed.
pub(crate) fn test(arguments: &ServerArguments, test_arguments: &[String]) -> Result<u8> {
    let start = Instant::now();
    let plan = setup::prepare(Plan::requested(arguments))?;
    let diesel_cli = diesel_cli::path()?;
    let servers = Servers::start(arguments, &plan, arguments.only.is_empty())?;

    if !servers.mysql.is_empty() && !client_library_works(&servers, &diesel_cli)? {
        return Ok(1);
    }
    let mut steps = Vec::new();
    if arguments.only.is_empty() {
        let mut own = cargo([
            "test",
            "--package",
            PACKAGE,
            "--features",
            FEATURES,
            "--no-fail-fast",
            "--",
        ]);
        own.args(test_arguments);
        set_test_threads(&mut own);
        steps.push(("all tests of the library", own, 0));
        let mut others = tests_of_other_packages();
        others.args(["--no-fail-fast", "--"]).args(test_arguments);
        steps.push(("tests of the other packages", others, 0));
        if !names_tests(test_arguments) {
            for name in examples()? {
                let mut example = cargo(["run", "--package", PACKAGE, "--features", FEATURES]);
                example.args(["--example", &name]);
                steps.push(("an example", example, 0));
            }
        }
    } else {
        steps.push((
            "integration tests",
            integration_tests(
                &arguments.only,
                &["it", "cancel", "cancel_tls", "asynchronous"],
                test_arguments,
            ),
            0,
        ));
    }
    for other in 1..servers.mysql.len() {
        let programs = ["it", "cancel", "asynchronous"];
        let mut integration = integration_tests(&[Engine::Mysql], &programs, test_arguments);
        set_test_threads(&mut integration);
        // The server's version makes no difference to how a connection is wrapped or awaited: `--only mysql` runs these too.
        integration.args(["--skip", "connection_wrapper::"]);
        integration.args(["--skip", "async_connections::"]);
        steps.push(("integration tests of MySQL", integration, other));
        if arguments.only.is_empty() && !names_tests(test_arguments) {
            // Of all packages, as before: for one alone, cargo would build its dependencies again with fewer features.
            let mut torture = tests_of_other_packages();
            torture.args(["--test", "program", "--", "mysql::"]);
            steps.push(("sabotage on MySQL", torture, other));
        }
    }

    let mut code = 0;
    let mut report = Vec::new();
    for (name, mut command, mysql) in steps {
        servers.set_variables(&mut command, mysql);
        command.env(diesel_cli::VARIABLE, &diesel_cli);
        println!("xtask: {name}");
        let (status, failed) = run::run_tests(&mut command)?;
        let result = if status.success() { "passed" } else { "FAILED" };
        report.push(format!(
            "{result}: {name}, on {}",
            used(arguments, &servers, mysql)
        ));
        if !status.success() {
            // Tests of the runner itself print names of failed tests too.
            report.extend(failed);
        }
        if code == 0 {
            code = run::code(status);
        }
    }
    drop(servers);
    println!();
    for line in report {
        println!("xtask: {line}");
    }
    println!("xtask: {} s, exit code {code}", start.elapsed().as_secs());
    Ok(code)
}

/// Whether Diesel and the client library of MySQL understand each other, without which hundreds of tests fail, each
/// in its own way.
fn client_library_works(servers: &Servers, diesel_cli: &Path) -> Result<bool> {
    println!("xtask: the client library of MySQL");
    let mut command = cargo(["test", "--package", PACKAGE, "--features", FEATURES]);
    command.args(["--test", "it", "--", "--exact", CLIENT_LIBRARY_TEST]);
    servers.set_variables(&mut command, 0);
    command.env(diesel_cli::VARIABLE, diesel_cli);
    let works = run::run(&mut command)?.success();
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

fn tests_of_other_packages() -> Command {
    let mut command = cargo(["test", "--workspace", "--exclude", PACKAGE]);
    command.args(["--features", PROGRAM_FEATURES]);
    command
}

/// The integration tests of these databases only.
fn integration_tests(engines: &[Engine], programs: &[&str], test_arguments: &[String]) -> Command {
    let mut command = cargo(["test", "--package", PACKAGE, "--features", FEATURES]);
    for program in programs {
        command.args(["--test", program]);
    }
    command.arg("--");
    if names_tests(test_arguments) {
        // Several names mean any of them, so the other databases' tests are left out instead.
        let others = Engine::ALL
            .into_iter()
            .filter(|engine| !engines.contains(engine));
        for filter in others.flat_map(Engine::test_filters) {
            command.args(["--skip", filter]);
        }
    } else {
        command.args(engines.iter().copied().flat_map(Engine::test_filters));
    }
    command.args(test_arguments);
    command
}

/// The tests of the library mostly wait, so more of them run at a time than the machine has processors. `--test-threads`
/// and a variable of the environment take precedence.
fn set_test_threads(command: &mut Command) {
    if std::env::var_os(TEST_THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        command.env(TEST_THREADS, (processors * TESTS_PER_PROCESSOR).to_string());
    }
}

/// The names of the examples, each of which asserts what it shows.
fn examples() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("examples"))? {
        let path = entry?.path();
        // A folder contains what examples share.
        if path.is_file()
            && let Some(name) = path.file_stem()
        {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Whether there is a test's name, or part of one, among the arguments.
fn names_tests(arguments: &[String]) -> bool {
    let mut after_option = false;
    arguments.iter().any(|argument| {
        let value = std::mem::replace(
            &mut after_option,
            OPTIONS_WITH_VALUE.contains(&argument.as_str()),
        );
        !value && !argument.starts_with('-')
    })
}

/// What the tests ran on.
fn used(arguments: &ServerArguments, servers: &Servers, mysql: usize) -> String {
    let used = servers
        .postgres
        .iter()
        .filter(|_| mysql == 0)
        .chain(servers.mysql.get(mysql));
    let mut names: Vec<String> = used
        .map(|server| format!("{} ({})", server.title, server.origin))
        .collect();
    if mysql == 0 && arguments.includes(Engine::Sqlite) {
        names.push(sqlite());
    }
    names.join(", ")
}

/// SQLite is compiled into the tests; the crate's version determines which one.
fn sqlite() -> String {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap_or_default();
    let mut lines = lock
        .lines()
        .skip_while(|&line| line != "name = \"libsqlite3-sys\"")
        .skip(1);
    let version = lines.next().and_then(|line| line.split('"').nth(1));
    format!(
        "SQLite (of libsqlite3-sys {})",
        version.unwrap_or("of unknown version")
    )
}

#[cfg(test)]
mod tests {
    use super::names_tests;

    #[test]
    fn test_names_are_distinguished_from_option_values() {
        let names = |arguments: &str| {
            names_tests(
                &arguments
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>(),
            )
        };
        assert!(!names(""));
        assert!(!names("--nocapture --test-threads 1"));
        assert!(!names("--test-threads=1 --skip slow"));
        assert!(names("--skip slow gap"));
        assert!(names("gap"));
    }
}
