//! The end of the service.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::{Connection, SqliteConnection};
use program_test_support::processes::signal;
use rustix::process::Signal;

/// How long a state is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of the service, which is killed when it is dropped.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(url: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_async-web"));
        command.args(["--listen", "127.0.0.1:0", "--database-url", url]);
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("async-web starts");
        let output = process.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://");
        let (_, address) = address.unwrap_or_else(|| panic!("no address: {line}"));
        Self {
            address: address.to_owned(),
            process,
        }
    }

    /// Sends a request.
    fn send(&self, line: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = "HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        write!(stream, "{line} {head}").expect("sent");
        stream
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The lock is held for longer than the request would wait.
#[test]
fn request_that_waits_is_answered_when_the_service_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = folder.path().join("app.sqlite").display().to_string();
    let mut service = Service::start(&url);
    let mut holder = SqliteConnection::establish(&url).expect("a connection");
    holder.batch_execute("BEGIN IMMEDIATE").expect("no writer");
    let waiting = service.send("PUT /documents/1");
    let started = Instant::now();
    while !answer(service.send("GET /health")).ends_with("\r\n\r\n1") {
        assert!(started.elapsed() < PATIENCE, "no request waits");
        thread::sleep(Duration::from_millis(10));
    }
    signal(service.process.id(), Signal::TERM);
    let answer = answer(waiting);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("stopped"), "{answer}");
    let ended = service.process.wait().expect("a process");
    assert_eq!(ended.code(), Some(0));
}
