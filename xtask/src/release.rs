//! Servers of other versions than the machine's.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use crate::engine::Engine;
use crate::path_lookup::MysqlServer;
use crate::unpacked::Unpacked;

/// A version of a server.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Release {
    #[value(name = "mariadb-11.8")]
    Mariadb11,
    #[value(name = "mysql-9")]
    Mysql9,
    #[value(name = "postgres-17")]
    Postgres17,
    #[value(name = "postgres-18")]
    Postgres18,
}

impl Release {
    pub(crate) fn engine(self) -> Engine {
        match self {
            Self::Mariadb11 | Self::Mysql9 => Engine::Mysql,
            Self::Postgres17 | Self::Postgres18 => Engine::Postgres,
        }
    }

    /// MySQL is tested beside MariaDB, not in its place.
    pub(crate) fn is_mysql(self) -> bool {
        self == Self::Mysql9
    }

    /// The image to use where there are no packages.
    pub(crate) fn image(self) -> &'static str {
        match self {
            Self::Mariadb11 => "mariadb:11.8",
            Self::Mysql9 => "mysql:9",
            Self::Postgres17 => "postgres:17",
            Self::Postgres18 => "postgres:18",
        }
    }

    /// Where a server of this version is said to come from.
    pub(crate) fn origin(self) -> String {
        format!("private, of Debian's {}", self.unpacked().suite)
    }

    /// The directory of PostgreSQL's programs.
    pub(crate) fn postgres_directory(self) -> PathBuf {
        self.unpacked().bin()
    }

    /// A MariaDB or MySQL.
    pub(crate) fn mysql_server(self) -> MysqlServer {
        let directory = self.unpacked().directory();
        let base = Some(directory.join("usr"));
        if self.is_mysql() {
            let server = directory.join("usr/sbin/mysqld");
            return MysqlServer::Mysql { server, base };
        }
        MysqlServer::MariaDb {
            server: directory.join("usr/sbin/mariadbd"),
            install: directory.join("usr/bin/mariadb-install-db"),
            base,
        }
    }

    /// The directory of its files that are not programs.
    pub(crate) fn share(self) -> PathBuf {
        self.unpacked().directory().join("usr/share")
    }

    /// Whether packages of it are available.
    pub(crate) fn is_available(self) -> bool {
        self.unpacked().is_available()
    }

    /// Downloads and unpacks it, if that was not done before.
    pub(crate) fn fetch(self) -> Result<()> {
        self.unpacked().fetch()
    }

    pub(crate) fn unpacked(self) -> Unpacked {
        match self {
            Self::Mariadb11 => Unpacked {
                name: "mariadb-11.8",
                suite: "trixie",
                packages: &["mariadb-server-core", "mariadb-client-core"],
                bin: "usr/sbin",
                programs: &["mariadbd", "../bin/my_print_defaults", "../bin/resolveip"],
            },
            Self::Mysql9 => Unpacked {
                name: "mysql-9",
                suite: "sid",
                packages: &["mysql-server-core"],
                bin: "usr/sbin",
                programs: &["mysqld"],
            },
            Self::Postgres17 => Unpacked {
                name: "postgres-17",
                suite: "trixie",
                packages: &["postgresql-17"],
                bin: "usr/lib/postgresql/17/bin",
                programs: POSTGRES_PROGRAMS,
            },
            Self::Postgres18 => Unpacked {
                name: "postgres-18",
                suite: "sid",
                packages: &["postgresql-18"],
                bin: "usr/lib/postgresql/18/bin",
                programs: POSTGRES_PROGRAMS,
            },
        }
    }
}

const POSTGRES_PROGRAMS: &[&str] = &["initdb", "postgres", "psql"];
