// A pool of connections to SQLite, in WAL mode and with a busy timeout: see the documentation of
// `diesel_locks::operation::sqlite`. The examples of the documentation include this file too.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error, Pool, PoolError};

#[derive(Debug)]
struct WalAndBusyTimeout;

impl CustomizeConnection<SqliteConnection, Error> for WalAndBusyTimeout {
    fn on_acquire(&self, conn: &mut SqliteConnection) -> Result<(), Error> {
        conn.batch_execute("PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL")
            .map_err(Error::QueryError)
    }
}

/// Two connections are enough for a renewer.
pub(crate) fn pool(url: &str) -> Result<Pool<ConnectionManager<SqliteConnection>>, PoolError> {
    Pool::builder()
        .max_size(2)
        .connection_customizer(Box::new(WalAndBusyTimeout))
        .build(ConnectionManager::new(url))
}
