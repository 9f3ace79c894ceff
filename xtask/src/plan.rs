//! Where the servers of a run come from: a URL, programs of this machine, packages, or Docker.

use std::path::PathBuf;

use crate::arguments::ServerArguments;
use crate::database_url::{self, MARIADB_URL, MYSQL_URL, POSTGRES_URL};
use crate::engine::Engine;
use crate::release::Release;

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
    Docker(&'static str),
}

impl Source {
    /// Whether it may be killed, and others like it be started.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self, Self::Private | Self::Release(_))
    }
}

/// Where the servers of a run come from.
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
        let mut mysql = Vec::new();
        if arguments.includes(Engine::Mysql) {
            // A URL of a MySQL does not replace MariaDB, unless nothing is to be started.
            if let Some(release) = arguments.release(Engine::Mysql, false) {
                mysql.push(Source::Release(release));
            } else if database_url::from_variable(MARIADB_URL).is_some() {
                mysql.push(Source::Url(MARIADB_URL));
            } else if !arguments.external {
                mysql.push(Source::Private);
            }
            if let Some(release) = arguments.release(Engine::Mysql, true) {
                mysql.push(Source::Release(release));
            } else if database_url::from_variable(MYSQL_URL).is_some() || mysql.is_empty() {
                mysql.push(Source::Url(MYSQL_URL));
            }
        }
        let given = database_url::from_variable(POSTGRES_URL).is_some() || arguments.external;
        let postgres = if let Some(release) = arguments.release(Engine::Postgres, false) {
            Source::Release(release)
        } else if given {
            Source::Url(POSTGRES_URL)
        } else {
            Source::Private
        };
        Self {
            postgres: arguments.includes(Engine::Postgres).then_some(postgres),
            mysql,
            pgbouncer: None,
            faketime: false,
            // Tests of one engine are those of the library.
            browser: arguments.only.is_empty(),
        }
    }

    /// The servers for a command that can use one of each kind only: a server that is named replaces the private one.
    pub(crate) fn requested_single(arguments: &ServerArguments) -> Self {
        let mut plan = Self::requested(arguments);
        plan.browser = false;
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
