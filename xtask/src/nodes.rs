//! Clusters of private servers: three nodes of Galera, three members of MySQL's Group Replication, a source and its replica.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::private::{PrivateServer, RunDir, ServerRole, free_ports};
use crate::programs::MysqlServer;
use crate::release::MYSQL_9;
use crate::servers::Server;
use crate::{cleanup, mysql, run};

/// What replicates in Galera, below `/usr`; Debian's and Ubuntu's MariaDB bring it along.
const PROVIDERS: [&str; 2] = [
    "lib/galera/libgalera_smm.so",
    "lib/galera-4/libgalera_smm.so",
];

/// Nodes of a cluster. All begin with the data of the first: one history, so that none has to be sent all data of another.
struct Cluster<'a> {
    run_dir: &'a RunDir,
    programs: MysqlServer,
    name: &'a str,
    /// Of each node: for clients, for the cluster's own connections, for what a node missed, and for all data.
    ports: Vec<[u16; 4]>,
}

impl<'a> Cluster<'a> {
    /// Makes the data of the first node. There are ports for three.
    fn new(
        run_dir: &'a RunDir,
        programs: MysqlServer,
        name: &'a str,
        nodes: usize,
    ) -> Result<Self> {
        let ports = free_ports::<12>()?;
        let (ports, _) = ports.as_chunks();
        let cluster = Self {
            run_dir,
            programs,
            name,
            ports: ports[..nodes].to_vec(),
        };
        cluster.programs.create_data(run_dir, &cluster.node(0))?;
        Ok(cluster)
    }

    /// The name of a node's data directory.
    fn node(&self, node: usize) -> String {
        format!("{}-{}", self.name, node + 1)
    }

    /// Copies the data of the first node to the others, without what each makes of its own: an identity, and what Galera knows.
    fn copy_data(&self) -> Result<()> {
        let first = self.run_dir.path(&self.node(0));
        for node in 1..self.ports.len() {
            let copy = self.run_dir.path(&self.node(node));
            run::output(run::command("cp -a").args([&first, &copy]))?;
            for name in ["auto.cnf", "galera.cache", "gvwstate.dat"] {
                let _ = fs::remove_file(copy.join(name));
            }
        }
        Ok(())
    }

    fn members(&self) -> String {
        let address = |ports: &[u16; 4]| format!("127.0.0.1:{}", ports[1]);
        let members: Vec<String> = self.ports.iter().map(address).collect();
        members.join(",")
    }

    /// Starts a node with these options; with `first` too when it is started for the first time, and with what `recover` prints
    /// when it is started again.
    fn start(
        &self,
        role: ServerRole,
        node: usize,
        options: &str,
        first: String,
        recover: &'static str,
    ) -> Result<Server> {
        let mut server = PrivateServer::new(self.run_dir, role, self.node(node));
        server.first = first;
        server.recover = recover;
        let options = format!("--server-id={} {options}", node + 1);
        self.programs.start(&server, self.ports[node][0], &options)
    }
}

/// Where the data of a node end that was killed: from there on it has sent what it missed, and not all data.
const RECOVER: &str = "LD_PRELOAD= \"$@\" --wsrep-recover 2>&1 \
    | sed -n 's/.*Recovered position: /--wsrep-start-position=/p' | tail -n 1";

/// Starts three nodes of Galera, which is a part of MariaDB.
pub(crate) fn galera(
    run_dir: &RunDir,
    programs: MysqlServer,
    role: ServerRole,
) -> Result<Vec<Server>> {
    ensure!(
        programs.is_mariadb(),
        "there is no MariaDB server, of which Galera is a part"
    );
    let base = programs.base.clone().unwrap_or_else(|| "/usr".into());
    let mut providers = PROVIDERS.iter().map(|it| base.join(it));
    let provider = providers.find(|path| path.exists());
    let provider = provider
        .context("there is no Galera (Debian or Ubuntu, as root: apt-get install galera-4)")?;
    let provider = provider.display();
    let cluster = Cluster::new(run_dir, programs, "galera", 3)?;
    let start = |role: ServerRole, node: usize| {
        let [_, group, missed, all_data] = cluster.ports[node];
        let own = format!(
            "--wsrep-provider={provider} --wsrep-cluster-address=gcomm://{} --wsrep-node-name=node{node} \
             --wsrep-node-address=127.0.0.1:{group} --wsrep-provider-options=gcache.size=64M;\
             gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{missed} --wsrep-sst-receive-address=127.0.0.1:{all_data}",
            cluster.members(),
        );
        // With the plugin of MariaDB 11 no option of the provider, such as `gmcast.isolate`, can be set.
        let all = "--wsrep-on=ON --loose-plugin-wsrep-provider=OFF --wsrep-cluster-name=diesel-locks --binlog-format=ROW \
                   --innodb-autoinc-lock-mode=2 --innodb-log-file-size=32M";
        let bootstrap = if node == 0 { "--wsrep-new-cluster" } else { "" };
        // The kernel keeps what a killed process has written. It must be written at COMMIT: if the last node of the cluster is
        // killed, no other node has it.
        let durability = if role.is_killed() {
            "--skip-log-bin --innodb-flush-log-at-trx-commit=2"
        } else {
            mysql::NOT_DURABLE
        };
        let options = format!("{own} {all} {durability}");
        cluster.start(role, node, &options, bootstrap.to_owned(), RECOVER)
    };
    // The first node writes its history, and ends in good order.
    start(ServerRole::Regular, 0)?;
    cleanup::stop_last_server()?;
    cluster.copy_data()?;
    (0..3).map(|node| start(role, node)).collect()
}

/// As whom a member gets what it missed.
const RECOVERY: &str = "SET sql_log_bin = 0;
CREATE USER recovery@'%' IDENTIFIED BY 'recovery';
GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO recovery@'%';
SET sql_log_bin = 1;
CHANGE REPLICATION SOURCE TO SOURCE_USER = 'recovery', SOURCE_PASSWORD = 'recovery' FOR CHANNEL 'group_replication_recovery';
";

/// Starts three members of Group Replication, of the MySQL 9 that is unpacked from Debian's packages: one primary, if they are killed,
/// or else three. They answer before they are members.
pub(crate) fn group_replication(run_dir: &RunDir, role: ServerRole) -> Result<Vec<Server>> {
    let cluster = Cluster::new(run_dir, MYSQL_9.mysql_server(), "group", 3)?;
    cluster.copy_data()?;
    let statements = run_dir.write("recovery.sql", RECOVERY)?;
    let start = |node: usize| {
        let own = format!(
            "--loose-group-replication-local-address=127.0.0.1:{} --loose-group-replication-group-seeds={}",
            cluster.ports[node][1],
            cluster.members(),
        );
        let mut first = format!("--init-file={}", statements.display());
        if node == 0 {
            first.push_str(" --loose-group-replication-bootstrap-group=ON");
        }
        let all = "--report-host=127.0.0.1 --max-connections=300 --innodb-buffer-pool-size=64M \
                   --gtid-mode=ON --enforce-gtid-consistency=ON --log-bin=binlog \
                   --plugin-load-add=group_replication.so \
                   --loose-group-replication-group-name=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee \
                   --loose-group-replication-recovery-get-public-key=ON \
                   --loose-group-replication-start-on-boot=ON";
        let role_options = if role.is_killed() {
            // One primary. A member that the others have excluded, or do not let in, starts again at once: by default it tries again
            // after 1 and 5 minutes. They wait for it for 10 s, as by default: on a busy machine one may stall for 6 s, and if another
            // is killed meanwhile, the rest is no majority and nobody comes back.
            "--innodb-flush-log-at-trx-commit=2 --sync-binlog=0 \
             --loose-group-replication-exit-state-action=ABORT_SERVER \
             --loose-group-replication-autorejoin-tries=0 \
             --loose-group-replication-recovery-reconnect-interval=1"
        } else {
            "--innodb-flush-log-at-trx-commit=0 --sync-binlog=0 \
             --loose-group-replication-single-primary-mode=OFF \
             --loose-group-replication-enforce-update-everywhere-checks=ON"
        };
        let options = format!("{own} {all} {role_options}");
        cluster.start(role, node, &options, first, "")
    };
    (0..3).map(start).collect()
}

/// Starts two servers with the same data, so that the second can be a replica of the first.
pub(crate) fn source_and_replica(
    run_dir: &RunDir,
    programs: MysqlServer,
    name: &str,
) -> Result<Vec<Server>> {
    let cluster = Cluster::new(run_dir, programs, name, 2)?;
    cluster.copy_data()?;
    let log = "--log-bin=binlog --sync-binlog=0 --innodb-flush-log-at-trx-commit=0";
    let of_mysql = if cluster.programs.is_mariadb() {
        ""
    } else {
        "--gtid-mode=ON --enforce-gtid-consistency=ON \
         --plugin-load-add=semisync_source.so --plugin-load-add=semisync_replica.so"
    };
    let options = format!("{log} {of_mysql}");
    let start = |node| cluster.start(ServerRole::Regular, node, &options, String::new(), "");
    (0..2).map(start).collect()
}
