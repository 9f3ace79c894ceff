//! Servers in Docker containers, for machines where none can be installed.

use std::process;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::private::{PrivateServer, RunDir, ServerRole, free_ports};
use crate::run::command;
use crate::servers::{Engine, Server};
use crate::{cleanup, mysql, postgres, run};

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
    run::succeeds("docker info")
}

pub(crate) fn start(engine: Engine, image: &str, run_dir: &RunDir) -> Result<Server> {
    println!("xtask: starting a container of {image}");
    if !run::succeeds(&format!("docker image inspect {image}")) {
        run::succeed(&mut command(&format!("docker pull {image}")))?;
    }
    let [port] = free_ports()?;
    let name = format!("diesel-locks-{}-{port}", process::id());
    cleanup::register("container", &name);
    let mut run = command(&format!(
        "docker run --rm --name {name} {VARIABLES} --publish"
    ));
    let psql = format!("docker exec {name} psql -X -h 127.0.0.1 -U postgres -At");
    let server = PrivateServer::new(run_dir, ServerRole::Regular, name);
    let stop = Signal::SIGTERM;
    if engine != Engine::Postgres {
        run.arg(format!("127.0.0.1:{port}:3306")).arg(image);
        run.args(mysql::settings(run_dir.durable));
        let url = format!("mysql://root@127.0.0.1:{port}/mysql");
        return server.start(&mut run, stop, &url, || mysql::title(port));
    }
    run.arg(format!("127.0.0.1:{port}:5432")).arg(image);
    run.args(["bash", "-c", POSTGRES_SCRIPT, "bash"]);
    run.args(postgres::settings(run_dir.durable));
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    // By TCP: while the image prepares its data, a server listens on the socket only.
    server.start(&mut run, stop, &url, || postgres::title(command(&psql)))
}
