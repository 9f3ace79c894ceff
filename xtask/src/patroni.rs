//! A cluster of private servers: three nodes of PostgreSQL under Patroni, with synchronous replication.

use std::net::TcpStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::private::{FEW_CONNECTIONS, PrivateServer, RunDir, ServerRole, free_ports};
use crate::run::words;
use crate::servers::Server;
use crate::{postgres, programs};

const SCOPE: &str = "torture";

struct Cluster<'a> {
    run_dir: &'a RunDir,
    patroni: PathBuf,
    etcd: PathBuf,
    servers: PathBuf,
}

/// Where a node's server, its Patroni and etcd are reached, each followed by the proxy to it, which is stopped to cut the node off.
/// The other nodes reach the server and Patroni by their proxies.
type Addresses = [String; 6];

/// Starts three nodes. Returns them, and a program that makes another one the primary.
pub(crate) fn start(run_dir: &RunDir) -> Result<(Vec<Server>, PathBuf)> {
    let cluster = Cluster {
        run_dir,
        patroni: programs::find("patroni").context("there is no Patroni")?,
        etcd: programs::find("etcd").context("there is no etcd")?,
        servers: programs::postgres()?,
    };
    let etcd = &cluster.start_etcd()?;
    let nodes = (1..=3).map(|number| cluster.start_node(number, etcd));
    let nodes = nodes.collect::<Result<_>>()?;

    let settings = json!({ "scope": SCOPE, "etcd": etcd_settings(etcd) });
    let settings = run_dir.write("switch-over.json", &settings.to_string())?;
    let settings = settings.display();
    let script = format!("#!/bin/sh\nexec patronictl -c '{settings}' switchover {SCOPE} --force\n");
    Ok((nodes, run_dir.write("switch-over", &script)?))
}

/// With version 3 of etcd's API, Patroni 3.0.2 (Debian 12) lets a primary that was stopped become the primary again, and commits
/// made meanwhile are lost.
fn etcd_settings(address: &str) -> Value {
    json!({ "host": address, "use_proxies": true })
}

impl Cluster<'_> {
    /// Starts etcd, in which Patroni stores which node is the primary. Returns its address.
    fn start_etcd(&self) -> Result<String> {
        let [address, peers] = free_addresses()?;
        let options = format!(
            "--enable-v2 --listen-client-urls http://{address} --advertise-client-urls http://{address} \
             --listen-peer-urls http://{peers} --initial-advertise-peer-urls http://{peers} \
             --initial-cluster default=http://{peers} --data-dir data"
        );
        self.start_listener("etcd", &options, &address)?;
        Ok(address)
    }

    /// Starts etcd's program.
    fn start_listener(&self, name: &str, options: &str, address: &str) -> Result<Server> {
        let process = PrivateServer::new(self.run_dir, ServerRole::Regular, name);
        let mut command = process.command(&self.etcd)?;
        let connect = || Ok(TcpStream::connect(address).map(|_| String::new())?);
        process.start(
            command.args(words(options)),
            Signal::SIGKILL,
            address,
            connect,
        )
    }

    fn start_node(&self, number: usize, etcd: &str) -> Result<Server> {
        let name = &format!("node{number}");
        let mut addresses: Addresses = free_addresses()?;
        etcd.clone_into(&mut addresses[4]);
        let network = format!("{name}-network");
        self.run_dir.directory(&network)?;
        let (pairs, _) = addresses.as_chunks();
        for (of, [address, proxy]) in ["server", "patroni", "etcd"].iter().zip(pairs) {
            let options = format!(
                "gateway start --endpoints {address} --listen-addr {proxy} --retry-delay 500ms"
            );
            self.start_listener(&format!("{network}/{of}"), &options, proxy)?;
        }

        let process = PrivateServer::new(self.run_dir, ServerRole::Killed, name);
        let directory = self.run_dir.directory(name)?;
        let settings = self.settings(name, &directory, &addresses).to_string();
        let settings = self.run_dir.write(&format!("{name}.json"), &settings)?;
        let mut command = process.command(&self.patroni)?;
        let url = format!("postgres://postgres@{}/postgres", addresses[0]);
        let title = || postgres::title(postgres::psql(self.servers.join("psql"), &url));
        let mut node = process.start(command.arg(settings), Signal::SIGKILL, &url, title)?;
        node.kill_network = Some(self.run_dir.write_kill_program(&network)?);
        Ok(node)
    }

    fn settings(&self, name: &str, directory: &Path, addresses: &Addresses) -> Value {
        let [server, server_proxy, patroni, patroni_proxy, _, etcd] = addresses;
        json!({
            "scope": SCOPE,
            "name": name,
            "etcd": etcd_settings(etcd),
            "restapi": { "listen": patroni, "connect_address": patroni_proxy },
            "bootstrap": {
                "dcs": {
                    // Another node becomes the primary 6 s after the last sign of it.
                    "ttl": 6, "loop_wait": 1, "retry_timeout": 2, "primary_start_timeout": 0, "master_start_timeout": 0,
                    "synchronous_mode": true, "synchronous_mode_strict": true,
                    "postgresql": {
                        "use_pg_rewind": true,
                        "use_slots": true,
                        "parameters": { "max_connections": FEW_CONNECTIONS, "wal_keep_size": "256MB" },
                    },
                },
                "initdb": [{ "encoding": "UTF8" }, { "locale": "C" }, { "auth": "trust" }],
            },
            "postgresql": {
                "listen": server,
                "connect_address": server_proxy,
                "data_dir": directory.join("data"),
                "bin_dir": self.servers,
                "pgpass": directory.join("pgpass"),
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "authentication": {
                    "superuser": { "username": "postgres" },
                    "replication": { "username": "postgres" },
                    "rewind": { "username": "postgres" },
                },
                "parameters": {
                    "unix_socket_directories": directory, "shared_buffers": "64MB", "wal_log_hints": true,
                    // The kernel keeps what a killed process has written.
                    "fsync": false,
                },
            },
        })
    }
}

/// Addresses, all different, on which no process listens.
fn free_addresses<const COUNT: usize>() -> Result<[String; COUNT]> {
    Ok(free_ports()?.map(|port| format!("127.0.0.1:{port}")))
}
