//! Requests to programs on this machine, without an HTTP client's dependencies.

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer: the status and the body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a request on a connection of its own, and reads the answer.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<Answer> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(Duration::from_secs(60)))?;
    let length = body.len();
    write!(
        connection,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = BufReader::new(connection);
    let mut head = String::new();
    while answer.read_line(&mut head)? > 2 {}
    // The driver keeps the connection open.
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    let mut body = Vec::new();
    answer.take(length.unwrap_or(0)).read_to_end(&mut body)?;
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
    Ok(Answer {
        status: status.unwrap_or_default(),
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}
