//! The servers of a run: which are asked for, where they come from, and how they are named to the commands that use them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::private::{RunDir, ServerRole};
use crate::programs::{self, MysqlServer};
use crate::release::{self, Release};
use crate::setup::Need;
use crate::{docker, mysql, postgres};

/// The variable that names the PostgreSQL server, to this program and to the tests.
pub(crate) const POSTGRES_URL: &str = "PG_DATABASE_URL";
/// The variable that names the MySQL server; to the tests, whichever of MySQL and MariaDB they are to use.
pub(crate) const MYSQL_URL: &str = "MYSQL_DATABASE_URL";
/// The variable that names a MariaDB server to this program.
pub(crate) const MARIADB_URL: &str = "MARIADB_DATABASE_URL";
/// The variable with which the tests accept that PostgreSQL has no German messages.
const WITHOUT_LOCALES: &str = "DIESEL_LOCKS_TEST_WITHOUT_LOCALES";
/// The variable with which the tests kill no server.
const WITHOUT_CRASHES: &str = "DIESEL_LOCKS_TEST_WITHOUT_CRASHES";

/// A database that diesel-locks works on.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    Sqlite,
}

/// The servers of a run and their settings.
#[derive(Args)]
pub(crate) struct ServerArguments {
    /// Only these databases: their servers and their integration tests (`mysql` is MySQL and MariaDB).
    #[arg(long, value_delimiter = ',', value_name = "DATABASE")]
    pub(crate) only: Vec<Engine>,
    /// These servers in place of the machine's (MySQL: beside its MariaDB), from Debian's packages, which are unpacked
    /// and not installed, or as containers.
    #[arg(long, value_delimiter = ',', value_parser = release::parser(""))]
    server: Vec<&'static Release>,
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

    /// The last version of this product that is requested.
    fn release(&self, product: &str) -> Option<Source> {
        let last = self.server.iter().rfind(|it| it.product() == product);
        last.copied().map(Source::Release)
    }
}

/// The URL in a variable; empty is the same as not set. One that is not UTF-8 leads to no server, and to an error that says so.
pub(crate) fn url_of(variable: &str) -> Option<String> {
    let url = env::var_os(variable)?.to_string_lossy().into_owned();
    Some(url).filter(|url| !url.is_empty())
}

/// The URL that this variable has to have.
pub(crate) fn required_url(variable: &str) -> Result<String> {
    url_of(variable).with_context(|| format!("with --external, {variable} must name a server"))
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// It runs already; this is the variable with its URL.
    Url(&'static str),
    /// Started here, from the machine's programs.
    Private,
    /// Started here, from programs of this version.
    Release(&'static Release),
    /// Started here, in a container of this image.
    Docker(String),
}

impl Source {
    /// Whether it may be killed, and others like it be started.
    fn is_private(&self) -> bool {
        !matches!(self, Self::Url(_) | Self::Docker(_))
    }

    /// The machine's server, or one of this version.
    pub(crate) fn private(release: Option<&'static Release>) -> Self {
        release.map_or(Self::Private, Self::Release)
    }

    pub(crate) fn mysql_server(&self) -> Result<MysqlServer> {
        match self {
            Self::Release(release) => Ok(release.mysql_server()),
            _ => programs::mysql(),
        }
    }

    fn postgres_programs(&self) -> Result<PathBuf> {
        match self {
            Self::Release(release) => Ok(release.bin()),
            _ => programs::postgres(),
        }
    }

    /// The server that a variable names, if it is set.
    pub(crate) fn given(variable: &'static str) -> Option<Self> {
        url_of(variable).map(|_| Self::Url(variable))
    }

    /// The server, after starting it.
    pub(crate) fn open(
        &self,
        engine: Engine,
        run_dir: &RunDir,
        role: ServerRole,
    ) -> Result<Server> {
        let is_postgres = engine == Engine::Postgres;
        let server = match self {
            Self::Url(variable) => {
                // Not its URL, which may have a password.
                let title = format!("the server of {variable}");
                println!("xtask: {title}");
                let url = required_url(variable)?;
                return Ok(Server {
                    title,
                    url,
                    ..Server::default()
                });
            }
            Self::Docker(image) => docker::start(engine, image, run_dir)?,
            _ if is_postgres => postgres::start(&self.postgres_programs()?, run_dir, role)?,
            _ => mysql::start(&self.mysql_server()?, run_dir, role)?,
        };
        println!("xtask: {} at {}", server.title, server.url);
        Ok(server)
    }
}

/// Where the servers of a run come from, and what else it needs.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) postgres: Option<Source>,
    /// Tests run once for each. The first is the one for everything; MariaDB, if both kinds are there.
    pub(crate) mysql: Vec<Source>,
    pub(crate) others: Vec<&'static Need>,
    /// The one that tells prepared statements apart.
    pub(crate) pgbouncer: Option<PathBuf>,
}

impl Plan {
    /// The servers that are requested, whether or not the machine has them.
    pub(crate) fn requested(arguments: &ServerArguments) -> Self {
        let private = (!arguments.external).then_some(Source::Private);
        let mut mysql = Vec::new();
        if arguments.includes(Engine::Mysql) {
            // A URL of a MySQL does not replace MariaDB, unless nothing is to be started.
            let mariadb = arguments.release("mariadb");
            mysql.extend(mariadb.or(Source::given(MARIADB_URL)).or(private.clone()));
            mysql.extend(arguments.release("mysql").or(Source::given(MYSQL_URL)));
            if mysql.is_empty() {
                mysql.push(Source::Url(MYSQL_URL));
            }
        }
        let postgres = arguments.release("postgres");
        let postgres = postgres.or(Source::given(POSTGRES_URL)).or(private);
        let postgres = postgres.unwrap_or(Source::Url(POSTGRES_URL));
        Self {
            postgres: arguments.includes(Engine::Postgres).then_some(postgres),
            mysql,
            ..Self::default()
        }
    }
}

#[derive(Default)]
pub(crate) struct Server {
    pub(crate) title: String,
    pub(crate) url: String,
    /// A program that kills it, stops it, or has it continue.
    pub(crate) kill: Option<PathBuf>,
    /// A program that stops its connections with the other nodes of the cluster, or has them continue.
    pub(crate) kill_network: Option<PathBuf>,
    /// The file with its clock, if it can be set.
    pub(crate) clock: Option<PathBuf>,
}

pub(crate) struct Servers {
    pub(crate) postgres: Option<Server>,
    pub(crate) mysql: Vec<Server>,
    /// PostgreSQL and MySQL, to be killed by a test.
    crash: Option<[Server; 2]>,
    pgbouncer: Option<PathBuf>,
    /// Whether PostgreSQL can be made to report errors in German, as those that are started here.
    has_locale_de: bool,
}

impl Servers {
    /// Starts the servers; with `with_crash_servers`, also private ones to be killed by a test.
    pub(crate) fn start(
        arguments: &ServerArguments,
        plan: &Plan,
        with_crash_servers: bool,
    ) -> Result<Self> {
        let run_dir = &RunDir::create(arguments.durable)?;
        let open = |engine, role| move |it: &Source| it.open(engine, run_dir, role);
        let postgres = |role| open(Engine::Postgres, role);
        let mysql = |role| open(Engine::Mysql, role);
        let first = plan.postgres.as_ref();
        let others = plan.mysql.iter().map(mysql(ServerRole::Regular));
        let mut servers = Self {
            postgres: first.map(postgres(ServerRole::Regular)).transpose()?,
            mysql: others.collect::<Result<_>>()?,
            crash: None,
            pgbouncer: plan.pgbouncer.clone(),
            has_locale_de: !matches!(first, Some(Source::Url(_))),
        };
        let private = |it: &&Source| with_crash_servers && it.is_private();
        let second = plan.mysql.first().filter(private);
        if let (Some(first), Some(second)) = (first.filter(private), second) {
            let role = ServerRole::Crash;
            servers.crash = Some([postgres(role)(first)?, mysql(role)(second)?]);
        }
        if with_crash_servers && servers.crash.is_none() {
            println!(
                "xtask: not all of these servers may be killed, so {WITHOUT_CRASHES}=1: no test kills one"
            );
        }
        if !servers.has_locale_de {
            println!(
                "xtask: this PostgreSQL need not know German, so {WITHOUT_LOCALES}=1: the tests use English errors only"
            );
        }
        Ok(servers)
    }

    /// Sets the variables with the servers for the command; `mysql` is the number of the server of that kind.
    pub(crate) fn set_variables(&self, command: &mut Command, mysql: usize) {
        command.envs(self.postgres.iter().map(|it| (POSTGRES_URL, &it.url)));
        command.envs(self.mysql.get(mysql).map(|it| (MYSQL_URL, &it.url)));
        command.envs((!self.has_locale_de).then_some((WITHOUT_LOCALES, "1")));
        let pgbouncer = self.pgbouncer.iter();
        command.envs(pgbouncer.map(|it| (release::PGBOUNCER_VARIABLE, it)));
        // Tests of one process share them, one at a time.
        let Some(crash) = self.crash.as_ref().filter(|_| mysql == 0) else {
            command.env(WITHOUT_CRASHES, "1");
            return;
        };
        for (name, server) in ["PG", "MYSQL"].into_iter().zip(crash) {
            command.env(format!("{name}_CRASH_URL"), &server.url);
            let kill = server.kill.iter();
            command.envs(kill.map(|kill| (format!("{name}_CRASH_COMMAND"), kill)));
        }
    }
}
