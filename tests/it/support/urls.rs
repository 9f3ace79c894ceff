//! Names and URLs of databases. Of `tests/cancel/support` too.

use std::sync::atomic::{AtomicU32, Ordering};

/// A name for a database that no other test has, in no other process.
pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("diesel_locks_test_{}_{next}", std::process::id())
}

/// The URL of a server to make databases on.
pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run the tests with `cargo xtask test`, which starts the servers, \
             or set it to the URL of a server on which databases may be created"
        )
    })
}

/// The same URL with another database.
pub(crate) fn with_database(url: &str, database: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (base, _) = base.rsplit_once('/').expect("a URL with a database");
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{base}/{database}{mark}{query}")
}

/// Host and port.
pub(crate) fn address(url: &str) -> &str {
    let (_, rest) = url.split_once("://").expect("a URL");
    let (authority, _) = rest.split_once('/').expect("a database");
    authority
        .rsplit_once('@')
        .map_or(authority, |(_, address)| address)
}

/// The URL of a server by way of a port of this machine.
pub(crate) fn by_way_of(port: u16, url: &str) -> String {
    url.replacen(address(url), &format!("127.0.0.1:{port}"), 1)
}
