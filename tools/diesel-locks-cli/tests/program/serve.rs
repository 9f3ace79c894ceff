//! `serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

use program_support::testing::http::{get, send_json};
use program_support::testing::{TempDir, path_in};
use serde_json::json;

use crate::cli::{Cli, on_engines};

on_engines!(
    page_is_served_to_those_who_may_only_read,
    token_allows_releases,
);

/// `diesel-locks serve`. Killed when it is dropped.
struct Serving {
    process: Child,
    address: SocketAddr,
}

impl Serving {
    fn start(cli: &Cli, options: &[&str]) -> Self {
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        let mut process = cli
            .command(&[&serve, options].concat())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = process.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.expect("an address").parse();
        Self {
            process,
            address: address.expect("an address"),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const LONG: &str = "echo $DIESEL_LOCKS_FENCE > $OUT/fence; exec sleep 600";

fn page_is_served_to_those_who_may_only_read(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &["--holder", "node-2"], LONG);
    let fence = run.line("fence");
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    let user = url.contains("://").then(|| crate::user::User::reader(&cli));
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    let cli = user.as_ref().map_or(&cli, |user| &user.cli);
    let serving = Serving::start(cli, &["--token", "secret"]);
    let page = get(serving.address, "/");
    assert_eq!(page.status, 200, "{page:?}");
    let policy = page.header("content-security-policy").expect("a policy");
    let (_, nonce) = policy.split_once("'nonce-").expect("a nonce");
    let (nonce, _) = nonce.split_once('\'').expect("its end");
    let script = format!("<script nonce=\"{nonce}\"");
    assert!(page.body.contains(&script), "{page:?}");
    let state = get(serving.address, "/state?prefix=job").json();
    let name = state["name"].as_str().expect("a name");
    assert!(!name.contains("secret") && !name.contains('@'), "{name}");
    let lists = &state["lists"];
    let jobs = &lists["semaphores"]["rows"][0];
    assert_eq!(jobs["name"], "jobs", "{state}");
    assert_eq!(jobs["slots"][0]["fence"], fence.as_str(), "{state}");
    let (locks, sequences) = (&lists["object_locks"], &lists["sequences"]);
    let refusal = locks["refusal"].as_str().unwrap_or_default();
    let told = match url.split("://").next() {
        Some("postgres") => "",
        Some("mysql") => "the database user lacks a privilege on ",
        _ => "SQLite does not show who holds object locks",
    };
    assert!(refusal.starts_with(told), "{state}");
    assert_eq!(refusal.is_empty(), told.is_empty(), "{state}");
    if url.contains("://") {
        // The user may not read them.
        let refusal = sequences["refusal"].as_str().expect("a refusal");
        assert!(refusal.contains("diesel_locks_sequences"), "{refusal}");
        // Nor write.
        let grant = json!({ "semaphore": "jobs", "slot": 1, "fence": fence }).to_string();
        let token = [("Authorization", "Bearer secret")];
        let released = send_json(serving.address, "/release", &token, &grant).answer();
        released.assert_problem(403, "lacks a privilege on diesel_locks_slots");
    }
}

fn token_allows_releases(url: &str) {
    let cli = Cli::new(url);
    let run = cli.run("jobs", &["--lease", "2s"], LONG);
    let fence = run.line("fence");
    let grant = json!({ "semaphore": "jobs", "slot": 1, "fence": fence }).to_string();
    let token = [("Authorization", "Bearer secret")];
    let reading = Serving::start(&cli, &[]);
    let refused = send_json(reading.address, "/release", &token, &grant).answer();
    refused.assert_problem(403, "only reads");
    let serving = Serving::start(&cli, &["--token", "secret"]);
    let requested = send_json(serving.address, "/request-release", &token, &grant).answer();
    assert_eq!(requested.status, 200, "{requested:?}");
    let (_, messages) = run.ended();
    assert!(
        messages.contains("an operator requests the slot"),
        "{messages}"
    );
    let gone = send_json(serving.address, "/release", &token, &grant).answer();
    gone.assert_problem(409, "is not held with the fence");
}

#[test]
fn name_of_another_site_is_refused() {
    let directory = TempDir::new().expect("a directory");
    let url = path_in(&directory, "app.db");
    let cli = Cli { url };
    cli.text(&["migrate"]);
    let serving = Serving::start(&cli, &[]);
    for (host, status) in [
        ("evil.example", "421"),
        ("localhost:8080", "200"),
        ("[::1]", "200"),
    ] {
        let mut conn = TcpStream::connect(serving.address).expect("a connection");
        write!(
            conn,
            "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .expect("sent");
        let mut answer = String::new();
        conn.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer.split(' ').nth(1), Some(status), "{host}: {answer}");
    }
}

#[test]
fn page_of_a_database_without_tables_creates_none() {
    let directory = TempDir::new().expect("a directory");
    let url = path_in(&directory, "empty.db");
    for url in [
        url.clone(),
        format!("file:{url}"),
        format!("file:{url}?cache=private"),
    ] {
        let error = Cli { url }.refused(69, &["serve"]);
        assert!(error.contains("there is no SQLite file"), "{error}");
    }
    let cli = Cli { url: url.clone() };
    std::fs::write(&url, "").expect("a file");
    let serving = Serving::start(&cli, &[]);
    get(serving.address, "/state").assert_problem(503, "the tables of diesel-locks");
    let address = serving.address.to_string();
    let error = cli.refused(1, &["serve", "--listen", &address]);
    assert!(
        error.contains(&format!("can't listen on {address}")),
        "{error}"
    );
    drop(serving);
    assert_eq!(std::fs::metadata(&url).expect("a file").len(), 0);
}
