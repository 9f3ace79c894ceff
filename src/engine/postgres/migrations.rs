//! Migrations, by one session at a time.

use diesel::pg::Pg;

use super::sql;
use crate::Error;
use crate::link::{self, Link};
use crate::migrations::backend::MigrationBackend;
use crate::migrations::files::{BackendMigrations, MigrationFile, migration_files};
use crate::migrations::runner;

impl BackendMigrations for Pg {
    const FILES: &'static [MigrationFile] = migration_files!("postgres");
}

impl<C: Link<Backend = Pg>> MigrationBackend<C> for Pg {
    async fn migrate(conn: &mut C) -> Result<Vec<String>, Error> {
        // In a transaction, so that the advisory lock ends with it, also behind a transaction pooler. At a higher
        // isolation level it would not see the migrations of the session that it has waited for.
        conn.begin(sql::BEGIN_READ_COMMITTED).await?;
        let ran = lock_and_run(conn).await;
        link::end(conn, ran).await
    }
}

async fn lock_and_run(conn: &mut impl Link<Backend = Pg>) -> Result<Vec<String>, Error> {
    let version: String = conn.get_result(sql::server_version()).await?;
    if let Some(cluster) = cluster_of(&version) {
        let instead = "use PostgreSQL";
        return Err(Error::SeveralWriters {
            cluster,
            hint: instead,
        });
    }
    conn.execute(sql::lock_migrations()).await?;
    let pending = runner::pending(conn).await?;
    runner::run_all(conn, pending).await
}

/// The name of a database that speaks PostgreSQL's protocol but takes writes on several nodes. These have no advisory
/// locks, or only in some versions.
fn cluster_of(version: &str) -> Option<&'static str> {
    if version.starts_with("CockroachDB") {
        Some("CockroachDB")
    } else if version.contains("-YB-") {
        Some("YugabyteDB")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::cluster_of;

    #[test]
    fn clusters_are_known_by_their_version() {
        let cockroach =
            "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2)";
        assert_eq!(cluster_of(cockroach), Some("CockroachDB"));
        let yugabyte =
            "PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang, 64-bit";
        assert_eq!(cluster_of(yugabyte), Some("YugabyteDB"));
        let debian = "PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, 64-bit";
        assert_eq!(cluster_of(debian), None);
    }
}
