//! The arguments of the program.

use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use program_support::database::DatabaseArguments;

use crate::name;

/// Serves documents, accounts, passes and jobs over HTTP, each under a lock, a slot or a sequence of the database, and
/// a page that shows them.
///
/// Several instances may share one database: name it with --database-url. Without it the instance has an SQLite file
/// of its own, which is deleted when it ends.
#[derive(Clone, Parser)]
#[command(name = "web", version)]
pub(crate) struct Arguments {
    /// Name of this instance, which holds its slots; no two instances have the same [default: host name and process id]
    #[arg(long, value_name = "NAME", value_parser = name::usable)]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) database: DatabaseArguments,

    /// Address and port on which the server listens; with port 0 the system chooses one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Host name by which clients reach the service, besides IP addresses and localhost; may be repeated
    ///
    /// Requests with another name get 403, except /health and /metrics: a page of another site could have sent them.
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,

    /// Number of connections for requests; six more are for renewals, releases, health checks and the page
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub(crate) connections: u32,

    /// Number of requests that may wait for the database; others get 503 at once
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = RangedU64ValueParser::<u32>::new().range(1..=10_000))]
    pub(crate) max_waiting: u32,

    /// Seconds that a request waits for a lock before it gets 409
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    wait_seconds: u64,

    /// Permits of each semaphore: so many jobs of one name run at the same time on all instances [default: that of the
    /// database's first instance; 3]
    ///
    /// The database stores it. An instance with another number does not start: see --change-permits.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub(crate) permits: Option<u32>,

    /// Store --permits in the database in place of another number; end all other instances before, they would keep theirs
    #[arg(long, requires = "permits")]
    pub(crate) change_permits: bool,

    /// Seconds of a slot's lease, which is renewed while its job runs
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    lease_seconds: u64,

    /// Number of accounts, each with 1000 to begin with
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = RangedU64ValueParser::<u32>::new().range(2..=10_000))]
    pub(crate) accounts: u32,

    /// Size of the largest request body, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_576)]
    pub(crate) max_body: usize,

    /// Seconds that requests and jobs have to end after SIGTERM or SIGINT
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    shutdown_seconds: u64,

    // An argument is in the list of processes, a variable is not.
    #[arg(
        long,
        value_name = "TOKEN",
        value_parser = usable_token,
        help = "Token that a request must have to release the slots of others [default: the variable OPERATOR_TOKEN; \
                none if it is not set]"
    )]
    pub(crate) operator_token: Option<String>,
}

impl Arguments {
    /// Those of the process. Ends it with code 2 if they are wrong.
    pub(crate) fn of_process() -> Self {
        let mut arguments = Self::parse();
        if let (None, Some(token)) = (
            &arguments.operator_token,
            std::env::var_os("OPERATOR_TOKEN"),
        ) {
            let token = usable_token(&token.to_string_lossy()).unwrap_or_else(|error| {
                let text = format!("the variable OPERATOR_TOKEN: {error}");
                Self::command()
                    .error(ErrorKind::ValueValidation, text)
                    .exit()
            });
            arguments.operator_token = Some(token);
        }
        arguments
    }

    pub(crate) fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_seconds)
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds)
    }

    pub(crate) fn shutdown(&self) -> Duration {
        Duration::from_secs(self.shutdown_seconds)
    }
}

/// A token that a header can carry. White space around it is left out, as it is in a header.
fn usable_token(text: &str) -> Result<String, &'static str> {
    let token = text.trim();
    if token.is_empty() {
        return Err("the token is empty");
    }
    if !token.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        return Err("the token has other characters than printable ASCII");
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, usable_token};

    #[test]
    fn token_is_printable_ascii() {
        assert_eq!(usable_token(" let me in\n").as_deref(), Ok("let me in"));
        for token in ["", " \n", "a\nb", "a\tb", "pässword", "a\u{7f}"] {
            assert!(usable_token(token).is_err(), "{token:?}");
            let arguments = ["web", "--operator-token", token];
            assert!(Arguments::try_parse_from(arguments).is_err(), "{token:?}");
        }
    }
}
