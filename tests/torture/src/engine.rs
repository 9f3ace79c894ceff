//! Which database a URL means, and the connection type for it.

use serde::{Deserialize, Serialize};

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Engine {
    Postgres,
    Mysql,
    Sqlite,
}

impl Engine {
    /// Of a URL: what has no scheme is the path of an SQLite file.
    pub(crate) fn of(url: &str) -> Self {
        match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Self::Postgres,
            Some(("mysql", _)) => Self::Mysql,
            _ => Self::Sqlite,
        }
    }
}

/// Evaluates an expression with the connection type of an engine.
macro_rules! with_connection {
    ($engine:expr, $connection:ident => $value:expr) => {
        match $engine {
            $crate::engine::Engine::Postgres => {
                type $connection = diesel::PgConnection;
                $value
            }
            $crate::engine::Engine::Mysql => {
                type $connection = diesel::MysqlConnection;
                $value
            }
            $crate::engine::Engine::Sqlite => {
                type $connection = diesel::SqliteConnection;
                $value
            }
        }
    };
}
pub(crate) use with_connection;
