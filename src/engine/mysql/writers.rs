//! Detects clusters in which several nodes take writes, where a lock excludes the sessions of one node only.

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Integer};

use crate::Error;
use crate::engine::mysql::execute;
use crate::engine::mysql::sql::{ANY_SIZE, ANY_SIZE_HINT, WRITER_UNKNOWN};
use crate::link::On;
use crate::link::raw_sql::statement;

statement! {
    Mysql;
    Unknown {} -> BigInt,
    |self| { "SELECT "; {WRITER_UNKNOWN} }
}

statement! {
    Mysql;
    Remember {} -> Integer,
    |self| { "SET @diesel_locks_one_writer = 1" }
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
    /// The kind of cluster, 1 or 2 as in [`find`], otherwise 0. A number, because a broken client library loses texts.
    Replication {} -> BigInt,
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT};
        "CASE \
         WHEN SUM(variable_name = 'wsrep_on' AND variable_value = 'ON') > 0 \
         AND SUM(variable_name = 'wsrep_provider' AND variable_value NOT IN ('', 'none')) > 0 \
         AND SUM(variable_name = 'pxc_strict_mode' AND variable_value = 'MASTER') = 0 THEN 1 \
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
    GroupReplication,
    TiDb,
    Vitess,
}

impl Cluster {
    pub(crate) fn refused(self) -> Error {
        let (cluster, hint) = match self {
            Self::Galera => (
                "Galera",
                "send all writes to one node and call diesel_locks::assume_single_writer on each connection, or \
                 use leases (try_acquire_slot), which hold on all nodes",
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

/// Returns the cluster to which the server belongs, unless the session knows that there is one writer.
pub(crate) async fn find(conn: &mut impl On<Mysql>) -> Result<Option<Cluster>, Error> {
    if execute::get_result::<_, i64>(conn, Unknown {}).await? == 0 {
        return Ok(None);
    }
    let product: i64 = execute::get_result(conn, Product {}).await?;
    let found = match product {
        0 => execute::get_result(conn, Replication {}).await?,
        product => product,
    };
    let cluster = match found {
        1 => Cluster::Galera,
        2 => Cluster::GroupReplication,
        3 => Cluster::TiDb,
        4 => Cluster::Vitess,
        _ => {
            remember(conn).await?;
            return Ok(None);
        }
    };
    Ok(Some(cluster))
}

/// Fails with [`Error::SeveralWriters`] if several nodes take writes, so that no lock excludes others. `unknown` is the
/// [`WRITER_UNKNOWN`] that a statement has returned.
pub(crate) async fn ensure_one(conn: &mut impl On<Mysql>, unknown: bool) -> Result<(), Error> {
    if unknown && let Some(cluster) = find(conn).await? {
        return Err(cluster.refused());
    }
    Ok(())
}

pub(crate) async fn remember(conn: &mut impl On<Mysql>) -> Result<(), Error> {
    execute::execute(conn, Remember {}).await?;
    Ok(())
}
