//! The program, from its arguments to its output, on every engine.

mod end;

use std::process::Command;

use diesel::{Connection, MysqlConnection, PgConnection};
use program_test_support::{OwnDatabase, Run, assert_refused};

fn async_web(arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_async-web"));
    command.args(arguments);
    command.output().expect("async-web starts").into()
}

/// Many clients, some of which hang up, also in their closures: what was answered is stored, what was cut off is not, and
/// nothing is left locked.
fn nothing_is_lost_or_left(database: &[&str]) -> Run {
    let load = ["measure", "--json", "--clients", "30", "--seconds", "2"];
    let run = async_web(&[&load, database].concat());
    run.assert_none_of(&[
        "missing",
        "repeats",
        "gaps",
        "unexplained",
        "overlaps",
        "left_waiting",
        "left_locked",
        "errors",
    ]);
    for number in [
        "stored",
        "answered",
        "reports",
        "hung_up",
        "cut_off",
        "health_checks",
    ] {
        assert!(run.number(number) > 0, "{number}: {run:?}");
    }
    run
}

fn on_a_server<C: Connection>(variable: &str) -> Run {
    let database = OwnDatabase::<C>::create(variable);
    nothing_is_lost_or_left(&["--database-url", &database.url])
}

#[test]
fn nothing_is_lost_or_left_on_sqlite() {
    let run = nothing_is_lost_or_left(&[]);
    assert_eq!(run.outcome["backend"], "SQLite");
}

#[test]
fn nothing_is_lost_or_left_on_postgresql() {
    let run = on_a_server::<PgConnection>("PG_DATABASE_URL");
    assert_eq!(run.outcome["backend"], "PostgreSQL");
}

#[test]
fn nothing_is_lost_or_left_on_mysql() {
    let run = on_a_server::<MysqlConnection>("MYSQL_DATABASE_URL");
    assert_eq!(run.outcome["backend"], "MySQL or MariaDB");
}

#[test]
fn unusable_arguments_are_refused() {
    let program = || Command::new(env!("CARGO_BIN_EXE_async-web"));
    assert_refused(program, &[(["--connections", "0"], "--connections")]);
    // An option of the service before the command would have no effect.
    assert_refused(program, &[(["--connections", "3", "measure"], "measure")]);
    assert_refused(program, &[(["measure", "--hang-ups", "101"], "101")]);
}
