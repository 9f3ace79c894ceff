//! The targets for speed, as ratios: what is compared is interleaved in one run, in short rounds, so that
//! whatever else the machine does meets all alike.
//!
//! ```text
//! cargo xtask with-servers --durable -- cargo bench --features postgres,mysql,sqlite --bench ratios
//! ```
//!
//! Options follow `--`; `--help` lists them.

#[path = "ratios/commits.rs"]
mod commits;
#[path = "report/options.rs"]
mod common_options;
#[path = "ratios/contention.rs"]
mod contention;
#[path = "ratios/growth.rs"]
mod growth;
#[path = "ratios/options.rs"]
mod options;
#[path = "report/samples.rs"]
mod samples;
mod support;
#[path = "report/targets.rs"]
mod targets;
#[path = "ratios/uncontended.rs"]
mod uncontended;

use anyhow::Result;
use diesel::{MysqlConnection, PgConnection, SqliteConnection};

use options::{Options, Part};
use support::backend::Backend;
use support::connections::Connections;
use support::engine_filter::Engine;
use targets::Findings;

const JUDGED: &str =
    "Writing is judged by the time outside COMMIT, where all wait for the disk alike.";

fn main() -> Result<()> {
    let Some(options) = options::from_arguments()? else {
        return Ok(());
    };
    println!("{}", options.describe());
    let mut versions = Vec::new();
    let mut findings = Findings::default();
    for engine in &options.common.backends {
        let (version, found) = match engine {
            Engine::Postgres => parts::<PgConnection>(&options, Engine::Postgres)?,
            Engine::Mysql => parts::<MysqlConnection>(&options, Engine::Mysql)?,
            Engine::Sqlite => parts::<SqliteConnection>(&options, Engine::Sqlite)?,
        };
        versions.push(version);
        findings.add(found);
    }
    findings.report(&options.common, &versions, JUDGED)
}

fn parts<C: Backend>(options: &Options, engine: Engine) -> Result<(String, Findings)> {
    let version = Connections::<C>::new(1)?.version()?;
    println!("\n## {version}\n");
    let mut findings = Findings::default();
    if options.common.has(Part::Uncontended) {
        findings.add(uncontended::compare::<C>(options, &version, engine)?);
    }
    if options.common.has(Part::Contention) && engine != Engine::Sqlite {
        findings.add(contention::compare::<C>(options, &version, engine)?);
    }
    if options.common.has(Part::Growth) && engine == Engine::Postgres {
        findings.add(growth::measure::<C>(options, &version)?);
    }
    Ok((version, findings))
}
