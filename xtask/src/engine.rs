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

    /// Parts of the names of its integration tests: their module, and those of the schemas.
    pub(crate) fn test_filters(self) -> [&'static str; 2] {
        match self {
            Self::Postgres => ["postgres::", "schema::postgres_"],
            Self::Mysql => ["mysql::", "schema::mysql_"],
            Self::Sqlite => ["sqlite::", "schema::sqlite_"],
        }
    }
}
