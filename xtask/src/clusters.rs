//! `cargo xtask clusters`: the tests of clusters, with two nodes of Galera, three of MySQL's Group Replication, and a PostgreSQL
//! with a hot standby.

use std::time::Instant;

use anyhow::Result;

use crate::cargo::{FEATURES, PACKAGE, cargo};
use crate::cleanup_process::CleanupProcess;
use crate::plan::{Plan, Source};
use crate::run_dir::RunDir;
use crate::server_role::ServerRole;
use crate::{postgres, run, setup};

mod galera;
mod group_replication;

/// `cargo xtask clusters`: the exit code is that of the tests.
pub(crate) fn clusters(test_arguments: &[String]) -> Result<u8> {
    let start = Instant::now();
    setup::prepare(Plan {
        postgres: Some(Source::Private),
        mysql: vec![Source::Private],
        pgbouncer: None,
        faketime: false,
        browser: false,
    })?;
    let tests = || {
        cargo([
            "test",
            "--package",
            PACKAGE,
            "--features",
            FEATURES,
            "--test",
            "clusters",
        ])
    };
    let built = run::run(tests().arg("--no-run"))?;
    if !built.success() {
        return Ok(run::code(built));
    }

    let mut cleanup = CleanupProcess::start()?;
    let run_dir = RunDir::create(false)?;
    let mut command = tests();
    command.arg("--").args(test_arguments);
    let galera = galera::start(&run_dir, &mut cleanup)?;
    command.env("GALERA_DATABASE_URLS", galera.join(","));
    let group = group_replication::start(&run_dir, &mut cleanup)?;
    command.env("GROUP_REPLICATION_DATABASE_URLS", group.join(","));
    let primary = postgres::start(&run_dir, &mut cleanup, ServerRole::Regular)?;
    let standby = postgres::start_standby(&run_dir, &mut cleanup, &primary)?;
    command.env(
        "PG_STANDBY_DATABASE_URLS",
        format!("{},{standby}", primary.url),
    );
    println!(
        "xtask: {} nodes of Galera, {} of Group Replication, {} with a standby",
        galera.len(),
        group.len(),
        primary.title
    );
    let status = run::run(&mut command)?;
    drop(cleanup);
    let code = run::code(status);
    println!("xtask: {} s, exit code {code}", start.elapsed().as_secs());
    Ok(code)
}
