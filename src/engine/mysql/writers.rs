//! Detects clusters in which several nodes take writes, where a lock excludes the sessions of one node only.
//!
//! A user variable of the session stores that there is one writer. Statements that lock also return whether it is set,
//! so that the cluster is detected once per connection, and a lock takes no further round trip.

use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Integer};

use super::execute::Run;
use super::sql::limits::{ANY_SIZE, ANY_SIZE_HINT};
use super::sql::session_state::WRITER_UNKNOWN;
use crate::Error;
use crate::engine::raw_sql::{push, statement};
use crate::link::Link;

statement! {
    Mysql;
    /// Reads [`WRITER_UNKNOWN`].
    Unknown {} -> BigInt,
    |self, out| {
        out.push_sql("SELECT ");
        out.push_sql(WRITER_UNKNOWN);
    }
}

statement! {
    Mysql;
    Remember {} -> Integer,
    |self, out| {
        out.push_sql("SET @diesel_locks_one_writer = 1");
    }
}

statement! {
    Mysql;
    /// The products that are recognised by `VERSION()`: 3 or 4 as in [`find`], otherwise 0.
    Product {} -> BigInt,
    |self, out| {
        out.push_sql(
            "SELECT CASE WHEN VERSION() LIKE '%TiDB%' THEN 3 WHEN VERSION() LIKE '%Vitess%' THEN 4 ELSE 0 END",
        );
    }
}

statement! {
    Mysql;
    /// The kind of cluster, 1 or 2 as in [`find`], otherwise 0. A number, because a broken client library loses texts.
    Replication {} -> BigInt,
    |self, out| {
        push!(out;
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
        );
    }
}

/// Clusters in which several nodes take writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    Galera,
    GroupReplication,
    TiDb,
    Vitess,
}

impl Cluster {
    pub(super) fn refused(self) -> Error {
        let (cluster, instead) = match self {
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
        Error::SeveralWriters {
            cluster,
            hint: instead,
        }
    }
}

/// Returns the cluster to which the server belongs, unless the session knows that there is one writer.
pub(super) async fn find(conn: &mut impl Link<Backend = Mysql>) -> Result<Option<Cluster>, Error> {
    if (Unknown {}).get_result::<_, i64>(conn).await? == 0 {
        return Ok(None);
    }
    let product: i64 = Product {}.get_result(conn).await?;
    let found = match product {
        0 => Replication {}.get_result(conn).await?,
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
pub(super) async fn ensure_one(
    conn: &mut impl Link<Backend = Mysql>,
    unknown: bool,
) -> Result<(), Error> {
    if !unknown {
        return Ok(());
    }
    find(conn)
        .await?
        .map_or(Ok(()), |cluster| Err(cluster.refused()))
}

/// Stores in the session that there is one writer.
pub(super) async fn remember(conn: &mut impl Link<Backend = Mysql>) -> Result<(), Error> {
    Remember {}.execute(conn).await?;
    Ok(())
}
