//! A cluster of private servers: three nodes of PostgreSQL under Patroni, with synchronous replication.

use std::net::TcpStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::private::{FEW_CONNECTIONS, PrivateServer, RunDir, ServerRole, free_ports};
use crate::servers::Server;
use crate::{postgres, programs};

const SCOPE: &str = "torture";

struct Cluster<'a> {
    run_dir: &'a RunDir,
    patroni: PathBuf,
    etcd: PathBuf,
    servers: PathBuf,
    /// What the servers may change.
    directory: PathBuf,
}

/// Where a node's server, its Patroni and etcd are reached, each followed by the proxy to it, which is stopped to cut the node off.
/// The other nodes reach the server and Patroni by their proxies.
type Addresses<'a> = [[&'a str; 2]; 3];

/// Starts three nodes. Returns them, and a program that makes another one the primary.
pub(crate) fn start(run_dir: &RunDir) -> Result<(Vec<Server>, PathBuf)> {
    let cluster = Cluster {
        run_dir,
        patroni: programs::find("patroni").context("there is no Patroni")?,
        etcd: programs::find("etcd").context("there is no etcd")?,
        servers: programs::postgres()?,
        directory: run_dir.directory("patroni")?,
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
             --initial-cluster default=http://{peers} --data-dir {}",
            self.directory.join("etcd").display()
        );
        self.start_listener("etcd", &options, &address)?;
        Ok(address)
    }

    /// Starts a proxy. Returns the file with its process's number.
    fn start_proxy(&self, name: &str, [address, proxy]: [&str; 2]) -> Result<PathBuf> {
        let options = format!(
            "gateway start --endpoints {address} --listen-addr {proxy} --retry-delay 500ms"
        );
        self.start_listener(name, &options, proxy)
    }

    /// Starts etcd's program. Returns the file with its process's number.
    fn start_listener(&self, name: &str, options: &str, address: &str) -> Result<PathBuf> {
        let (program, pid_file) = self.write_start_program(name, &self.etcd, options)?;
        let process = PrivateServer::new(self.run_dir, ServerRole::Regular, name);
        let mut command = process.command(&program);
        let connect = || Ok(TcpStream::connect(address).map(|_| String::new())?);
        process.start(&mut command, Signal::SIGKILL, &[], address, connect)?;
        Ok(pid_file)
    }

    /// A program that starts another, and the file in which it leaves its process's number.
    fn write_start_program(
        &self,
        name: &str,
        program: &Path,
        options: &str,
    ) -> Result<(PathBuf, PathBuf)> {
        let pid_file = self.directory.join(format!("{name}.pid"));
        let script = format!(
            "#!/bin/sh\necho $$ >'{}'\nexec '{}' {options}\n",
            pid_file.display(),
            program.display()
        );
        let start = self.run_dir.write(&format!("start-{name}"), &script)?;
        Ok((start, pid_file))
    }

    fn start_node(&self, number: usize, etcd: &str) -> Result<Server> {
        let name = &format!("node{number}");
        let free: [String; 5] = free_addresses()?;
        let free = free.each_ref().map(String::as_str);
        let [server, server_proxy, patroni, patroni_proxy, etcd_proxy] = free;
        let addresses: Addresses = [
            [server, server_proxy],
            [patroni, patroni_proxy],
            [etcd, etcd_proxy],
        ];
        let proxies = ["server", "patroni", "etcd"].into_iter().zip(addresses);
        let proxies = proxies.map(|(of, it)| self.start_proxy(&format!("{name}-{of}"), it));
        let proxies = proxies.collect::<Result<Vec<_>>>()?;
        let network = format!("{name}-network");
        let kill_network = self.run_dir.write_kill_program(&network, &proxies)?;

        let data = self.directory.join(name);
        let settings = self.settings(name, &data, addresses).to_string();
        let settings = self.run_dir.write(&format!("{name}.json"), &settings)?;
        let options = format!("'{}'", settings.display());
        let (program, pid_file) = self.write_start_program(name, &self.patroni, &options)?;
        let process = PrivateServer::new(self.run_dir, ServerRole::Killed, name);
        let mut command = process.command(&program);
        let pid_files = [pid_file, data.join("postmaster.pid")];
        let url = format!("postgres://postgres@{server}/postgres");
        let title = || postgres::title(postgres::psql(self.servers.join("psql"), &url));
        let mut node = process.start(&mut command, Signal::SIGKILL, &pid_files, &url, title)?;
        node.kill_network = Some(kill_network);
        Ok(node)
    }

    fn settings(&self, name: &str, data: &Path, addresses: Addresses) -> Value {
        let [[server, server_proxy], [patroni, patroni_proxy], [_, etcd]] = addresses;
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
                "data_dir": data,
                "bin_dir": self.servers,
                "pgpass": self.directory.join(format!("{name}.pgpass")),
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "authentication": {
                    "superuser": { "username": "postgres" },
                    "replication": { "username": "postgres" },
                    "rewind": { "username": "postgres" },
                },
                "parameters": {
                    "unix_socket_directories": self.directory, "shared_buffers": "64MB", "wal_log_hints": true,
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
