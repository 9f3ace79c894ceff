//! The first packet that a MySQL server sends on a new connection: it has the version and needs no login.

use std::io::Read;

use anyhow::{Result, bail};

use crate::database_url::connect;

/// The name and version of the MySQL or MariaDB server at `address`.
pub(crate) fn version(address: &(String, u16)) -> Result<String> {
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
    use super::title;

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
