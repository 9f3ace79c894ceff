//! Waits for a lock or a slot with a connection of a pool and without one, interleaved in one run.
//!
//! ```text
//! cargo xtask with-servers --durable -- \
//!     cargo bench --features postgres,mysql,sqlite,r2d2 --bench pool_waiters
//! ```
//!
//! Options follow `--`; `--help` lists them.

#[path = "pool_waiters/application.rs"]
mod application;
#[path = "report/options.rs"]
mod common_options;
#[path = "pool_waiters/engine.rs"]
mod engine;
#[path = "pool_waiters/held.rs"]
mod held;
#[path = "pool_waiters/options.rs"]
mod options;
#[path = "pool_waiters/shared.rs"]
mod shared;
#[expect(dead_code, reason = "the parts of other benchmarks")]
mod support;
#[path = "pool_waiters/times.rs"]
mod times;
#[path = "pool_waiters/turns.rs"]
mod turns;

use anyhow::Result;
use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use serde_json::{Value, json};

use engine::PooledEngine;
use options::{Options, Part};
use support::engine_filter::Engine;

fn main() -> Result<()> {
    if let Some(request) = shared::Request::from_arguments()? {
        return request.run();
    }
    let Some(options) = options::from_arguments()? else {
        return Ok(());
    };
    println!("{}", options.describe());
    let mut figures = Vec::new();
    for engine in &options.common.backends {
        figures.extend(match engine {
            Engine::Postgres => measure::<PgConnection>(&options)?,
            Engine::Mysql => measure::<MysqlConnection>(&options)?,
            Engine::Sqlite => measure::<SqliteConnection>(&options)?,
        });
    }
    options
        .common
        .print_json(json!({ "pool": options.pool, "figures": figures }))
}

fn measure<C: PooledEngine>(options: &Options) -> Result<Vec<Value>> {
    let mut database = application::Database::<C>::new()?;
    println!("\n## {}\n", database.version()?);
    let mut figures = Vec::new();
    if options.common.has(Part::Turns) {
        figures.extend(turns::measure(&mut database, options)?);
    }
    if options.common.has(Part::Held) {
        figures.extend(held::measure(&mut database, options)?);
    }
    if options.common.has(Part::Shared) {
        figures.extend(shared::measure(&mut database, options)?);
    }
    Ok(figures)
}
