//! What a MySQL server says first on a new connection: it tells the version, before anybody has logged in.

use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

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
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
    Err(error).with_context(|| format!("nobody answers at {host}:{port}"))
}

/// The name and version of the MySQL or MariaDB server at `address`.
pub(crate) fn mysql_version(address: &(String, u16)) -> Result<String> {
    let mut stream = connect(address)?;
    // Three bytes of length, one of sequence; then, in the first packet, one of protocol version, and the version in text.
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let length =
        usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
    let mut packet = vec![0; length];
    stream.read_exact(&mut packet)?;
    match packet.split_first() {
        Some((10, rest)) => Ok(title(&String::from_utf8_lossy(
            rest.split(|&byte| byte == 0).next().unwrap_or_default(),
        ))),
        // The server refuses: an error's number, then its text.
        Some((255, rest)) => bail!(
            "{}",
            String::from_utf8_lossy(rest.get(2..).unwrap_or_default())
        ),
        _ => bail!("{}:{} is not a MySQL server", address.0, address.1),
    }
}

/// `MariaDB 10.11.19` for `5.5.5-10.11.19-MariaDB-0+deb12u1`, `MySQL 8.4.6` for `8.4.6-1`.
fn title(version: &str) -> String {
    let number = |text: &str| text.split('-').next().unwrap_or_default().to_owned();
    if version.contains("MariaDB") {
        // The `5.5.5-` is there for the sake of old replicas.
        format!(
            "MariaDB {}",
            number(version.strip_prefix("5.5.5-").unwrap_or(version))
        )
    } else {
        format!("MySQL {}", number(version))
    }
}

#[cfg(test)]
mod tests {
    use super::{address, title};

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

    #[test]
    fn titles() {
        assert_eq!(
            title("5.5.5-10.11.19-MariaDB-0+deb12u1"),
            "MariaDB 10.11.19"
        );
        assert_eq!(title("11.8.3-MariaDB-ubu2404"), "MariaDB 11.8.3");
        assert_eq!(title("9.4.0"), "MySQL 9.4.0");
    }
}
