//! What the tests require of the machine, and what of it is missing.

use std::fs;
use std::process::Command;

use crate::run::{self, words};
use crate::servers::{Plan, Source};
use crate::{postgres, programs};

/// Something that the tests require of the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    PostgresServer,
    MariadbServer,
    /// What a German locale is made of, for the private PostgreSQL.
    Locales,
    /// PostgreSQL's messages in German, which small container images leave out.
    German,
    /// Tests of PostgreSQL go through it, wherever the server is.
    PgBouncer,
    PostgresClient,
    MysqlClient,
    PkgConfig,
    /// What sets a server's clock; without it none is set.
    Faketime,
    /// The tests of the program `web` open its page in it.
    Browser,
}

impl Requirement {
    /// A description for messages, and the Debian packages that it is in.
    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Self::PostgresServer => ("a PostgreSQL server (initdb, postgres, psql)", "postgresql"),
            // Without `-core` it would make and start the machine's own server.
            Self::MariadbServer => (
                "a MariaDB or MySQL server (mariadbd and mariadb-install-db, or mysqld)",
                "mariadb-server-core mariadb-client-core",
            ),
            Self::Locales => (
                "what a German locale is made of (localedef, /usr/share/i18n)",
                "locales",
            ),
            Self::German if ubuntu() => ("PostgreSQL's messages in German", "language-pack-de"),
            // In a package that is there already, or in that of the server; see install.sh.
            Self::German => ("PostgreSQL's messages in German", ""),
            Self::PgBouncer => ("PgBouncer, a pooler (pgbouncer)", "pgbouncer"),
            Self::PostgresClient => ("PostgreSQL's client library (libpq)", "libpq-dev"),
            Self::MysqlClient => (
                "MySQL's or MariaDB's client library (libmysqlclient or libmariadb)",
                "libmariadb-dev",
            ),
            Self::PkgConfig => ("pkg-config", "pkg-config"),
            Self::Faketime => (
                "a library that sets a program's clock (libfaketime)",
                "libfaketime",
            ),
            // Ubuntu's packages of that name install a snap, which containers can't run.
            Self::Browser if ubuntu() => ("Chromium and its WebDriver", ""),
            Self::Browser => (
                "Chromium and its WebDriver (chromium, chromedriver)",
                "chromium chromium-driver",
            ),
        }
    }

    pub(crate) fn description(self) -> &'static str {
        self.facts().0
    }

    pub(crate) fn packages(self) -> impl Iterator<Item = &'static str> {
        words(self.facts().1)
    }

    /// Whether it is needed to build the tests, so that no server elsewhere makes up for it.
    pub(crate) fn is_for_build(self) -> bool {
        matches!(
            self,
            Self::PostgresClient | Self::MysqlClient | Self::PkgConfig
        )
    }

    /// Whether it is needed for a private PostgreSQL.
    pub(crate) fn is_for_postgres(self) -> bool {
        matches!(self, Self::PostgresServer | Self::Locales | Self::German)
    }
}

/// What pkg-config calls MySQL's and MariaDB's client libraries.
pub(crate) const MYSQL_LIBRARIES: [&str; 3] = ["mysqlclient", "libmariadb", "mariadb"];

/// What is missing for a run with these servers.
pub(crate) fn missing(plan: &Plan) -> Vec<Requirement> {
    let mut missing = Vec::new();
    let mut require = |requirement, met: bool| {
        if !met {
            missing.push(requirement);
        }
    };
    if matches!(plan.postgres, Some(Source::Private | Source::Release(_))) {
        require(Requirement::Locales, postgres::can_create_locale());
    }
    if plan.postgres == Some(Source::Private) {
        let server = programs::postgres().ok();
        require(Requirement::PostgresServer, server.is_some());
        // Unknown before there is a server, whose version they have to match.
        let german = server.is_none_or(|it| postgres::has_german_messages(&it));
        require(Requirement::German, german);
    }
    if plan.postgres.is_some() {
        require(
            Requirement::PgBouncer,
            programs::find("pgbouncer").is_some(),
        );
    }
    if plan.mysql.contains(&Source::Private) {
        require(Requirement::MariadbServer, programs::mysql().is_ok());
    }
    if plan.faketime {
        require(Requirement::Faketime, programs::faketime().is_some());
    }
    if plan.browser {
        require(Requirement::Browser, programs::has_browser());
    }
    let pkg_config = programs::find("pkg-config").is_some();
    let answers = |program: &str, arguments: &[&str]| {
        run::output(Command::new(program).args(arguments)).is_ok()
    };
    let library = |name: &&str| pkg_config && answers("pkg-config", &["--exists", name]);
    let postgres = library(&"libpq") || answers("pg_config", &["--libdir"]);
    let mysql = MYSQL_LIBRARIES.iter().any(library) || answers("mysql_config", &["--libs"]);
    require(Requirement::PkgConfig, pkg_config || (postgres && mysql));
    require(Requirement::PostgresClient, postgres);
    require(Requirement::MysqlClient, mysql);
    missing
}

/// Whether this is Ubuntu, which has packages of its own for translations.
fn ubuntu() -> bool {
    fs::read_to_string("/etc/os-release")
        .is_ok_and(|text| text.lines().any(|line| line == "ID=ubuntu"))
}
