//! Three primaries of Group Replication, of the MySQL 9 that is unpacked from Debian's packages.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::cleanup_process::CleanupProcess;
use crate::release::Release;
use crate::run_dir::{RunDir, account, free_port};
use crate::server_role::ServerRole;
use crate::{mysql_handshake, run};

const MEMBERS: usize = 3;

/// As whom a member gets what it missed.
const RECOVERY: &str = "SET sql_log_bin = 0;
CREATE USER recovery@'%' IDENTIFIED BY 'recovery';
GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO recovery@'%';
SET sql_log_bin = 1;
CHANGE REPLICATION SOURCE TO SOURCE_USER = 'recovery', SOURCE_PASSWORD = 'recovery' FOR CHANNEL 'group_replication_recovery';
";

/// Starts the members, and returns their URLs. They answer before they are members.
pub(super) fn start(run_dir: &RunDir, cleanup: &mut CleanupProcess) -> Result<Vec<String>> {
    let unpacked = Release::Mysql9.unpacked();
    unpacked.fetch()?;
    let program = unpacked.bin().join("mysqld");
    let plugins = unpacked.directory().join("usr/lib/mysql/plugin");
    let base = format!("--basedir={}", unpacked.directory().join("usr").display());
    let account = account(&["mysql", "nobody"])?;
    let account = account.as_ref();
    let sockets = run_dir.directory("group-sockets", account)?;
    let first = run_dir.directory("group-1", account)?;
    let mut install = run_dir.command(&program, account);
    install.args(["--no-defaults", "--initialize-insecure", &base]);
    run::output(install.arg(format!("--datadir={}", first.display())))?;
    // Each makes an identity of its own.
    fs::remove_file(first.join("auto.cnf"))?;
    for number in 2..=MEMBERS {
        let copy = run_dir.path(&format!("group-{number}"));
        run::output(Command::new("cp").arg("-a").arg(&first).arg(copy))?;
    }
    let mut ports = Vec::new();
    for _ in 0..MEMBERS {
        ports.push((free_port()?, free_port()?));
    }
    let seeds: Vec<String> = ports
        .iter()
        .map(|(_, group)| format!("127.0.0.1:{group}"))
        .collect();
    let mut urls = Vec::new();
    for (index, (port, group)) in ports.iter().enumerate() {
        let number = index + 1;
        let log = format!("group-{number}.log");
        let bootstrap = if number == 1 { "ON" } else { "OFF" };
        let statements = run_dir.path(&format!("group-{number}.sql"));
        fs::write(&statements, RECOVERY)?;
        let mut command = ServerRole::Regular.command(run_dir, &program, account, &log)?;
        command.args(["--no-defaults", &base]);
        command.args([
            format!(
                "--datadir={}",
                run_dir.path(&format!("group-{number}")).display()
            ),
            format!("--plugin-dir={}", plugins.display()),
            format!("--init-file={}", statements.display()),
            format!("--port={port}"),
            format!("--socket={}", sockets.join(port.to_string()).display()),
            format!(
                "--pid-file={}",
                sockets.join(format!("{port}.pid")).display()
            ),
            format!("--server-id={number}"),
            format!("--loose-group-replication-local-address=127.0.0.1:{group}"),
            format!("--loose-group-replication-group-seeds={}", seeds.join(",")),
            format!("--loose-group-replication-bootstrap-group={bootstrap}"),
        ]);
        command.args([
            "--bind-address=127.0.0.1",
            "--report-host=127.0.0.1",
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
            "--max-connections=300",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=0",
            "--sync-binlog=0",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--log-bin=binlog",
            "--plugin-load-add=group_replication.so",
            "--loose-group-replication-group-name=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
            "--loose-group-replication-single-primary-mode=OFF",
            "--loose-group-replication-enforce-update-everywhere-checks=ON",
            "--loose-group-replication-recovery-get-public-key=ON",
            "--loose-group-replication-start-on-boot=ON",
        ]);
        let server = cleanup.start_server(&mut command, Signal::SIGKILL)?;
        let answers = cleanup.wait_for(server, || {
            mysql_handshake::version(&("127.0.0.1".into(), *port))
        });
        answers.with_context(|| {
            format!(
                "a member of the group has not started\n{}",
                run_dir.log(&log)
            )
        })?;
        urls.push(format!("mysql://root@127.0.0.1:{port}/mysql"));
    }
    Ok(urls)
}
