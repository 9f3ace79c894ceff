//! The command line.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use program_support::arguments::{DatabaseArguments, OutputArguments};

/// A web service on axum, diesel-async and a pool of deadpool
///
/// PUT /documents/{id} revises a document under its object lock, and answers its revision. GET /report runs at most twice
/// at a time, on all instances together. GET /health asks the database, on a connection of the same pool, and answers how many
/// requests wait. Requests wait for locks and slots without a connection. When a client hangs up, its request ends, and
/// nothing stays locked. On SIGTERM waits end with 503, and transactions have 8 s to end.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) pool: PoolArguments,

    /// Where the service listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
}

/// The pool of connections.
#[derive(Args)]
pub(crate) struct PoolArguments {
    #[command(flatten)]
    pub(crate) database: DatabaseArguments,

    /// Connections of the pool
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) connections: NonZeroUsize,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Measure(MeasureArguments),
}

/// Let many clients revise one document, of whom some hang up, check what is stored, and end
///
/// A third as many clients ask for the report. Health checks are sent meanwhile, one after the other. Before, unless no client
/// is to hang up, one client after the other hangs up in its closure, until a closure was cut off.
#[derive(Args)]
pub(crate) struct MeasureArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,

    /// Clients that revise the document
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = RangedU64ValueParser::<u32>::new().range(1..=10_000))]
    pub(crate) clients: u32,

    /// How long they do
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = RangedU64ValueParser::<u64>::new().range(1..=600))]
    pub(crate) seconds: u64,

    /// Of 100 requests, how many the client leaves before the answer
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = RangedU64ValueParser::<u32>::new().range(0..=100))]
    pub(crate) hang_ups: u32,

    #[command(flatten)]
    pub(crate) output: OutputArguments,
}
