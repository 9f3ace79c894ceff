//! Detects clusters in which several nodes take writes, where a lock excludes the sessions of one node only.

use std::sync::atomic::{AtomicBool, Ordering};

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Integer};

use crate::Error;
use crate::engine::ending::autocommit_retry;
use crate::engine::mysql::execute;
use crate::engine::mysql::sql::{ANY_SIZE, ANY_SIZE_HINT};
use crate::link::On;
use crate::link::raw_sql::statement;

/// What the session knows: there is one writer, or the server is a node of Galera. 0 or nothing: not asked yet.
const ONE_WRITER: i64 = 1;
const GALERA: i64 = 2;

statement! {
    Mysql;
    Known {} -> BigInt,
    |self| { "SELECT CAST(COALESCE(@diesel_locks_one_writer, 0) AS SIGNED)" }
}

statement! {
    Mysql;
    Remember { known: i64 } -> Integer,
    |self| { "SET @diesel_locks_one_writer = ", BigInt = &self.known }
}

statement! {
    Mysql;
    /// The products that are recognised by `VERSION()`: 3 or 4 as in [`find`], otherwise 0.
    Product {} -> BigInt,
    |self| {
        "SELECT CASE WHEN VERSION() LIKE '%TiDB%' THEN 3 WHEN VERSION() LIKE '%Vitess%' THEN 4 ELSE 0 END"
    }
}

statement! {
    Mysql;
    /// The kind of cluster, 1, 2 or 5 as in [`find`], otherwise 0. A number, because a broken client library loses texts.
    Replication {} -> BigInt,
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT};
        "CASE \
         WHEN SUM(variable_name = 'wsrep_on' AND variable_value = 'ON') > 0 \
         AND SUM(variable_name = 'wsrep_provider' AND variable_value NOT IN ('', 'none')) > 0 \
         THEN CASE WHEN SUM(variable_name = 'pxc_strict_mode') = 0 THEN 1 \
         WHEN SUM(variable_name = 'pxc_strict_mode' AND variable_value = 'MASTER') = 0 THEN 5 ELSE 0 END \
         WHEN SUM(variable_name = 'group_replication_single_primary_mode' AND variable_value = 'OFF') > 0 \
         THEN 2 ELSE 0 END \
         FROM /*!80000 performance_schema.global_variables */\
         /*M!100100 information_schema.global_variables */ \
         WHERE variable_name IN ('wsrep_on', 'wsrep_provider', 'pxc_strict_mode', \
         'group_replication_single_primary_mode')";
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cluster {
    Galera,
    PerconaXtraDb,
    GroupReplication,
    TiDb,
    Vitess,
}

impl Cluster {
    pub(crate) fn refused(self) -> Error {
        let (cluster, hint) = match self {
            Self::Galera => (
                "Galera",
                "begin the transaction with run_transaction or a method of this crate, or send all writes to one node and \
                 call diesel_locks::assume_single_writer on each connection",
            ),
            Self::PerconaXtraDb => (
                "Percona XtraDB Cluster",
                "send all writes to one node and call diesel_locks::assume_single_writer on each connection",
            ),
            Self::GroupReplication => (
                "Group Replication with several primaries",
                "switch it to one primary, or send all writes to one and call diesel_locks::assume_single_writer on \
                 each connection, or use leases (try_acquire_slot), which hold on all members",
            ),
            Self::TiDb => ("TiDB", "use MySQL or MariaDB"),
            Self::Vitess => ("Vitess", "use MySQL or MariaDB"),
        };
        Error::SeveralWriters { cluster, hint }
    }
}

/// Whether a session of this process has found a node of Galera: only then others are asked before they lock.
static GALERA_FOUND: AtomicBool = AtomicBool::new(false);

/// Returns the cluster to which the server belongs, unless the session knows that there is one writer.
pub(crate) async fn find(conn: &mut impl On<Mysql>) -> Result<Option<Cluster>, Error> {
    match execute::get_result(conn, Known {}).await? {
        ONE_WRITER => return Ok(None),
        GALERA => return Ok(Some(Cluster::Galera)),
        _ => {}
    }
    let product: i64 = execute::get_result(conn, Product {}).await?;
    let found = match product {
        0 => execute::get_result(conn, Replication {}).await?,
        product => product,
    };
    let cluster = match found {
        1 => {
            remember(conn, GALERA).await?;
            GALERA_FOUND.store(true, Ordering::Relaxed);
            Cluster::Galera
        }
        2 => Cluster::GroupReplication,
        3 => Cluster::TiDb,
        4 => Cluster::Vitess,
        5 => Cluster::PerconaXtraDb,
        _ => {
            remember(conn, ONE_WRITER).await?;
            return Ok(None);
        }
    };
    Ok(Some(cluster))
}

/// Whether the session is on Galera. Sends nothing in a process that has not found a node of Galera.
pub(crate) async fn is_galera(conn: &mut impl On<Mysql>) -> Result<bool, Error> {
    if !GALERA_FOUND.load(Ordering::Relaxed) {
        return Ok(false);
    }
    // Galera may answer with the end of the transaction before.
    Ok(autocommit_retry!(conn, find(conn).await)? == Some(Cluster::Galera))
}

/// Whether what holds on one server was refused, and undone, because the server is a node of Galera.
pub(crate) fn is_refused_on_galera<T>(outcome: &Result<T, Error>) -> bool {
    matches!(
        outcome,
        Err(Error::SeveralWriters {
            cluster: "Galera",
            ..
        })
    )
}

/// Fails with [`Error::SeveralWriters`] if several nodes take writes, so that no row lock excludes others. `unknown` is the
/// [`WRITER_UNKNOWN`](super::sql::WRITER_UNKNOWN) that a statement has returned.
pub(crate) async fn ensure_one(conn: &mut impl On<Mysql>, unknown: bool) -> Result<(), Error> {
    if unknown && let Some(cluster) = find(conn).await? {
        return Err(cluster.refused());
    }
    Ok(())
}

/// Stores that all writes are sent to this server.
pub(crate) async fn assume_one(conn: &mut impl On<Mysql>) -> Result<(), Error> {
    remember(conn, ONE_WRITER).await
}

async fn remember(conn: &mut impl On<Mysql>, known: i64) -> Result<(), Error> {
    execute::execute(conn, Remember { known }).await?;
    Ok(())
}
