//! Which engines are measured.

use std::env;

use anyhow::{Result, bail};

use super::{mysql, postgres, server};

const VARIABLE: &str = "DIESEL_LOCKS_BENCH_BACKENDS";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Postgres,
    Mysql,
    Sqlite,
}

/// The engines named, with commas between, or else those in the environment, or else all. An engine
/// whose server is missing is an error and not left out.
pub(crate) fn choices(named: Option<&str>) -> Result<Vec<Choice>> {
    let named = match named {
        Some(named) => named.to_owned(),
        None => env::var(VARIABLE).unwrap_or_else(|_| "postgres,mysql,sqlite".to_owned()),
    };
    named.split(',').map(choice).collect()
}

fn choice(name: &str) -> Result<Choice> {
    Ok(match name.trim() {
        "postgres" => {
            server::server_url(postgres::URL)?;
            Choice::Postgres
        }
        "mysql" | "mariadb" => {
            server::server_url(mysql::URL)?;
            Choice::Mysql
        }
        "sqlite" => Choice::Sqlite,
        other => bail!("no backend {other:?}; there are postgres, mysql and sqlite"),
    })
}
