//! URLs of database servers: the variables that name them, and the addresses in them.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use std::{env, io};

use anyhow::{Context, Result};

/// The variable that names the PostgreSQL server, to this program and to the tests.
pub(crate) const POSTGRES_URL: &str = "PG_DATABASE_URL";
/// The variable that names the MySQL server; to the tests, whichever of MySQL and MariaDB they are to use.
pub(crate) const MYSQL_URL: &str = "MYSQL_DATABASE_URL";
/// The variable that names a MariaDB server to this program.
pub(crate) const MARIADB_URL: &str = "MARIADB_DATABASE_URL";
/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The value of a variable with a URL; empty is the same as not set.
pub(crate) fn from_variable(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|url| !url.is_empty())
}

/// The URL that this variable has to have.
pub(crate) fn required(variable: &str) -> Result<String> {
    from_variable(variable)
        .with_context(|| format!("with --external, {variable} must name a server"))
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

/// Host and port of a database URL.
pub(crate) fn address(url: &str, default_port: u16) -> Option<(String, u16)> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let place = authority
        .rsplit_once('@')
        .map_or(authority, |(_, place)| place);
    let (host, port) = match place.rsplit_once(':') {
        // An IPv6 address has colons of its own, within brackets.
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (place, default_port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Connects.
pub(crate) fn connect((host, port): &(String, u16)) -> Result<TcpStream> {
    let mut last = None;
    for address in (host.as_str(), *port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
    Err(error).with_context(|| format!("nobody answers at {host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::{address, without_password};

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

    #[test]
    fn addresses() {
        let found = |url| address(url, 3306);
        assert_eq!(
            found("mysql://root@127.0.0.1:33091/mysql"),
            Some(("127.0.0.1".into(), 33091))
        );
        assert_eq!(
            found("mysql://root:a:b@db/x?ssl=1"),
            Some(("db".into(), 3306))
        );
        assert_eq!(found("mysql://[::1]/x"), Some(("::1".into(), 3306)));
        assert_eq!(found("postgres://[::1]:5433"), Some(("::1".into(), 5433)));
        assert_eq!(found("postgres:///x?host=/run"), None);
        assert_eq!(found("nonsense"), None);
    }
}
