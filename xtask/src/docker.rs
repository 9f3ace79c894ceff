//! Servers in Docker containers, for machines where none can be installed.

use std::fs::File;
use std::process::{self, Command};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::private::{PrivateServer, RunDir, ServerRole, free_port};
use crate::run::words;
use crate::servers::{Engine, Server};
use crate::{cleanup, mysql, postgres, programs, run};

/// The image that stands in for the machine's PostgreSQL.
pub(crate) const POSTGRES: &str = "postgres:17";
/// The image that stands in for the machine's MariaDB.
pub(crate) const MARIADB: &str = "mariadb:11.8";
/// Of PostgreSQL, MariaDB and MySQL: clients need no password.
const VARIABLES: &str = "--env POSTGRES_HOST_AUTH_METHOD=trust --env MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1 \
    --env MYSQL_ALLOW_EMPTY_PASSWORD=1";
/// Runs PostgreSQL. The image has no German locale, but what it is made of.
const POSTGRES_SCRIPT: &str = "localedef -i de_DE -c -f UTF-8 -A /usr/share/locale/locale.alias de_DE.UTF-8; \
    exec docker-entrypoint.sh postgres \"$@\"";

pub(crate) fn is_available() -> bool {
    programs::find("docker").is_some() && run::output(&mut docker("info")).is_ok()
}

pub(crate) fn start(engine: Engine, image: &str, run_dir: &RunDir) -> Result<Server> {
    println!("xtask: starting a container of {image}");
    let is_present = run::output(&mut docker(&format!("image inspect {image}"))).is_ok();
    if !is_present {
        run::succeed(&mut docker(&format!("pull {image}")))?;
    }
    let port = free_port()?;
    let name = &format!("diesel-locks-{}-{port}", process::id());
    let role = ServerRole::Regular;
    let server = PrivateServer {
        run_dir,
        role,
        name,
    };
    cleanup::register("container", name);
    let mut command = docker(&format!("run --rm --name {name} {VARIABLES} --publish"));
    let log = File::create(run_dir.path(&format!("{name}.log")))?;
    command.stdout(log.try_clone()?).stderr(log);
    if engine != Engine::Postgres {
        command.arg(format!("127.0.0.1:{port}:3306")).arg(image);
        command.args(mysql::settings(run_dir.durable));
        let url = format!("mysql://root@127.0.0.1:{port}/mysql");
        return server.start(&mut command, Signal::SIGTERM, &[], url, mysql::title);
    }
    command.arg(format!("127.0.0.1:{port}:5432")).arg(image);
    command.args(["bash", "-c", POSTGRES_SCRIPT, "bash"]);
    command.args(postgres::settings(run_dir.durable));
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    // By TCP: while the image prepares its data, a server listens on the socket only.
    let psql = || docker(&format!("exec {name} psql -X -h 127.0.0.1 -U postgres -At"));
    let title = |_: &str| postgres::title(psql());
    let started = server.start(&mut command, Signal::SIGTERM, &[], url, title)?;
    Ok(Server {
        has_locale_de: postgres::speaks_german(psql())?,
        ..started
    })
}

fn docker(arguments: &str) -> Command {
    let mut command = Command::new("docker");
    command.args(words(arguments));
    command
}
