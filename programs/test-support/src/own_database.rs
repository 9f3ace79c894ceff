//! A database for one test on a server.

use std::env;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::prelude::*;

/// A database, which is dropped with this value.
pub struct OwnDatabase<C: Connection> {
    /// A connection to the server.
    pub server: C,
    /// The name of the database.
    pub name: String,
    /// The URL of the database.
    pub url: String,
}

impl<C: Connection> OwnDatabase<C> {
    /// Creates the database. `variable` is an environment variable with the URL of any database on the server.
    ///
    /// # Panics
    ///
    /// If the variable is not set, or the database can't be created.
    pub fn create(variable: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let given = env::var(variable).unwrap_or_else(|_| {
            panic!(
                "{variable} is not set: run the tests with `cargo xtask test`, which starts the servers, \
                 or set it to the URL of a server on which databases may be created"
            )
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("program_test_{}_{number}", std::process::id());
        let (address, path) = given.rsplit_once('/').expect("a URL with a database");
        let options = path
            .split_once('?')
            .map_or(String::new(), |(_, options)| format!("?{options}"));
        let url = format!("{address}/{name}{options}");
        let mut server = C::establish(&given).expect("the server answers");
        server
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .expect("a database");
        Self { server, name, url }
    }
}

impl<C: Connection> Drop for OwnDatabase<C> {
    fn drop(&mut self) {
        let dropped = self
            .server
            .batch_execute(&format!("DROP DATABASE {}", self.name));
        if !std::thread::panicking() {
            dropped.expect("the database can be dropped");
        }
    }
}
