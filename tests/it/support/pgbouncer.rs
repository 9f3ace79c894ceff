//! PgBouncer in transaction mode between a test and its database.

use std::fs::{File, Permissions};
use std::io::Write;
use std::marker::PhantomData;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use diesel::ConnectionError;
use diesel::connection::{CacheSize, Connection};
use diesel::pg::PgConnection;
use diesel_async::AsyncPgConnection;
use diesel_locks::Error;

use super::Backend;
use super::awaited::Awaited;
use super::postgres::{Postgres, PostgresOn};
use super::wrapped_backend::{WrappedBackend, Wrapper};

/// How long it may take to come up on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

const LOG: &str = "log";

/// The variable with the path of a PgBouncer that is 1.21 or newer.
const NEWER: &str = "DIESEL_LOCKS_TEST_PGBOUNCER";

/// Runs its arguments until they end or its input does, as it does when the test ends, however that ends.
const UNTIL_THE_TEST_ENDS: &str =
    "exec 3<&0; \"$@\" & pid=$!; { cat <&3 > /dev/null; kill -9 $pid 2> /dev/null; } & wait $pid";

/// A PgBouncer of the test's own, with `POOL` connections to the server.
pub(crate) struct PgBouncer<const POOL: u32> {
    process: Child,
    url: String,
    directory: tempfile::TempDir,
}

/// With statements that are not prepared by name, as an application has to set it.
pub(crate) type Pooled = WrappedBackend<PgBouncer<12>>;

/// Connections of diesel-async through a PgBouncer that mixes up their statements outside of transactions.
pub(crate) type AsyncPooled = WrappedBackend<AsyncPgBouncer<12>>;

/// With statements that are prepared by name, as by default, through a PgBouncer that tells them apart.
pub(crate) type PooledApart<D> = WrappedBackend<PgBouncerApart<D, 12>>;

/// For connections of diesel-async.
pub(crate) struct AsyncPgBouncer<const POOL: u32>(PgBouncer<POOL>);

/// 1.21 or newer, for databases of `D`.
pub(crate) struct PgBouncerApart<D, const POOL: u32>(PgBouncer<POOL>, PhantomData<D>);

impl<const POOL: u32> PgBouncer<POOL> {
    /// Starts the machine's PgBouncer, with more settings. Disables `max_prepared_statements`, so that all versions behave alike.
    pub(crate) fn with(database: &impl Backend, settings: &str) -> Self {
        let program = installed();
        let apart = if tells_statements_apart(&program) {
            "max_prepared_statements = 0"
        } else {
            ""
        };
        Self::of(&program, database, &format!("{apart}\n{settings}"))
    }

    fn of(program: &Path, database: &impl Backend, settings: &str) -> Self {
        let mut said = String::new();
        let server = database.url();
        let (_, name) = server.rsplit_once('/').expect("a database");
        // Should another take the port first.
        for _ in 0..5 {
            let port = free_port();
            let configuration = configuration(&server, port, POOL, settings);
            let directory = tempfile::tempdir().expect("a temporary directory");
            let mut pgbouncer = Self {
                process: start(program, directory.path(), &configuration),
                url: format!("postgres://anybody@127.0.0.1:{port}/{name}"),
                directory,
            };
            if pgbouncer.is_ready() {
                return pgbouncer;
            }
            said = pgbouncer.said();
        }
        panic!("PgBouncer does not start: {said}");
    }

    /// Ends all sessions of the database.
    fn disconnect(&self, database: &impl Backend) {
        database.disconnect_sessions();
        // PgBouncer notices each when it hands it to a client.
        let started = Instant::now();
        while !Pooled::is_reachable(&self.url) {
            assert!(started.elapsed() < TIMEOUT, "{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its log.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default()
    }

    /// `false` when it has ended by itself.
    fn is_ready(&mut self) -> bool {
        let started = Instant::now();
        loop {
            match PgConnection::establish(&self.url) {
                // Not another's who was quicker to take the port: that would not know our database.
                Ok(_) => return true,
                Err(_) if self.process.try_wait().expect("our child").is_some() => return false,
                Err(error) => assert!(
                    started.elapsed() < TIMEOUT,
                    "PgBouncer does not answer: {error}; {}",
                    self.said()
                ),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl<const POOL: u32> Wrapper for PgBouncer<POOL> {
    type Inner = Postgres;

    const NAME: &'static str = "pgbouncer";
    /// Beside the one that they wait for.
    const SESSIONS: i64 = POOL as i64 - 1;

    fn open(database: &Postgres) -> Self {
        Self::with(database, "")
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    fn disconnect_sessions(&self, database: &Postgres) {
        self.disconnect(database);
    }

    fn prepare(conn: &mut PgConnection) {
        conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    }
}

impl<const POOL: u32> Wrapper for AsyncPgBouncer<POOL> {
    type Inner = PostgresOn<Awaited<AsyncPgConnection>>;

    /// Subprocesses have Diesel's connections.
    const NAME: &'static str = PgBouncer::<POOL>::NAME;
    const SESSIONS: i64 = PgBouncer::<POOL>::SESSIONS;

    fn open(database: &Self::Inner) -> Self {
        Self(PgBouncer::with(database, ""))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn disconnect_sessions(&self, database: &Self::Inner) {
        self.0.disconnect(database);
    }

    fn connect(url: &str) -> Awaited<AsyncPgConnection> {
        let establishing = Establishing::begin();
        loop {
            match Awaited::establish(url) {
                Ok(conn) => return conn,
                Err(error) => establishing.retry_after(&error),
            }
        }
    }

    /// In a transaction.
    fn try_number(conn: &mut Awaited<AsyncPgConnection>, sql: &str) -> Result<i64, Error> {
        conn.transaction(|conn| Self::Inner::try_number(conn, sql))
    }

    fn prepare(conn: &mut Awaited<AsyncPgConnection>) {
        conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    }
}

impl<D: Backend, const POOL: u32> Wrapper for PgBouncerApart<D, POOL> {
    type Inner = D;

    /// Subprocesses have Diesel's connections, without a cache.
    const NAME: &'static str = PgBouncer::<POOL>::NAME;
    const SESSIONS: i64 = PgBouncer::<POOL>::SESSIONS;

    fn open(database: &Self::Inner) -> Self {
        let settings = "max_prepared_statements = 200";
        Self(PgBouncer::of(&newer(), database, settings), PhantomData)
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn disconnect_sessions(&self, database: &Self::Inner) {
        self.0.disconnect(database);
    }
}

/// Retries, as a pool does, while diesel-async establishes a connection. The statements with which it prepares the connection
/// are outside of transactions: while PgBouncer closes a statement of another connection in one session, they may be prepared
/// in that session and executed in another.
pub(crate) struct Establishing(Instant);

impl Establishing {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Panics if the error has another reason, or has come for too long.
    pub(crate) fn retry_after(&self, error: &ConnectionError) {
        let has_time = self.0.elapsed() < TIMEOUT;
        let error = error.to_string();
        // The second text: the statement of that name is another connection's, and has another result.
        let is_mismatch = ["prepared statement", "unexpected message from server"]
            .iter()
            .any(|text| error.contains(text));
        assert!(is_mismatch && has_time, "{error}");
    }
}

impl<const POOL: u32> Drop for PgBouncer<POOL> {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

fn start(program: &Path, directory: &Path, configuration: &str) -> Child {
    let path = directory.join("pgbouncer.ini");
    let mut file = File::create(&path).expect("a file");
    // It may contain a password. PgBouncer reads it before it changes to another user.
    file.set_permissions(Permissions::from_mode(0o600))
        .expect("its owner");
    file.write_all(configuration.as_bytes()).expect("write");
    let log = File::create(directory.join(LOG)).expect("a file");
    let mut command = Command::new("sh");
    command.args(["-c", UNTIL_THE_TEST_ENDS, "sh"]).arg(program);
    // It refuses to be root.
    if std::fs::metadata("/proc/self").expect("Linux").uid() == 0 {
        command.args(["-u", "nobody"]);
    }
    command
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("a shell")
}

/// Every client may connect, as the user in the server's URL.
fn configuration(server: &str, port: u16, pool: u32, settings: &str) -> String {
    let (_, rest) = server.split_once("://").expect("a URL");
    let (authority, database) = rest.split_once('/').expect("a database");
    let (database, _) = database.split_once('?').unwrap_or((database, ""));
    let (user, address) = authority.rsplit_once('@').expect("a user");
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let (host, server_port) = address.rsplit_once(':').unwrap_or((address, "5432"));
    // An empty one would be an error.
    let password = match password {
        "" => String::new(),
        password => format!(" password={password}"),
    };
    format!(
        "[databases]\n\
         {database} = host={host} port={server_port} dbname={database} user={user}{password}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {pool}\n\
         max_client_conn = 500\n\
         {settings}\n"
    )
}

/// Whether it is 1.21 or newer.
fn tells_statements_apart(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    let output = output.expect("it says its version").stdout;
    let text = String::from_utf8_lossy(&output);
    let version = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("PgBouncer "));
    let mut numbers = version
        .expect("its version")
        .split('.')
        .map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0_u32);
    (next(), next()) >= (1, 21)
}

/// One that is 1.21 or newer.
fn newer() -> PathBuf {
    let program = std::env::var_os(NEWER).map_or_else(installed, PathBuf::from);
    assert!(
        tells_statements_apart(&program),
        "{} is older than PgBouncer 1.21: `cargo xtask test` unpacks a newer one, or set {NEWER} to the path of one",
        program.display()
    );
    program
}

fn installed() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // Where Debian has it, which is not in the PATH of everybody.
        .chain([PathBuf::from("/usr/sbin")])
        .map(|directory| directory.join("pgbouncer"))
        .find(|program| program.is_file())
        .expect(
            "PgBouncer is missing, through which tests of PostgreSQL go: `cargo xtask setup` installs it, \
             or `apt-get install pgbouncer`",
        )
}
