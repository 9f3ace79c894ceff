//! `cargo xtask clusters`: the tests of clusters, with three nodes of Galera, three of MySQL's Group Replication, and a PostgreSQL
//! with a hot standby.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::unistd::User;

use crate::cargo::{ALL, cargo};
use crate::private::{RunDir, ServerRole, free_port};
use crate::programs::{self, MysqlServer};
use crate::release::Release;
use crate::run::words;
use crate::servers::{Plan, Source};
use crate::{cleanup, mysql, postgres, run, setup};

/// What replicates in Galera; Debian's and Ubuntu's MariaDB bring it along.
const PROVIDERS: [&str; 2] = [
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib/galera-4/libgalera_smm.so",
];

/// `cargo xtask clusters`: the exit code is that of the tests.
pub(crate) fn clusters(test_arguments: &[String]) -> Result<u8> {
    let start = Instant::now();
    setup::prepare(Plan {
        postgres: Some(Source::Private),
        mysql: vec![Source::Private, Source::Release(Release::Mysql9)],
        ..Plan::default()
    })?;
    let tests = || {
        let mut command = cargo(["test", "--test", "clusters"]);
        command.args(ALL);
        command
    };
    let built = run::run(tests().arg("--no-run"))?;
    if !built.success() {
        return Ok(run::code(built));
    }

    let run_dir = &RunDir::create(false)?;
    let user = mysql::server_account()?;
    let mut command = tests();
    command.arg("--").args(test_arguments);
    let galera = galera(run_dir, user.as_ref())?;
    command.env("GALERA_DATABASE_URLS", galera.join(","));
    let group = group_replication(run_dir, user.as_ref())?;
    command.env("GROUP_REPLICATION_DATABASE_URLS", group.join(","));
    let primary = postgres::open(&Source::Private, run_dir, ServerRole::Regular)?;
    let standby = postgres::start_standby(run_dir, &primary)?;
    command.env(
        "PG_STANDBY_DATABASE_URLS",
        format!("{},{standby}", primary.url),
    );
    println!(
        "xtask: {} nodes of Galera, {} of Group Replication, {} with a standby",
        galera.len(),
        group.len(),
        primary.title
    );
    let code = run::code(run::run(&mut command)?);
    println!("xtask: {} s, exit code {code}", start.elapsed().as_secs());
    Ok(code)
}

/// A member of a cluster.
struct Node {
    number: usize,
    /// Of its data directory.
    name: String,
    port: u16,
    /// The port of the cluster's own connections.
    group: u16,
    /// The port of what a node missed.
    transfer: u16,
}

/// Nodes of a cluster. All begin with the data of the first: one history, so that none has to be sent all data of another.
struct Cluster<'a> {
    run_dir: &'a RunDir,
    user: Option<&'a User>,
    programs: MysqlServer,
    sockets: PathBuf,
    nodes: Vec<Node>,
}

impl<'a> Cluster<'a> {
    fn new(
        run_dir: &'a RunDir,
        user: Option<&'a User>,
        programs: MysqlServer,
        name: &str,
        nodes: usize,
    ) -> Result<Self> {
        let sockets = run_dir.directory(&format!("{name}-sockets"), user)?;
        let nodes = (1..=nodes).map(|number| -> Result<Node> {
            Ok(Node {
                number,
                name: format!("{name}-{number}"),
                port: free_port()?,
                group: free_port()?,
                transfer: free_port()?,
            })
        });
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        programs.create_data(run_dir, &nodes[0].name, user)?;
        Ok(Self {
            run_dir,
            user,
            programs,
            sockets,
            nodes,
        })
    }

    /// Copies the data of the first node to the others, without what each makes of its own.
    fn copy_data(&self, own: &[&str]) -> Result<()> {
        let first = self.run_dir.path(&self.nodes[0].name);
        for node in &self.nodes[1..] {
            let copy = self.run_dir.path(&node.name);
            run::output(Command::new("cp").arg("-a").args([&first, &copy]))?;
            for name in own {
                let _ = fs::remove_file(copy.join(name));
            }
        }
        Ok(())
    }

    /// The addresses of all members.
    fn members(&self) -> String {
        let members: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.group))
            .collect();
        members.join(",")
    }

    /// Starts a node with these options, and returns its URL.
    fn start(&self, node: &Node, options: &[&str]) -> Result<String> {
        let Self {
            run_dir,
            user,
            programs,
            sockets,
            ..
        } = self;
        let (role, log) = (ServerRole::Regular, format!("{}.log", node.name));
        let mut command = role.command(run_dir, &programs.server, *user, &log)?;
        programs.add_directories(&mut command, &run_dir.path(&node.name));
        command
            .arg(format!("--server-id={}", node.number))
            .args(options.iter().flat_map(|options| words(options)));
        let started = mysql::listen(&mut command, sockets, node.port);
        let (url, _) = started.with_context(|| run_dir.log(&log))?;
        Ok(url)
    }
}

/// Starts three nodes of Galera, which is a part of MariaDB, and returns their URLs.
fn galera(run_dir: &RunDir, user: Option<&User>) -> Result<Vec<String>> {
    let programs = programs::mysql()?;
    programs
        .install
        .as_ref()
        .context("there is no MariaDB server, of which Galera is a part")?;
    let provider = PROVIDERS
        .iter()
        .find(|path| Path::new(path).exists())
        .context("there is no Galera (Debian or Ubuntu, as root: apt-get install galera-4)")?;
    let cluster = Cluster::new(run_dir, user, programs, "galera", 3)?;
    let start = |node: &Node| {
        let (number, group, transfer) = (node.number, node.group, node.transfer);
        let own = format!(
            "--wsrep-provider={provider} --wsrep-cluster-address=gcomm://{} --wsrep-node-name=node{number} \
             --wsrep-node-address=127.0.0.1:{group} --wsrep-provider-options=gcache.size=16M;\
             gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{transfer} {}",
            cluster.members(),
            if number == 1 {
                "--wsrep-new-cluster"
            } else {
                ""
            },
        );
        let all = "--wsrep-on=ON --wsrep-cluster-name=diesel-locks --binlog-format=ROW \
                   --innodb-autoinc-lock-mode=2 --innodb-log-file-size=32M";
        cluster.start(node, &[&own, all, mysql::SETTINGS, mysql::NOT_DURABLE])
    };
    // The first node writes its history, and ends in good order.
    let alone = &cluster.nodes[0];
    start(alone)?;
    cleanup::stop_last_server()?;
    cluster.copy_data(&["galera.cache", "gvwstate.dat"])?;
    cluster.nodes.iter().map(start).collect()
}

/// As whom a member gets what it missed.
const RECOVERY: &str = "SET sql_log_bin = 0;
CREATE USER recovery@'%' IDENTIFIED BY 'recovery';
GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO recovery@'%';
SET sql_log_bin = 1;
CHANGE REPLICATION SOURCE TO SOURCE_USER = 'recovery', SOURCE_PASSWORD = 'recovery' FOR CHANNEL 'group_replication_recovery';
";

/// Starts three primaries of Group Replication, of the MySQL 9 that is unpacked from Debian's packages, and returns their
/// URLs. They answer before they are members.
fn group_replication(run_dir: &RunDir, user: Option<&User>) -> Result<Vec<String>> {
    let programs = Release::Mysql9.mysql_server();
    let plugins = Release::Mysql9.usr().join("lib/mysql/plugin");
    let cluster = Cluster::new(run_dir, user, programs, "group", 3)?;
    // Each makes an identity of its own.
    cluster.copy_data(&["auto.cnf"])?;
    let statements = run_dir.path("recovery.sql");
    fs::write(&statements, RECOVERY)?;
    let start = |node: &Node| {
        let own = format!(
            "--plugin-dir={} --init-file={} --loose-group-replication-local-address=127.0.0.1:{} \
             --loose-group-replication-group-seeds={} --loose-group-replication-bootstrap-group={}",
            plugins.display(),
            statements.display(),
            node.group,
            cluster.members(),
            if node.number == 1 { "ON" } else { "OFF" },
        );
        let all = "--report-host=127.0.0.1 --max-connections=300 --innodb-buffer-pool-size=64M \
                   --innodb-flush-log-at-trx-commit=0 --sync-binlog=0 --gtid-mode=ON --enforce-gtid-consistency=ON \
                   --log-bin=binlog --plugin-load-add=group_replication.so \
                   --loose-group-replication-group-name=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee \
                   --loose-group-replication-single-primary-mode=OFF \
                   --loose-group-replication-enforce-update-everywhere-checks=ON \
                   --loose-group-replication-recovery-get-public-key=ON \
                   --loose-group-replication-start-on-boot=ON";
        cluster.start(node, &[&own, all, mysql::ONLY_MYSQL])
    };
    cluster.nodes.iter().map(start).collect()
}
