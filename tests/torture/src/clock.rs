//! The database's clock, which can be set.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer};
use torture_history::Moment;

use crate::cluster::Cluster;
use crate::database::{Database, primary};
use crate::sessions::Sessions;

/// How long a server that was killed, or has no connection left, is waited for.
const TIMEOUT: Duration = Duration::from_secs(60);
/// `FAKETIME_CACHE_DURATION` is 1 second, which it counts in whole ones.
const LAG: Duration = Duration::from_millis(2200);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// PostgreSQL looks at its clock in signal handlers too, where libfaketime may wait for itself for ever. But which
/// function is meant by a name can be said there: the database's own comes second.
const POSTGRES: &str = "\
    CREATE SCHEMA torture_clock; \
    CREATE TABLE torture_clock.setting (port bigint PRIMARY KEY, ahead interval NOT NULL); \
    CREATE FUNCTION torture_clock.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS \
    'BEGIN RETURN pg_catalog.clock_timestamp() + \
    (SELECT ahead FROM torture_clock.setting WHERE port = CAST(pg_catalog.current_setting(''port'') AS bigint)); END'";

/// The database's clock, which can be set.
#[derive(Clone)]
pub(crate) enum Clock {
    /// By a file that libfaketime reads: each time that somebody asks for the time where several processes have this
    /// clock; a little later in a server's one process, which would be busy with little else.
    File { path: PathBuf, lag: Duration },
    /// By a row of the primary, for the node that calls its port so.
    Postgres {
        cluster: Option<Cluster>,
        urls: Vec<String>,
        port: i64,
    },
}

impl Clock {
    /// The clocks of a PostgreSQL database on all nodes, for sessions that begin from now on.
    pub(crate) fn for_postgres(database: &Database, name: &str) -> Result<Vec<Self>> {
        let mut conn: PgConnection = database.connect()?;
        conn.batch_execute(POSTGRES)?;
        conn.batch_execute(&format!(
            "ALTER DATABASE {name} SET search_path = torture_clock, pg_catalog, public"
        ))?;
        let clocks = (0..database.urls.len()).map(|node| {
            // The server's own: it may be reached by another.
            let mut server: PgConnection = database.connect_to(node)?;
            let port = server.number("SELECT CAST(current_setting('port') AS bigint) AS number")?;
            diesel::sql_query("INSERT INTO torture_clock.setting VALUES ($1, '0')")
                .bind::<BigInt, _>(port)
                .execute(&mut conn)?;
            Ok(Self::Postgres {
                cluster: database.cluster,
                urls: database.urls.clone(),
                port,
            })
        });
        clocks.collect()
    }

    /// The clock of a server, or of the workers (SQLite).
    pub(crate) fn for_file(path: PathBuf, of_workers: bool) -> Self {
        let lag = if of_workers { Duration::ZERO } else { LAG };
        Self::File { path, lag }
    }

    /// Sets the clock so many seconds ahead of the right time: between which moments it was set.
    pub(crate) fn set(&self, seconds: i32) -> Result<(Moment, Moment)> {
        let from = Moment::now();
        match self {
            Self::File { path: file, lag } => {
                // At once, not by a file that is empty for a moment.
                let next = file.with_extension("next");
                fs::write(&next, format!("{seconds:+}s\n"))?;
                fs::rename(&next, file).with_context(|| file.display().to_string())?;
                sleep(*lag);
            }
            Self::Postgres {
                cluster,
                urls,
                port,
            } => {
                let started = Instant::now();
                while let Err(error) = primary(*cluster, urls)
                    .and_then(|primary| set_row(&urls[primary], *port, seconds))
                {
                    if started.elapsed() > TIMEOUT {
                        return Err(error.context("can't set the clock"));
                    }
                    sleep(PAUSE);
                }
            }
        }
        Ok((from, Moment::now()))
    }
}

fn set_row(url: &str, port: i64, seconds: i32) -> Result<()> {
    let mut conn = PgConnection::establish(url)?;
    diesel::sql_query(
        "UPDATE torture_clock.setting SET ahead = make_interval(secs => $1) WHERE port = $2",
    )
    .bind::<Integer, _>(seconds)
    .bind::<BigInt, _>(port)
    .execute(&mut conn)?;
    Ok(())
}
