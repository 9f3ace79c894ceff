//! The report at the end of a run.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use torture_checker::{Evidence, Limits, Verdict};
use torture_history::Histories;

use crate::arguments::Run;
use crate::cluster::Cluster;
use crate::database::Database;
use crate::engine::{Engine, with_connection};
use crate::sessions::Sessions;

/// How long an operation may take. The longest of the limits that workers and servers have is 10 s, and an operation has
/// several statements, of which two or three meet one of them. After a crash MySQL and MariaDB take longer than PostgreSQL.
/// Single servers are also tested beside other tests, which take the processors.
fn operation_limit(database: &Database) -> Duration {
    let is_patroni = database.cluster == Some(Cluster::Patroni);
    Duration::from_secs(if is_patroni { 30 } else { 60 })
}

/// How long leases may take to end when no worker renews them, and sessions when no worker uses them: the
/// longest lease and as long as a clock that was set right again had been ahead; the server's limits on silent clients.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How often is looked whether they have.
const PAUSE: Duration = Duration::from_millis(100);

/// Checks what the workers did, and prints it: whether nothing was violated.
pub(crate) fn report(
    arguments: &Run,
    database: &Database,
    histories: &Histories,
    killed: BTreeSet<u32>,
    seed: u64,
) -> Result<bool> {
    let evidence = evidence_at_rest(database)?;
    let limits = Limits {
        longest: operation_limit(database),
        killed,
        // `innodb_lock_wait_timeout` is: see `store.rs`.
        statements_are_limited: database.engine == Engine::Mysql,
        one_more_transaction: database.engine == Engine::Mysql,
        asynchronous: arguments.async_threads > 0,
        several_writers: database.cluster == Some(Cluster::Galera),
        // The log has the moments; processes may be late by a time slice.
        jump_tolerance: Duration::from_millis(100),
    };
    let verdict = torture_checker::check(histories, &evidence, &limits)?;
    println!("{verdict}");
    println!("seed {seed}");
    if arguments.json {
        println!("{}", as_json(arguments, &verdict, seed)?);
    }
    Ok(verdict.total() == 0)
}

/// The evidence in the database when nothing is held any more, or the time for that is up.
fn evidence_at_rest(database: &Database) -> Result<Evidence> {
    let started = Instant::now();
    loop {
        let (others, evidence) = with_connection!(database.engine, C => {
            // Before: a COMMIT that is still on its way would come in between.
            let mut others = 0;
            for node in 0..database.urls.len() {
                others += database.connect_to::<C>(node)?.others()?.len();
            }
            let mut conn: C = database.connect()?;
            (others, Evidence::read(&mut conn)?)
        });
        let is_held = |slot: &torture_checker::Slot| slot.expires_us > evidence.now_us;
        let is_at_rest =
            others == 0 && evidence.locked_slots.is_empty() && !evidence.slots.iter().any(is_held);
        if is_at_rest || started.elapsed() > TIMEOUT {
            return Ok(evidence);
        }
        sleep(PAUSE);
    }
}

fn as_json(arguments: &Run, verdict: &Verdict, seed: u64) -> Result<Value> {
    let mut object = json!({
        // As text: JSON's numbers end before a seed does.
        "seed": seed.to_string(),
        "seconds": arguments.seconds,
        "processes": arguments.workers,
        "threads": arguments.threads,
        "async_threads": arguments.async_threads,
    });
    if let (Some(object), Value::Object(verdict)) =
        (object.as_object_mut(), serde_json::to_value(verdict)?)
    {
        object.extend(verdict);
    }
    Ok(object)
}
