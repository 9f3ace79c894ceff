//! On real clusters, which `cargo xtask clusters` starts and names.
//!
//! `GALERA_DATABASE_URLS` and `GROUP_REPLICATION_DATABASE_URLS`: the servers of a cluster, separated by commas, whose
//! user may create databases, which stay. `PG_STANDBY_DATABASE_URLS`: a PostgreSQL server and its hot standby. A variable that
//! is not there leaves its tests out, which the tests say; without any of them this program fails.

mod group_replication;
mod nodes;
mod standby;
mod writers;

use nodes::Nodes;

const GALERA: &str = "GALERA_DATABASE_URLS";
const GROUP_REPLICATION: &str = "GROUP_REPLICATION_DATABASE_URLS";
const STANDBY: &str = "PG_STANDBY_DATABASE_URLS";

fn main() {
    let filter = std::env::args().nth(1);
    let mut tests: Vec<(String, Box<dyn FnOnce()>)> = Vec::new();
    for (kind, variable) in [("galera", GALERA), ("group_replication", GROUP_REPLICATION)] {
        match Nodes::of(variable) {
            Some(nodes) => {
                if kind == "galera" {
                    nodes.await_galera();
                } else {
                    nodes.await_group_replication();
                }
                for (name, test) in writers::TESTS {
                    let nodes = nodes.clone();
                    tests.push((format!("{kind}::{name}"), Box::new(move || test(&nodes))));
                }
                let own = if kind == "galera" {
                    writers::ON_GALERA
                } else {
                    group_replication::TESTS
                };
                for (name, test) in own {
                    let nodes = nodes.clone();
                    tests.push((format!("{kind}::{name}"), Box::new(move || test(&nodes))));
                }
            }
            None => println!("left out: {kind}, as {variable} names no servers"),
        }
    }
    match Nodes::of(STANDBY) {
        Some(nodes) => {
            for (name, test) in standby::TESTS {
                let nodes = nodes.clone();
                tests.push((format!("standby::{name}"), Box::new(move || test(&nodes))));
            }
        }
        None => println!("left out: standby, as {STANDBY} names no servers"),
    }
    assert!(!tests.is_empty(), "no cluster is named");
    for (name, test) in tests {
        if filter.as_ref().is_some_and(|part| !name.contains(part)) {
            continue;
        }
        println!("{name} ..");
        let started = std::time::Instant::now();
        // A panic ends the program: nothing after it could be relied on.
        test();
        println!("{name} ok, {:.1} s", started.elapsed().as_secs_f64());
    }
}
