//! On real clusters, which `cargo xtask clusters` starts and names.
//!
//! `GALERA_DATABASE_URLS` and `GROUP_REPLICATION_DATABASE_URLS`: the servers of a cluster, separated by commas, whose
//! user may create databases, which stay. `PG_STANDBY_DATABASE_URLS`: a PostgreSQL server and its hot standby.
//! `MARIADB_REPLICA_DATABASE_URLS` and `MYSQL_REPLICA_DATABASE_URLS`: a server and one that is to be its replica.

mod galera;
mod group_replication;
mod hosts;
mod nodes;
mod replica;
mod standby;
mod writers;

use nodes::Nodes;

const GALERA: &str = "GALERA_DATABASE_URLS";
const GROUP_REPLICATION: &str = "GROUP_REPLICATION_DATABASE_URLS";
const STANDBY: &str = "PG_STANDBY_DATABASE_URLS";
const REPLICAS: [(&str, &str); 2] = [
    ("replica_of_mariadb", "MARIADB_REPLICA_DATABASE_URLS"),
    ("replica_of_mysql", "MYSQL_REPLICA_DATABASE_URLS"),
];

fn main() {
    let filter = std::env::args().nth(1);
    // A filter that begins with the kind of a cluster needs no other.
    let is_asked_for = |kind: &str| {
        let kinds = ["galera::", "group_replication::", "standby::"];
        let kinds = kinds.into_iter().chain(REPLICAS.map(|(kind, _)| kind));
        let named = |filter: &String| kinds.clone().find(|kind| filter.starts_with(kind));
        filter
            .as_ref()
            .and_then(named)
            .is_none_or(|named| named.starts_with(kind))
    };
    let mut tests: Vec<(String, Box<dyn FnOnce()>)> = Vec::new();
    let mut add = |kind: &str, nodes: &Nodes, added: nodes::Tests| {
        for (name, test) in added {
            let nodes = nodes.clone();
            tests.push((format!("{kind}::{name}"), Box::new(move || test(&nodes))));
        }
    };
    if is_asked_for("galera") {
        let galera = Nodes::of(GALERA);
        galera.await_galera();
        add("galera", &galera, writers::TESTS);
        add("galera", &galera, galera::TESTS);
    }
    if is_asked_for("group_replication") {
        let group = Nodes::of(GROUP_REPLICATION);
        group.await_group_replication();
        add("group_replication", &group, writers::TESTS);
        add("group_replication", &group, group_replication::TESTS);
    }
    if is_asked_for("standby") {
        let nodes = Nodes::of(STANDBY);
        add("standby", &nodes, standby::TESTS);
        add("standby", &nodes, hosts::TESTS);
    }
    for (kind, variable) in REPLICAS {
        if is_asked_for(kind) {
            add(kind, &Nodes::of(variable), replica::TESTS);
        }
    }
    if is_asked_for("galera") {
        add("galera", &Nodes::of(GALERA), galera::LAST_TESTS);
    }
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
