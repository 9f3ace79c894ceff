//! `cargo xtask clusters`: the tests of clusters, with three nodes of Galera, three of MySQL's Group Replication, a PostgreSQL
//! with a hot standby, a MariaDB and a MySQL with a replica each.

use std::time::Instant;

use anyhow::Result;

use crate::cargo::{ALL, cargo};
use crate::private::{RunDir, ServerRole};
use crate::release::{MYSQL_9, Release};
use crate::servers::{Engine, Plan, Server, Source};
use crate::{nodes, postgres, run, setup};

/// `cargo xtask clusters`: the exit code is that of the tests.
pub(crate) fn clusters(mariadb: Option<&'static Release>, test_arguments: &[String]) -> Result<u8> {
    let start = Instant::now();
    let mariadb = Source::private(mariadb);
    setup::prepare(Plan {
        postgres: Some(Source::Private),
        mysql: vec![mariadb.clone(), Source::Release(&MYSQL_9)],
        ..Plan::default()
    })?;
    let tests = || {
        let mut command = cargo("test --test clusters");
        command.args(ALL);
        command
    };
    run::succeed(tests().arg("--no-run"))?;
    // A test runs it on a replica. With an example, for which cargo chooses the features as for tests.
    run::succeed(cargo("build --bin diesel-locks --example object_lock").args(ALL))?;

    let run_dir = &RunDir::create(false)?;
    let role = ServerRole::Regular;
    let mut command = tests();
    command.arg("--").args(test_arguments);
    let mut name = |variable, servers: Vec<Server>| {
        let urls: Vec<&str> = servers.iter().map(|it| it.url.as_str()).collect();
        println!("xtask: {variable}: {}", urls.join(","));
        command.env(variable, urls.join(","));
    };
    let galera = nodes::galera(run_dir, mariadb.mysql_server()?, role)?;
    name("GALERA_DATABASE_URLS", galera);
    let group = nodes::group_replication(run_dir, role)?;
    name("GROUP_REPLICATION_DATABASE_URLS", group);
    let primary = Source::Private.open(Engine::Postgres, run_dir, role)?;
    let standby = postgres::start_standby(run_dir, &primary)?;
    name("PG_STANDBY_DATABASE_URLS", vec![primary, standby]);
    let replica = nodes::source_and_replica(run_dir, mariadb.mysql_server()?, "mariadb")?;
    name("MARIADB_REPLICA_DATABASE_URLS", replica);
    let replica = nodes::source_and_replica(run_dir, MYSQL_9.mysql_server(), "mysql")?;
    name("MYSQL_REPLICA_DATABASE_URLS", replica);
    let code = run::code(run::run(&mut command)?);
    println!("xtask: {} s, exit code {code}", start.elapsed().as_secs());
    Ok(code)
}
