//! The arguments of the program.

use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Parser, value_parser};
use program_support::database::DatabaseArguments;

/// Serves documents, accounts, passes and jobs over HTTP, each under a lock, a slot or a sequence of the database, and
/// a page that shows them.
///
/// Several instances may share one database: name it with --database-url. Without it the instance has an SQLite file
/// of its own, which is deleted when it ends.
#[derive(Parser)]
#[command(name = "web", version)]
pub(crate) struct Arguments {
    /// Name of this instance, which holds its slots; no two instances have the same [default: host name and process id]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) database: DatabaseArguments,

    /// Address and port on which the server listens; with port 0 the system chooses one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Number of connections for requests; five more are for renewals, releases and the page
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) connections: u32,

    /// Number of requests that may wait for the database; others get 503 at once
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) max_waiting: u32,

    /// The child of a document's root with its time of change, as written in the document: xs:date or xs:dateTime
    #[arg(long, value_name = "NAME", default_value = "cbc:IssueDate")]
    pub(crate) timestamp_element: String,

    /// Seconds that a request waits for a lock before it gets 409
    #[arg(long = "wait-seconds", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) wait: Duration,

    /// Permits of each semaphore: so many jobs of one name run at the same time on all instances, which need the same number
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) permits: u32,

    /// Seconds of a slot's lease, which is renewed while its job runs
    #[arg(long = "lease-seconds", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) lease: Duration,

    /// Size of the largest request body, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_576)]
    pub(crate) max_body: usize,

    /// Seconds that requests and jobs have to end after SIGTERM or SIGINT
    #[arg(long = "shutdown-seconds", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) shutdown: Duration,

    // An argument is in the list of processes, a variable is not.
    #[arg(
        long,
        value_name = "TOKEN",
        value_parser = NonEmptyStringValueParser::new(),
        help = "Token that a request to release slots must have [default: the variable OPERATOR_TOKEN; nobody can \
                release slots if it is not set]"
    )]
    pub(crate) operator_token: Option<String>,
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    match text.parse::<u64>() {
        Ok(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err("1 to 3600 are allowed"),
    }
}
