//! The servers of a run: which are asked for, where they come from, and how they are named to the commands that use them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::private::{RunDir, ServerRole};
use crate::release::{self, Release};
use crate::{mysql, postgres, url};

/// The variable with which the tests accept that PostgreSQL has no German messages.
const WITHOUT_LOCALES: &str = "DIESEL_LOCKS_TEST_WITHOUT_LOCALES";
/// The variable with which the tests kill no server.
const WITHOUT_CRASHES: &str = "DIESEL_LOCKS_TEST_WITHOUT_CRASHES";

/// A database that diesel-locks works on.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// `PgConnection`.
    Postgres,
    /// `MysqlConnection`: MySQL and MariaDB.
    Mysql,
    /// `SqliteConnection`, which needs no server.
    Sqlite,
}

/// The servers of a run and their settings.
#[derive(Args, Clone)]
pub(crate) struct ServerArguments {
    /// Only these databases: their servers and their integration tests (`mysql` is MySQL and MariaDB).
    #[arg(long, value_delimiter = ',', value_name = "DATABASE")]
    pub(crate) only: Vec<Engine>,
    /// These servers in place of the machine's (MySQL: beside its MariaDB), from Debian's packages, which are unpacked
    /// and not installed, or as containers.
    #[arg(long, value_delimiter = ',', value_name = "SERVER")]
    server: Vec<Release>,
    /// Leaves fsync and its like at their defaults, for benchmarks and long runs.
    #[arg(long)]
    durable: bool,
    /// Uses only the servers named by `PG_DATABASE_URL`, `MYSQL_DATABASE_URL` and `MARIADB_DATABASE_URL`, starts none.
    #[arg(long)]
    external: bool,
}

impl ServerArguments {
    /// Whether this database is requested; without `--only`, all are.
    fn includes(&self, engine: Engine) -> bool {
        self.only.is_empty() || self.only.contains(&engine)
    }

    /// The last version of one of these that is requested.
    fn release(&self, is_one: impl Fn(Release) -> bool) -> Option<Source> {
        let last = self.server.iter().rfind(|release| is_one(**release));
        last.copied().map(Source::Release)
    }
}

/// Where a server comes from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// It runs already; this is the variable with its URL.
    Url(&'static str),
    /// Started here, from the machine's programs.
    Private,
    /// Started here, from programs of this version.
    Release(Release),
    /// Started here, in a container of this image.
    Docker(String),
}

impl Source {
    /// Whether it may be killed, and others like it be started.
    fn is_private(&self) -> bool {
        matches!(self, Self::Private | Self::Release(_))
    }

    /// The server that a variable names, if it is set.
    fn given(variable: &'static str) -> Option<Self> {
        url::from_variable(variable).map(|_| Self::Url(variable))
    }
}

/// Where the servers of a run come from, and what else it needs.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) postgres: Option<Source>,
    /// Tests run once for each. The first is the one for everything; MariaDB, if both kinds are there.
    pub(crate) mysql: Vec<Source>,
    /// The one that tells prepared statements apart.
    pub(crate) pgbouncer: Option<PathBuf>,
    /// Whether a clock is to be set.
    pub(crate) faketime: bool,
    /// Whether a page is to be opened in a browser.
    pub(crate) browser: bool,
}

impl Plan {
    /// The servers that are requested, whether or not the machine has them.
    pub(crate) fn requested(arguments: &ServerArguments) -> Self {
        let private = (!arguments.external).then_some(Source::Private);
        let mut mysql = Vec::new();
        if arguments.includes(Engine::Mysql) {
            // A URL of a MySQL does not replace MariaDB, unless nothing is to be started.
            let mariadb = arguments.release(|it| it.engine() == Engine::Mysql && !it.is_mysql());
            mysql.extend(mariadb.or(Source::given(url::MARIADB)).or(private.clone()));
            mysql.extend(
                arguments
                    .release(Release::is_mysql)
                    .or(Source::given(url::MYSQL)),
            );
            if mysql.is_empty() {
                mysql.push(Source::Url(url::MYSQL));
            }
        }
        let postgres = arguments
            .release(|it| it.engine() == Engine::Postgres)
            .or(Source::given(url::POSTGRES))
            .or(private)
            .unwrap_or(Source::Url(url::POSTGRES));
        Self {
            postgres: arguments.includes(Engine::Postgres).then_some(postgres),
            mysql,
            // Tests of one engine are those of the library.
            browser: arguments.only.is_empty(),
            ..Self::default()
        }
    }

    /// The servers for a command that can use one of each kind only: a server that is named replaces the private one.
    pub(crate) fn requested_single(arguments: &ServerArguments) -> Self {
        let mut plan = Self::requested(arguments);
        plan.browser = false;
        let given = plan.mysql.iter().rposition(|it| *it != Source::Private);
        if let Some(given) = given {
            plan.mysql = vec![plan.mysql.swap_remove(given)];
        }
        plan
    }
}

/// What is known about a running server.
pub(crate) struct Server {
    /// Name and version.
    pub(crate) title: String,
    /// Where it comes from.
    pub(crate) origin: String,
    pub(crate) url: String,
    /// Whether it can be made to report errors in German.
    pub(crate) has_locale_de: bool,
    /// A program that kills it.
    pub(crate) kill: Option<PathBuf>,
}

impl Server {
    pub(crate) fn print(&self) {
        let Self { title, origin, .. } = self;
        println!(
            "xtask: {title} ({origin}) at {}",
            url::without_password(&self.url)
        );
    }
}

/// The servers of a run.
pub(crate) struct Servers {
    pub(crate) postgres: Option<Server>,
    pub(crate) mysql: Vec<Server>,
    /// PostgreSQL and MySQL, to be killed by a test.
    crash: Option<[Server; 2]>,
    pgbouncer: Option<PathBuf>,
}

impl Servers {
    /// Starts the servers; with `with_crash_servers`, also private ones to be killed by a test.
    pub(crate) fn start(
        arguments: &ServerArguments,
        plan: &Plan,
        with_crash_servers: bool,
    ) -> Result<Self> {
        let run_dir = RunDir::create(arguments.durable)?;
        let postgres = plan.postgres.as_ref();
        let postgres = postgres.map(|it| postgres::open(it, &run_dir, ServerRole::Regular));
        let mysql = plan.mysql.iter();
        let mysql = mysql.map(|it| mysql::open(it, &run_dir, ServerRole::Regular));
        let mut servers = Self {
            postgres: postgres.transpose()?,
            mysql: mysql.collect::<Result<_>>()?,
            crash: None,
            pgbouncer: plan.pgbouncer.clone(),
        };
        if let (Some(postgres), Some(mysql)) = (&plan.postgres, plan.mysql.first())
            && with_crash_servers
            && postgres.is_private()
            && mysql.is_private()
        {
            servers.crash = Some([
                postgres::open(postgres, &run_dir, ServerRole::Crash)?,
                mysql::open(mysql, &run_dir, ServerRole::Crash)?,
            ]);
        }
        for server in servers.postgres.iter().chain(&servers.mysql) {
            server.print();
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

    /// Sets the variables with the servers for the command; `mysql` is the number of the server of that kind.
    pub(crate) fn set_variables(&self, command: &mut Command, mysql: usize) {
        if let Some(server) = &self.postgres {
            command.env(url::POSTGRES, &server.url);
            if server.has_locale_de {
                command.env_remove(WITHOUT_LOCALES);
            } else {
                command.env(WITHOUT_LOCALES, "1");
            }
        }
        if let Some(server) = self.mysql.get(mysql) {
            command.env(url::MYSQL, &server.url);
        }
        if let Some(pgbouncer) = &self.pgbouncer {
            command.env(release::PGBOUNCER_VARIABLE, pgbouncer);
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
