//! Two nodes of Galera, which is a part of MariaDB.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::cleanup_process::CleanupProcess;
use crate::path_lookup::{self, MysqlServer};
use crate::run_dir::{RunDir, account, free_port};
use crate::server_role::ServerRole;
use crate::{mysql, mysql_handshake, run};

/// What replicates; Debian's and Ubuntu's MariaDB bring it along.
const PROVIDERS: [&str; 2] = [
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib/galera-4/libgalera_smm.so",
];
const NODES: usize = 2;

/// Starts the nodes, and returns their URLs.
pub(super) fn start(run_dir: &RunDir, cleanup: &mut CleanupProcess) -> Result<Vec<String>> {
    let Some(MysqlServer::MariaDb {
        server, install, ..
    }) = path_lookup::mysql_server()
    else {
        bail!("there is no MariaDB server, of which Galera is a part");
    };
    let provider = PROVIDERS
        .iter()
        .find(|path| Path::new(path).exists())
        .context("there is no Galera (Debian or Ubuntu, as root: apt-get install galera-4)")?;
    let account = account(&["mysql", "nobody"])?;
    let account = account.as_ref();
    let sockets = run_dir.directory("galera-sockets", account)?;
    let first = run_dir.directory("galera-1", account)?;
    let mut command = run_dir.command(&install, account);
    command.args([
        "--no-defaults",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]);
    run::output(command.arg(format!("--datadir={}", first.display())))?;
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        nodes.push(Node {
            number,
            data: run_dir.path(&format!("galera-{number}")),
            port: free_port()?,
            group: free_port()?,
            transfer: free_port()?,
        });
    }
    let members: Vec<String> = nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.group))
        .collect();
    let start_node = |node: &Node, role: &str, cleanup: &mut CleanupProcess| -> Result<usize> {
        let log = format!("galera-{}-{role}.log", node.number);
        let mut command = ServerRole::Regular.command(run_dir, &server, account, &log)?;
        let (port, group, transfer) = (node.port, node.group, node.transfer);
        command.args([
            "--no-defaults".to_owned(),
            format!("--datadir={}", node.data.display()),
            format!("--port={port}"),
            format!("--socket={}", sockets.join(port.to_string()).display()),
            format!("--server-id={}", node.number),
            format!("--wsrep-provider={provider}"),
            format!("--wsrep-cluster-address=gcomm://{}", members.join(",")),
            format!("--wsrep-node-name=node{}", node.number),
            format!("--wsrep-node-address=127.0.0.1:{group}"),
            format!(
                "--wsrep-provider-options=gcache.size=16M;gmcast.listen_addr=tcp://127.0.0.1:{group};\
                 ist.recv_addr=127.0.0.1:{transfer}"
            ),
        ]);
        command.args([
            "--bind-address=127.0.0.1",
            "--wsrep-on=ON",
            "--wsrep-cluster-name=diesel-locks",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--innodb-log-file-size=32M",
        ]);
        command.args(mysql::settings(false));
        if node.number == 1 {
            command.arg("--wsrep-new-cluster");
        }
        let server = cleanup.start_server(&mut command, Signal::SIGKILL)?;
        let answers = cleanup.wait_for(server, || {
            mysql_handshake::version(&("127.0.0.1".into(), port))
        });
        answers.with_context(|| format!("Galera has not started\n{}", run_dir.log(&log)))?;
        Ok(server)
    };
    // One history for all nodes, so that none has to be sent all data of another.
    let alone = start_node(&nodes[0], "alone", cleanup)?;
    cleanup.stop_server(alone)?;
    for node in &nodes[1..] {
        run::output(Command::new("cp").arg("-a").args([&first, &node.data]))?;
        for own in ["galera.cache", "gvwstate.dat"] {
            let _ = fs::remove_file(node.data.join(own));
        }
    }
    let mut urls = Vec::new();
    for node in &nodes {
        start_node(node, "together", cleanup)?;
        urls.push(format!("mysql://root@127.0.0.1:{}/mysql", node.port));
    }
    Ok(urls)
}

struct Node {
    number: usize,
    data: PathBuf,
    port: u16,
    /// Of the group's own connections.
    group: u16,
    /// Of what a node missed.
    transfer: u16,
}
