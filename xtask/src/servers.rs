//! The servers of a run: named by a URL, private ones, or Docker containers.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::engine::Engine;
use crate::guard::Guard;
use crate::purpose::Purpose;
use crate::release::Release;
use crate::workplace::Workplace;
use crate::{ServerArguments, docker, mysql, postgres, setup};

/// The variable that names the PostgreSQL server, to this program and to the tests.
pub(crate) const POSTGRES_URL: &str = "PG_DATABASE_URL";
/// The variable that names the MySQL server; to the tests, whichever of MySQL and MariaDB they are to use.
pub(crate) const MYSQL_URL: &str = "MYSQL_DATABASE_URL";
/// The variable that names a MariaDB server to this program.
pub(crate) const MARIADB_URL: &str = "MARIADB_DATABASE_URL";
/// The variable that tells the tests that PostgreSQL may not know German.
const WITHOUT_LOCALES: &str = "DIESEL_LOCKS_TEST_WITHOUT_LOCALES";

/// The variable that tells the tests that there is no server to be killed.
const WITHOUT_CRASHES: &str = "DIESEL_LOCKS_TEST_WITHOUT_CRASHES";

/// Where a server comes from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Somebody runs it already; this is the variable with its URL.
    Url(&'static str),
    /// Started here, from the machine's programs.
    Private,
    /// The same, from programs of this version.
    Release(Release),
    /// Started here, in a container of this image.
    Docker(&'static str),
}

impl Source {
    /// Whether it may be killed, and others like it be started.
    fn is_private(&self) -> bool {
        matches!(self, Self::Private | Self::Release(_))
    }
}

/// Where the servers of a run come from.
pub(crate) struct Plan {
    pub(crate) postgres: Option<Source>,
    /// Tests run once for each. The first is the one for everything; MariaDB, if both kinds are there.
    pub(crate) mysql: Vec<Source>,
    /// Whether a clock is to be set.
    pub(crate) faketime: bool,
}

impl Plan {
    /// What was asked for, whether or not the machine has it.
    pub(crate) fn wanted(arguments: &ServerArguments) -> Self {
        let mut mysql = Vec::new();
        if arguments.wants(Engine::Mysql) {
            // A URL of a MySQL does not replace MariaDB, unless nothing is to be started.
            if let Some(release) = arguments.release(Engine::Mysql, false) {
                mysql.push(Source::Release(release));
            } else if url(MARIADB_URL).is_some() {
                mysql.push(Source::Url(MARIADB_URL));
            } else if !arguments.external {
                mysql.push(Source::Private);
            }
            if let Some(release) = arguments.release(Engine::Mysql, true) {
                mysql.push(Source::Release(release));
            } else if url(MYSQL_URL).is_some() || mysql.is_empty() {
                mysql.push(Source::Url(MYSQL_URL));
            }
        }
        let given = url(POSTGRES_URL).is_some() || arguments.external;
        let postgres = if let Some(release) = arguments.release(Engine::Postgres, false) {
            Source::Release(release)
        } else if given {
            Source::Url(POSTGRES_URL)
        } else {
            Source::Private
        };
        Self {
            postgres: arguments.wants(Engine::Postgres).then_some(postgres),
            mysql,
            faketime: false,
        }
    }

    /// The same for a command that can be told of one server of each kind only: what was named replaces the private
    /// server.
    pub(crate) fn wanted_once(arguments: &ServerArguments) -> Self {
        let mut plan = Self::wanted(arguments);
        if let Some(given) = plan
            .mysql
            .iter()
            .rposition(|source| *source != Source::Private)
        {
            plan.mysql = vec![plan.mysql.swap_remove(given)];
        }
        plan
    }
}

/// The value of a variable with a URL; empty is the same as not set.
pub(crate) fn url(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|url| !url.is_empty())
}

/// A running server.
pub(crate) struct Server {
    /// Name and version.
    pub(crate) title: String,
    /// Where it comes from.
    pub(crate) origin: String,
    pub(crate) url: String,
    /// Whether it can be made to report errors in German.
    pub(crate) german: bool,
    /// A program that kills it.
    pub(crate) kill: Option<PathBuf>,
}

/// The servers of a run; dropping it stops them.
pub(crate) struct Servers {
    pub(crate) postgres: Option<Server>,
    pub(crate) mysql: Vec<Server>,
    /// PostgreSQL and MySQL, to be killed by a test.
    crash: Option<[Server; 2]>,
    _guard: Guard,
}

impl Servers {
    /// Starts the servers; with `crash_wanted`, also private ones to be killed by a test.
    pub(crate) fn start(
        arguments: &ServerArguments,
        plan: &Plan,
        crash_wanted: bool,
    ) -> Result<Self> {
        let mut guard = Guard::start()?;
        let durable = arguments.durable;
        let workplace = Workplace::create(durable)?;
        let postgres = match &plan.postgres {
            Some(Source::Url(variable)) => Some(postgres::external(
                &setup::required_url(variable)?,
                variable,
            )?),
            Some(Source::Docker(image)) => Some(docker::start_postgres(image, durable)?),
            Some(private) => Some(start_postgres(
                private,
                &workplace,
                &mut guard,
                Purpose::Use,
            )?),
            None => None,
        };
        let mut mysql = Vec::new();
        for source in &plan.mysql {
            mysql.push(match source {
                Source::Url(variable) => {
                    mysql::external(&setup::required_url(variable)?, variable)?
                }
                Source::Docker(image) => docker::start_mysql(image, durable)?,
                private => start_mysql(private, &workplace, &mut guard, Purpose::Use)?,
            });
        }
        let crash = match (&plan.postgres, plan.mysql.first()) {
            (Some(postgres), Some(mysql))
                if crash_wanted && postgres.is_private() && mysql.is_private() =>
            {
                Some([
                    start_postgres(postgres, &workplace, &mut guard, Purpose::Crash)?,
                    start_mysql(mysql, &workplace, &mut guard, Purpose::Crash)?,
                ])
            }
            _ => None,
        };
        let servers = Self {
            postgres,
            mysql,
            crash,
            _guard: guard,
        };
        for server in servers.all() {
            println!(
                "xtask: {} ({}) at {}",
                server.title,
                server.origin,
                without_password(&server.url)
            );
        }
        if crash_wanted && servers.crash.is_none() {
            println!(
                "xtask: not all of these servers may be killed, so {WITHOUT_CRASHES}=1: no test kills one"
            );
        }
        if servers
            .postgres
            .as_ref()
            .is_some_and(|server| !server.german)
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

    /// Tells the command which servers to use; `mysql` is the number of the one of that kind.
    pub(crate) fn name_to(&self, command: &mut Command, mysql: usize) {
        if let Some(server) = &self.postgres {
            command.env(POSTGRES_URL, &server.url);
            if server.german {
                command.env_remove(WITHOUT_LOCALES);
            } else {
                command.env(WITHOUT_LOCALES, "1");
            }
        }
        if let Some(server) = self.mysql.get(mysql) {
            command.env(MYSQL_URL, &server.url);
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
    workplace: &Workplace,
    guard: &mut Guard,
    purpose: Purpose,
) -> Result<Server> {
    let Source::Release(release) = source else {
        return postgres::start(workplace, guard, purpose);
    };
    let programs = release.postgres_directory();
    let server = postgres::start_program(&programs, workplace, guard, purpose)?;
    Ok(Server {
        origin: release.origin(),
        ..server
    })
}

/// A private MariaDB or MySQL.
fn start_mysql(
    source: &Source,
    workplace: &Workplace,
    guard: &mut Guard,
    purpose: Purpose,
) -> Result<Server> {
    let Source::Release(release) = source else {
        return mysql::start(workplace, guard, purpose);
    };
    let server = mysql::start_program(&release.mysql_server(), workplace, guard, purpose)?;
    Ok(Server {
        origin: release.origin(),
        ..server
    })
}

/// The URL as it may be shown.
pub(crate) fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let (user, place) = rest.rsplit_once('@')?;
        let (user, _) = user.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{place}"))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(
            without_password("mysql://root:a@b@db:1/x"),
            "mysql://root:***@db:1/x"
        );
        assert_eq!(
            without_password("mysql://root@db:1/x"),
            "mysql://root@db:1/x"
        );
    }
}
