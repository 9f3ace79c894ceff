//! The databases that diesel-locks works on.

use clap::ValueEnum;

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

impl Engine {
    /// All of them, in the order in which they are reported.
    pub(crate) const ALL: [Self; 3] = [Self::Postgres, Self::Mysql, Self::Sqlite];

    /// What the names of its integration tests begin with: their module.
    pub(crate) fn test_filter(self) -> &'static str {
        match self {
            Self::Postgres => "postgres::",
            Self::Mysql => "mysql::",
            Self::Sqlite => "sqlite::",
        }
    }
}
