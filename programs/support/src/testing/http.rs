//! A small HTTP client: it can hang up, and does nothing that is not in the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// An answer that was received.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    head: String,
    /// Its body.
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that this is a problem with this status.
    pub fn assert_problem(&self, status: u16, detail: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let kind = self.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{self:?}");
        assert!(problem["title"].is_string(), "{self:?}");
        let told = problem["detail"].as_str().expect("a text");
        assert!(told.contains(detail), "{detail} in {self:?}");
    }
}

/// A request that was sent. Dropping it hangs up.
pub struct Sent(TcpStream);

impl Sent {
    /// Waits for the answer.
    pub fn answer(self) -> Answer {
        let mut answer = BufReader::new(self.0);
        let mut head = String::new();
        while answer.read_line(&mut head).expect("an answer") > 2 {}
        // Not every server closes the connection.
        let length = header(&head, "content-length").and_then(|length| length.parse().ok());
        let mut body = String::new();
        let mut rest = answer.take(length.unwrap_or(u64::MAX));
        rest.read_to_string(&mut body).expect("a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {head}"));
        Answer { status, head, body }
    }
}

/// The value of a header.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(line, _)| line.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

/// Sends a request.
pub fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Sent {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let limited = stream.set_read_timeout(Some(PATIENCE));
    limited.expect("a time-out");
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.extend([name, ": ", value, "\r\n"]);
    }
    request.extend(["\r\n", body]);
    let written = stream.write_all(request.as_bytes());
    written.expect("the server reads");
    Sent(stream)
}

/// Gets a path.
pub fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, "GET", path, &[], "").answer()
}

/// Sends JSON, with more headers.
pub fn send_json(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> Sent {
    let headers = [&[("Content-Type", "application/json")], headers].concat();
    send(address, "POST", path, &headers, body)
}
