//! Starting the servers of a run, and naming them to its commands.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::arguments::ServerArguments;
use crate::cleanup_process::CleanupProcess;
use crate::database_url::{self, MYSQL_URL, POSTGRES_URL, without_password};
use crate::plan::{Plan, Source};
use crate::run_dir::RunDir;
use crate::server::Server;
use crate::server_role::ServerRole;
use crate::{docker, mysql, pgbouncer, postgres};

/// The variable with which the tests accept that PostgreSQL has no German messages.
const WITHOUT_LOCALES: &str = "DIESEL_LOCKS_TEST_WITHOUT_LOCALES";

/// The variable with which the tests kill no server.
const WITHOUT_CRASHES: &str = "DIESEL_LOCKS_TEST_WITHOUT_CRASHES";

/// The servers of a run; dropping it stops them.
pub(crate) struct Servers {
    pub(crate) postgres: Option<Server>,
    pub(crate) mysql: Vec<Server>,
    /// PostgreSQL and MySQL, to be killed by a test.
    crash: Option<[Server; 2]>,
    pgbouncer: Option<PathBuf>,
    _cleanup: CleanupProcess,
}

impl Servers {
    /// Starts the servers; with `with_crash_servers`, also private ones to be killed by a test.
    pub(crate) fn start(
        arguments: &ServerArguments,
        plan: &Plan,
        with_crash_servers: bool,
    ) -> Result<Self> {
        let mut cleanup = CleanupProcess::start()?;
        let durable = arguments.durable;
        let run_dir = RunDir::create(durable)?;
        let postgres = match &plan.postgres {
            Some(Source::Url(variable)) => Some(postgres::external(
                &database_url::required(variable)?,
                variable,
            )?),
            Some(Source::Docker(image)) => Some(docker::start_postgres(image, durable)?),
            Some(private) => Some(start_postgres(
                private,
                &run_dir,
                &mut cleanup,
                ServerRole::Regular,
            )?),
            None => None,
        };
        let mut mysql = Vec::new();
        for source in &plan.mysql {
            mysql.push(match source {
                Source::Url(variable) => {
                    mysql::external(&database_url::required(variable)?, variable)?
                }
                Source::Docker(image) => docker::start_mysql(image, durable)?,
                private => start_mysql(private, &run_dir, &mut cleanup, ServerRole::Regular)?,
            });
        }
        let crash = match (&plan.postgres, plan.mysql.first()) {
            (Some(postgres), Some(mysql))
                if with_crash_servers && postgres.is_private() && mysql.is_private() =>
            {
                Some([
                    start_postgres(postgres, &run_dir, &mut cleanup, ServerRole::Crash)?,
                    start_mysql(mysql, &run_dir, &mut cleanup, ServerRole::Crash)?,
                ])
            }
            _ => None,
        };
        let servers = Self {
            postgres,
            mysql,
            crash,
            pgbouncer: plan.pgbouncer.clone(),
            _cleanup: cleanup,
        };
        for server in servers.all() {
            println!(
                "xtask: {} ({}) at {}",
                server.title,
                server.origin,
                without_password(&server.url)
            );
        }
        if with_crash_servers && servers.crash.is_none() {
            println!(
                "xtask: not all of these servers may be killed, so {WITHOUT_CRASHES}=1: no test kills one"
            );
        }
        if servers
            .postgres
            .as_ref()
            .is_some_and(|server| !server.has_locale_de)
        {
            println!(
                "xtask: this PostgreSQL need not know German, so {WITHOUT_LOCALES}=1: the tests use English errors only"
            );
        }
        Ok(servers)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Server> {
        self.postgres.iter().chain(&self.mysql)
    }

    /// Sets the variables with the servers for the command; `mysql` is the number of the server of that kind.
    pub(crate) fn set_variables(&self, command: &mut Command, mysql: usize) {
        if let Some(server) = &self.postgres {
            command.env(POSTGRES_URL, &server.url);
            if server.has_locale_de {
                command.env_remove(WITHOUT_LOCALES);
            } else {
                command.env(WITHOUT_LOCALES, "1");
            }
        }
        if let Some(server) = self.mysql.get(mysql) {
            command.env(MYSQL_URL, &server.url);
        }
        if let Some(pgbouncer) = &self.pgbouncer {
            command.env(pgbouncer::VARIABLE, pgbouncer);
        }
        let Some(crash) = &self.crash else {
            command.env(WITHOUT_CRASHES, "1");
            return;
        };
        command.env_remove(WITHOUT_CRASHES);
        for (name, server) in ["PG", "MYSQL"].into_iter().zip(crash) {
            command.env(format!("{name}_CRASH_URL"), &server.url);
            if let Some(kill) = &server.kill {
                command.env(format!("{name}_CRASH_COMMAND"), kill);
            }
        }
    }
}

/// A private PostgreSQL.
fn start_postgres(
    source: &Source,
    run_dir: &RunDir,
    cleanup: &mut CleanupProcess,
    role: ServerRole,
) -> Result<Server> {
    let Source::Release(release) = source else {
        return postgres::start(run_dir, cleanup, role);
    };
    let programs = release.postgres_directory();
    let server = postgres::start_program(&programs, run_dir, cleanup, role)?;
    Ok(Server {
        origin: release.origin(),
        ..server
    })
}

/// A private MariaDB or MySQL.
fn start_mysql(
    source: &Source,
    run_dir: &RunDir,
    cleanup: &mut CleanupProcess,
    role: ServerRole,
) -> Result<Server> {
    let Source::Release(release) = source else {
        return mysql::start(run_dir, cleanup, role);
    };
    let server = mysql::start_program(&release.mysql_server(), run_dir, cleanup, role)?;
    Ok(Server {
        origin: release.origin(),
        ..server
    })
}
