//! The engines that a benchmark measures.

use std::env;

use anyhow::{Result, bail};

use super::mysql;
use super::postgres;
use super::server;

const VARIABLE: &str = "DIESEL_LOCKS_BENCH_BACKENDS";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Postgres,
    Mysql,
    Sqlite,
}

/// The engines named, with commas between, or else those in the environment, or else all. An engine
/// whose server is missing is an error and not left out.
pub(crate) fn selected_engines(named: Option<&str>) -> Result<Vec<Engine>> {
    let named = match named {
        Some(named) => named.to_owned(),
        None => env::var(VARIABLE).unwrap_or_else(|_| "postgres,mysql,sqlite".to_owned()),
    };
    named.split(',').map(parse).collect()
}

fn parse(name: &str) -> Result<Engine> {
    Ok(match name.trim() {
        "postgres" => {
            server::server_url(postgres::URL)?;
            Engine::Postgres
        }
        "mysql" | "mariadb" => {
            server::server_url(mysql::URL)?;
            Engine::Mysql
        }
        "sqlite" => Engine::Sqlite,
        other => bail!("no backend {other:?}; there are postgres, mysql and sqlite"),
    })
}
