//! Servers in Docker containers, for machines where none can be installed.

use std::process::{self, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::run::words;
use crate::servers::Server;
use crate::{cleanup, mysql, postgres, programs, run, url};

/// The image that stands in for the machine's PostgreSQL.
pub(crate) const POSTGRES: &str = "postgres:17";
/// The image that stands in for the machine's MariaDB.
pub(crate) const MARIADB: &str = "mariadb:11.8";
/// How long the server in a container may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Whether containers can be started.
pub(crate) fn is_available() -> bool {
    programs::find("docker").is_some() && run::output(&mut docker("info")).is_ok()
}

/// Starts PostgreSQL.
pub(crate) fn start_postgres(image: &str, durable: bool) -> Result<Server> {
    // The image has no German locale, but what it is made of.
    let script = "localedef -i de_DE -c -f UTF-8 -A /usr/share/locale/locale.alias de_DE.UTF-8; exec docker-entrypoint.sh \"$@\"";
    let mut arguments = vec!["bash", "-c", script, "bash", "postgres"];
    arguments.extend(postgres::settings(durable));
    let name = start(image, "POSTGRES_HOST_AUTH_METHOD=trust", "5432", &arguments)?;
    // By TCP: while the image prepares its data, a server listens on the socket only.
    let psql = || docker(&format!("exec {name} psql -X -h 127.0.0.1 -U postgres -At"));
    let version = wait(&name, || postgres::version(psql()))?;
    let (_, _, errors) = run::capture(psql().args(postgres::GERMAN_QUERY))?;
    Ok(Server {
        title: format!("PostgreSQL {version}"),
        origin: format!("Docker, {image}"),
        url: format!(
            "postgres://postgres@127.0.0.1:{}/postgres",
            port(&name, "5432")?
        ),
        has_locale_de: errors.contains(postgres::EXPECTED_MESSAGE),
        kill: None,
    })
}

/// Starts MariaDB or MySQL.
pub(crate) fn start_mysql(image: &str, durable: bool) -> Result<Server> {
    let arguments: Vec<&str> = mysql::settings(durable).collect();
    let variable = if image.starts_with("mysql") {
        "MYSQL_ALLOW_EMPTY_PASSWORD=1"
    } else {
        "MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1"
    };
    let name = start(image, variable, "3306", &arguments)?;
    let url = format!("mysql://root@127.0.0.1:{}/mysql", port(&name, "3306")?);
    Ok(Server {
        title: wait(&name, || url::mysql_version(&url))?,
        origin: format!("Docker, {image}"),
        url,
        has_locale_de: false,
        kill: None,
    })
}

fn start(image: &str, variable: &str, port: &str, arguments: &[&str]) -> Result<String> {
    // MariaDB and MySQL have the same port.
    let kind = image.replace([':', '.'], "-");
    let name = format!("diesel-locks-{}-{kind}", process::id());
    println!("xtask: starting a container of {image}");
    cleanup::register_container(&name);
    let mut command = docker(&format!(
        "run --rm --detach --name {name} --publish 127.0.0.1::{port} --env {variable} {image}"
    ));
    let status = run::run(command.args(arguments))?;
    if !status.success() {
        bail!("docker run {image} failed ({status})");
    }
    Ok(name)
}

/// The port of 127.0.0.1 behind which the container's port is.
fn port(name: &str, port: &str) -> Result<u16> {
    let printed = run::output(&mut docker(&format!("port {name} {port}/tcp")))?;
    let line = printed.lines().next();
    let port = line.and_then(|line| line.rsplit_once(':')?.1.trim().parse().ok());
    port.with_context(|| format!("docker port has said '{}'", printed.trim_end()))
}

fn wait(name: &str, mut attempt: impl FnMut() -> Result<String>) -> Result<String> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() < START_TIMEOUT => sleep(Duration::from_millis(200)),
            Err(error) => {
                let mut logs = docker(&format!("logs --tail 20 {name}"));
                let (_, log, errors) = run::capture(&mut logs)?;
                return Err(error).context(format!("the server has not started\n{log}{errors}"));
            }
            version => return version,
        }
    }
}

fn docker(arguments: &str) -> Command {
    let mut command = Command::new("docker");
    command.args(words(arguments));
    command
}
