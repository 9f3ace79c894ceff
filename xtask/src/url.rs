//! URLs of database servers, and the variables that name them.

use std::env;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use url::Url;

/// The variable that names the PostgreSQL server, to this program and to the tests.
pub(crate) const POSTGRES: &str = "PG_DATABASE_URL";
/// The variable that names the MySQL server; to the tests, whichever of MySQL and MariaDB they are to use.
pub(crate) const MYSQL: &str = "MYSQL_DATABASE_URL";
/// The variable that names a MariaDB server to this program.
pub(crate) const MARIADB: &str = "MARIADB_DATABASE_URL";
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
    let Ok(mut parsed) = Url::parse(url) else {
        return url.to_owned();
    };
    // A URL without a host has no password.
    let hidden = parsed.password().is_some() && parsed.set_password(Some("***")).is_ok();
    if hidden {
        parsed.into()
    } else {
        url.to_owned()
    }
}

/// Whether the URL names a host, and not the directory of a socket.
pub(crate) fn has_host(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()))
}

/// Connects to the server.
pub(crate) fn connect(url: &str, default_port: u16) -> Result<TcpStream> {
    let addresses = Url::parse(url)?.socket_addrs(|| Some(default_port))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.context("the URL names no address")?.into())
}

/// The name and version of a MySQL or MariaDB server. The first packet on a new connection has them and needs no login.
pub(crate) fn mysql_version(url: &str) -> Result<String> {
    let mut stream = connect(url, 3306)?;
    // Three bytes of length, one of sequence; then, in the first packet, one of protocol version, and the version in text.
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    header[3] = 0;
    let mut packet = vec![0; usize::try_from(u32::from_le_bytes(header))?];
    stream.read_exact(&mut packet)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match packet.split_first() {
        Some((10, rest)) => {
            let version = rest.split(|&byte| byte == 0).next();
            Ok(title(&text(version.unwrap_or_default())))
        }
        // The server refuses: an error's number, then its text.
        Some((255, rest)) => bail!("{}", text(rest.get(2..).unwrap_or_default())),
        _ => bail!("{} is not a MySQL server", without_password(url)),
    }
}

/// `MariaDB 10.11.19` for `5.5.5-10.11.19-MariaDB-0+deb12u1`, `MySQL 8.4.6` for `8.4.6-1`.
fn title(version: &str) -> String {
    // The `5.5.5-` is there for the sake of old replicas.
    let number = version.strip_prefix("5.5.5-").unwrap_or(version);
    let number = number.split('-').next().unwrap_or_default();
    let name = if version.contains("MariaDB") {
        "MariaDB"
    } else {
        "MySQL"
    };
    format!("{name} {number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = without_password("mysql://root:a@b@db:1/x");
        assert_eq!(shown, "mysql://root:***@db:1/x");
        let shown = without_password("mysql://root@db:1/x");
        assert_eq!(shown, "mysql://root@db:1/x");
    }

    #[test]
    fn hosts() {
        assert!(has_host("mysql://root:a:b@db/x?ssl=1"));
        assert!(has_host("postgres://[::1]:5433"));
        assert!(!has_host("postgres:///x?host=/run"));
        assert!(!has_host("nonsense"));
    }

    #[test]
    fn titles() {
        let mariadb = title("5.5.5-10.11.19-MariaDB-0+deb12u1");
        assert_eq!(mariadb, "MariaDB 10.11.19");
        assert_eq!(title("11.8.3-MariaDB-ubu2404"), "MariaDB 11.8.3");
        assert_eq!(title("9.4.0"), "MySQL 9.4.0");
    }
}
