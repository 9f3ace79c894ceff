//! The database of a URL, and connections to it.
#![allow(missing_docs, reason = "of what Diesel derives")]

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
#[cfg(feature = "mysql")]
use diesel::MysqlConnection;
#[cfg(feature = "postgres")]
use diesel::PgConnection;
#[cfg(feature = "postgres")]
use diesel::connection::CacheSize;
use diesel::connection::{Connection, SimpleConnection};
use diesel::{ConnectionError, SqliteConnection};
use diesel_locks::operation::sqlite::prepare;
use diesel_locks::{ConnectionWrapper, Error, InnerConnection};

use crate::failure::Failure;

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Postgres,
    /// MySQL or MariaDB.
    #[value(alias = "mariadb")]
    Mysql,
    Sqlite,
}

/// A database, with a URL that Diesel accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) url: String,
}

impl Database {
    /// Errors do not repeat the URL, which may have a password.
    pub(crate) fn from_url(url: Option<&str>) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        let Some(url) = url.filter(|url| !url.is_empty()) else {
            return usage("no database: pass --database-url, or set DATABASE_URL".to_owned());
        };
        if is_key_and_value(url) {
            let text = "a database URL is needed, such as postgres://user@host/database, not keys and values (for a file begin \
                        with ./)";
            return usage(text.to_owned());
        }
        let (engine, url) = match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) => (Engine::Postgres, url.to_owned()),
            Some(("mysql" | "mariadb", rest)) => (Engine::Mysql, format!("mysql://{rest}")),
            Some(("sqlite", path)) => (Engine::Sqlite, path.to_owned()),
            Some((scheme, _)) => {
                return usage(format!(
                    "a database URL begins with postgres://, mysql://, mariadb:// or sqlite://, not {scheme:?}"
                ));
            }
            None => (
                Engine::Sqlite,
                url.strip_prefix("sqlite:").unwrap_or(url).to_owned(),
            ),
        };
        match engine {
            Engine::Postgres if !cfg!(feature = "postgres") => usage(
                "this program was built without PostgreSQL: build it with --features postgres"
                    .to_owned(),
            ),
            Engine::Mysql if !cfg!(feature = "mysql") => usage(
                "this program was built without MySQL and MariaDB: build it with --features mysql"
                    .to_owned(),
            ),
            Engine::Postgres if !is_encoded(&url) => usage(
                "the database URL has a character that must be encoded: in a user or password @ as %40, / as %2F, a space as \
                 %20; everywhere % as %25"
                    .to_owned(),
            ),
            Engine::Sqlite if url.is_empty() || url.contains(":memory:") => {
                usage("an SQLite database in memory is that of one process: name a file".to_owned())
            }
            engine => Ok(Self { engine, url }),
        }
    }

    /// Connects to a database that exists.
    pub(crate) fn open(&self) -> Result<AnyConnection, Failure> {
        // SQLite would create the file of a misspelt path.
        if self.engine == Engine::Sqlite && !file_exists(&self.url) {
            return Err(Failure::Connection(ConnectionError::BadConnection(
                format!(
                    "there is no SQLite file {:?}; `diesel-locks migrate` creates it",
                    self.url
                ),
            )));
        }
        let mut conn = self.connect()?;
        if self.engine == Engine::Sqlite {
            conn.set_up()?;
        }
        Ok(conn)
    }

    /// The database in words, without the password, or anything else that may be secret.
    pub(crate) fn name(&self) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return self.url.clone();
        };
        let (place, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        // What is before '@' may be a password, and so may what is after '?'.
        let place = match place.rsplit_once('@') {
            _ if query.contains('@') => "..",
            Some((_, place)) => place,
            None => place,
        };
        format!("{scheme}://{place}")
    }

    /// Connects to a database for its tables: creates an SQLite file.
    pub(crate) fn open_or_create(&self) -> Result<AnyConnection, Failure> {
        let mut conn = self.connect()?;
        match &mut conn {
            AnyConnection::Sqlite(conn) => {
                prepare(conn).map_err(|error| Failure::Locks(error.into()))?;
            }
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            _ => {}
        }
        Ok(conn)
    }

    fn connect(&self) -> Result<AnyConnection, Failure> {
        let url = self.url.as_str();
        Ok(match self.engine {
            #[cfg(feature = "postgres")]
            Engine::Postgres => {
                let mut conn = PgConnection::establish(url)?;
                without_cache(&mut conn);
                AnyConnection::Postgres(conn)
            }
            #[cfg(feature = "mysql")]
            Engine::Mysql => AnyConnection::Mysql(MysqlConnection::establish(url)?),
            Engine::Sqlite => AnyConnection::Sqlite(SqliteConnection::establish(url)?),
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            _ => unreachable!("from_url has refused it"),
        })
    }
}

/// Whether it is a connection string of another kind, such as libpq's.
fn is_key_and_value(text: &str) -> bool {
    let is_in_key = |c: char| c.is_ascii_alphabetic() || "_ ".contains(c);
    text.split_once('=')
        .is_some_and(|(key, _)| key.chars().all(is_in_key))
}

/// Otherwise libpq takes a part of the password for something else, and repeats it in its error. Diesel reads the URLs of MySQL.
fn is_encoded(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let path = rest.find('/').unwrap_or(rest.len());
    let parameters = rest[path..].find('?').map_or(rest.len(), |it| path + it);
    let is_reserved = |c: char| "@/".contains(c) || c.is_whitespace();
    let is_hex = |it: &str| it != "00" && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    rest[..parameters]
        .rsplit_once('@')
        .is_none_or(|(user, _)| !user.contains(is_reserved))
        && url
            .split('%')
            .skip(1)
            .all(|it| it.get(..2).is_some_and(is_hex))
}

fn file_exists(url: &str) -> bool {
    let Some(uri) = url.strip_prefix("file:") else {
        return Path::new(url).exists();
    };
    let path = uri.split(['?', '#']).next().unwrap_or(uri);
    if path.contains('%') {
        // SQLite decodes it.
        SqliteConnection::establish(&format!("file:{path}?mode=ro")).is_ok()
    } else {
        Path::new(path).exists()
    }
}

/// Old versions of PgBouncer mix up the prepared statements of sessions.
#[cfg(feature = "postgres")]
pub(crate) fn without_cache(conn: &mut PgConnection) {
    conn.set_prepared_statement_cache_size(CacheSize::Disabled);
}

/// How long a table is waited for that another session has locked.
pub(crate) const LOCKED_TABLE: Duration = Duration::from_secs(5);
const LONGEST_LIMIT: Duration = Duration::from_secs(86_400);

/// A connection to a [`Database`].
#[derive(diesel::MultiConnection)]
pub(crate) enum AnyConnection {
    #[cfg(feature = "postgres")]
    Postgres(PgConnection),
    #[cfg(feature = "mysql")]
    Mysql(MysqlConnection),
    Sqlite(SqliteConnection),
}

impl AnyConnection {
    /// For readings, one after the other.
    pub(crate) fn set_up(&mut self) -> Result<(), Error> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(conn) => without_cache(conn),
            // Where a server sets it to 0, all readings would see what the first one saw.
            #[cfg(feature = "mysql")]
            Self::Mysql(conn) => conn.batch_execute("SET autocommit = 1")?,
            // Not WAL mode, which is stored in the file: to look at a database does not change it.
            Self::Sqlite(conn) => conn.batch_execute("PRAGMA busy_timeout = 5000")?,
        }
        Ok(())
    }

    /// Executes statements that wait at most this long for a table that another session has locked. A wait for the file of SQLite
    /// has its own limit.
    pub(crate) fn within<T, E: From<diesel::result::Error>>(
        &mut self,
        limit: Duration,
        execute: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        // The server takes 0 for no limit, and refuses what is very long.
        let limit = limit.clamp(Duration::from_secs(1), LONGEST_LIMIT);
        match self.engine() {
            // In a transaction: through a pooler, the setting of a session would be that of others.
            Engine::Postgres => self.transaction(|conn| {
                let limit = limit.as_millis();
                conn.batch_execute(&format!("SET LOCAL lock_timeout = {limit}"))?;
                execute(conn)
            }),
            Engine::Mysql => {
                let limit = limit.as_secs();
                self.batch_execute(&format!("SET lock_wait_timeout = {limit}"))?;
                execute(self)
            }
            Engine::Sqlite => execute(self),
        }
    }

    pub(crate) fn engine(&self) -> Engine {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Engine::Postgres,
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => Engine::Mysql,
            Self::Sqlite(_) => Engine::Sqlite,
        }
    }
}

impl ConnectionWrapper for AnyConnection {
    fn inner_connection(&mut self) -> InnerConnection<'_> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(conn) => conn.into(),
            #[cfg(feature = "mysql")]
            Self::Mysql(conn) => conn.into(),
            Self::Sqlite(conn) => conn.into(),
        }
    }
}

#[cfg(all(test, feature = "postgres", feature = "mysql"))]
mod tests {
    use super::{Database, Engine};

    #[test]
    fn urls_name_engines() {
        for (url, engine, kept) in [
            ("postgres://h/d", Engine::Postgres, "postgres://h/d"),
            ("postgresql://h/d", Engine::Postgres, "postgresql://h/d"),
            ("mysql://h/d", Engine::Mysql, "mysql://h/d"),
            ("mariadb://h/d", Engine::Mysql, "mysql://h/d"),
            ("sqlite:///a/b", Engine::Sqlite, "/a/b"),
            ("sqlite:b", Engine::Sqlite, "b"),
            ("b.sqlite", Engine::Sqlite, "b.sqlite"),
            ("./a=b", Engine::Sqlite, "./a=b"),
            ("file:a?mode=ro", Engine::Sqlite, "file:a?mode=ro"),
        ] {
            let url = url.to_owned();
            let expected = Database {
                engine,
                url: kept.to_owned(),
            };
            assert_eq!(Database::from_url(Some(&url)).expect("a URL"), expected);
        }
        let url = "mariadb://u:se@cret@h:3306/d?password=secret";
        let database = Database::from_url(Some(url)).expect("a URL");
        assert_eq!(database.name(), "mysql://h:3306/d");
        for url in [
            "postgres://h/d?user=u&password=se@cret",
            "mysql://u:se?c@ret@h/d",
            "mysql://u:se/cret@h/d",
        ] {
            let name = Database::from_url(Some(url)).expect("a URL").name();
            assert!(!name.contains("ret") && !name.contains("se"), "{name}");
        }
        for url in [
            None,
            Some(""),
            Some("oracle://secret@x"),
            Some(":memory:"),
            Some("postgres://u:secret%zz@h/d"),
            Some("postgres://u:secret%@h/d"),
            Some("postgres://u:secret%00@h/d"),
            Some("postgres://u:a@secret@h/d"),
            Some("postgres://u:secret/a@h/d"),
            Some("postgres://u:a secret@h/d"),
            Some("host=h password=secret dbname=d"),
            Some("password = secret"),
        ] {
            let error = Database::from_url(url).expect_err("no URL");
            assert_eq!(error.code(), 2);
            assert!(!error.line().contains("secret"), "{error}");
        }
    }
}
