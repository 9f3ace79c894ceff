//! PostgreSQL: private servers, which speak German when asked to, and one that is there already.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::cleanup::start_server;
use crate::private::{RunDir, ServerRole, account, free_port};
use crate::run::words;
use crate::servers::{Server, Source};
use crate::{docker, programs, run, url};

/// Settings of every private server: tests open many connections.
const SETTINGS: &str =
    "-c max_connections=300 -c max_prepared_transactions=10 -c shared_buffers=256MB";
/// For data that last for one run and need not survive a crash of the machine.
const NOT_DURABLE: &str = " -c fsync=off";

/// What makes a server say [`EXPECTED_MESSAGE`] when it speaks German: a test has to see that errors are recognised whichever
/// language the server speaks.
pub(crate) const GERMAN_QUERY: [&str; 4] =
    ["-c", "SET lc_messages = 'de_DE.UTF-8'", "-c", "SELECT 1/0"];
/// Part of PostgreSQL's German message for a division by zero.
pub(crate) const EXPECTED_MESSAGE: &str = "Division durch Null";
/// What the locale is made of, from Debian's package `locales`.
const LOCALE_SOURCE: &str = "/usr/share/i18n/locales/de_DE";

/// The settings for the server's command line.
pub(crate) fn settings(durable: bool) -> impl Iterator<Item = &'static str> {
    words(SETTINGS).chain(words(if durable { "" } else { NOT_DURABLE }))
}

/// The server of this source, after starting it.
pub(crate) fn open(source: &Source, run_dir: &RunDir, role: ServerRole) -> Result<Server> {
    match source {
        Source::Url(variable) => external(variable),
        Source::Docker(image) => docker::start_postgres(image, run_dir.durable),
        Source::Private => start(&programs::postgres()?, "private", run_dir, role),
        Source::Release(release) => start(&release.bin(), &release.origin(), run_dir, role),
    }
}

/// Starts a server with the programs of this directory.
fn start(programs: &Path, origin: &str, run_dir: &RunDir, role: ServerRole) -> Result<Server> {
    let account = account(&["postgres", "nobody"])?;
    let account = account.as_ref();
    let data = run_dir.directory(&role.name("postgres"), account)?;
    let sockets = run_dir.directory(&role.name("postgres-sockets"), account)?;
    let locales = run_dir.path(&role.name("locales"));
    create_locale(&locales)?;

    let mut initdb = run_dir.command(&programs.join("initdb"), account);
    initdb.args(words(
        "--auth=trust --username=postgres --locale=C --encoding=UTF8 --no-sync --pgdata",
    ));
    // Killed, it would leave a piece of shared memory behind.
    run::uninterrupted_output(initdb.arg(&data))?;

    let log = role.name("postgres.log");
    let mut command = role.command(run_dir, &programs.join("postgres"), account, &log)?;
    command
        .arg("-D")
        .arg(&data)
        .arg("-k")
        .arg(&sockets)
        .env("LOCPATH", &locales);
    command.args(settings(role.durable(run_dir)));
    command.args(
        role.connections()
            .map(|most| format!("-cmax_connections={most}")),
    );
    let (url, version) = listen(programs, &mut command).with_context(|| run_dir.log(&log))?;
    let (_, _, errors) = run::capture(psql(programs.join("psql"), &url).args(GERMAN_QUERY))?;
    if !errors.contains(EXPECTED_MESSAGE) {
        let errors = errors.trim_end();
        bail!(
            "the private PostgreSQL does not speak German, which a test needs; it said: {errors}"
        );
    }
    Ok(Server {
        title: format!("PostgreSQL {version}"),
        origin: origin.into(),
        url,
        has_locale_de: true,
        kill: role.kill_command(run_dir, &data.join("postmaster.pid"))?,
    })
}

/// Starts the server on a free port. Returns its URL and version.
fn listen(programs: &Path, command: &mut Command) -> Result<(String, String)> {
    let port = free_port()?;
    command.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    // Its immediate shutdown, which also ends the processes of the connections: they are in no group with the server.
    let version = start_server(command, Signal::SIGQUIT, || {
        version(psql(programs.join("psql"), &url))
    })?;
    Ok((url, version))
}

/// Starts a hot standby of a private server; the answer is its URL.
pub(crate) fn start_standby(run_dir: &RunDir, primary: &Server) -> Result<String> {
    let programs = programs::postgres()?;
    let account = account(&["postgres", "nobody"])?;
    let account = account.as_ref();
    let data = run_dir.directory("standby", account)?;
    let mut copy = run_dir.command(&programs.join("pg_basebackup"), account);
    copy.args(words("--write-recovery-conf --checkpoint=fast --no-sync"));
    run::output(copy.args(["--dbname", &primary.url, "--pgdata"]).arg(&data))?;
    let (role, log) = (ServerRole::Regular, "standby.log");
    let mut command = role.command(run_dir, &programs.join("postgres"), account, log)?;
    command
        .arg("-D")
        .arg(&data)
        .args(["-c", "unix_socket_directories="]);
    command.args(settings(false));
    let (url, _) = listen(&programs, &mut command).with_context(|| run_dir.log(log))?;
    Ok(url)
}

/// A server that is there already.
fn external(variable: &str) -> Result<Server> {
    let url = url::required(variable)?;
    if url::has_host(&url) {
        url::connect(&url, 5432)
            .with_context(|| format!("the server of {variable} does not answer"))?;
    }
    // The server sends its version after a login only, so psql asks for it. Without psql the version is not shown.
    let version = programs::find("psql").and_then(|program| version(psql(program, &url)).ok());
    let version = version.as_deref().unwrap_or("of unknown version");
    Ok(Server {
        title: format!("PostgreSQL {version}"),
        origin: format!("of {variable}"),
        url,
        has_locale_de: false,
        kill: None,
    })
}

/// The version of the server that psql connects to.
pub(crate) fn version(mut psql: Command) -> Result<String> {
    let printed = run::output(psql.args(["-c", "SHOW server_version"]))?;
    Ok(printed
        .split(' ')
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned())
}

fn psql(program: PathBuf, url: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(words("--no-psqlrc --no-password -At -d"))
        .arg(url);
    command.env("PGCONNECT_TIMEOUT", "5");
    command
}

/// Whether a German locale can be made.
pub(crate) fn can_create_locale() -> bool {
    programs::find("localedef").is_some() && Path::new(LOCALE_SOURCE).exists()
}

/// Makes a German locale in `directory`, which is then what `LOCPATH` has to name.
fn create_locale(directory: &Path) -> Result<()> {
    fs::create_dir(directory)?;
    let localedef = programs::find("localedef").context("there is no localedef")?;
    let made = directory.join("de_DE.UTF-8");
    // Its exit code is that of an error for warnings too.
    let (_, _, errors) = run::capture(
        Command::new(localedef)
            .args(words("-i de_DE -f UTF-8"))
            .arg(&made),
    )?;
    if !made.join("LC_MESSAGES").exists() {
        bail!(
            "localedef has not made {}: {}",
            made.display(),
            errors.trim_end()
        );
    }
    Ok(())
}

/// Whether the German messages of the PostgreSQL in this directory are installed.
pub(crate) fn has_german_messages(directory: &Path) -> bool {
    // `postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)`
    let version = programs::version(&directory.join("postgres")).unwrap_or_default();
    let version = version.split_once(") ").map_or("", |(_, version)| version);
    let major = version.split(|c: char| !c.is_ascii_digit()).next();
    let file = format!("de/LC_MESSAGES/postgres-{}.mo", major.unwrap_or_default());
    let own = run::output(Command::new(directory.join("pg_config")).arg("--localedir"));
    let own = own.unwrap_or_else(|_| "/usr/share/locale".to_owned());
    // Ubuntu moves translations into packages and a directory of their own.
    [own.trim(), "/usr/share/locale-langpack"]
        .iter()
        .any(|locales| Path::new(locales).join(&file).exists())
}
