// A pool of asynchronous connections to SQLite, in WAL mode and with a busy timeout: see the documentation of
// `diesel_locks::operation::sqlite`. The examples of the documentation include this file.

use diesel::{ConnectionError, SqliteConnection};
use diesel_async::AsyncConnection;
use diesel_async::pooled_connection::deadpool::{BuildError, Pool};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_locks::operation::sqlite::prepare_async;
use futures_util::FutureExt;

pub(crate) type Connection = SyncConnectionWrapper<SqliteConnection>;

/// Two connections are enough for a renewer.
pub(crate) fn pool(path: &str) -> Result<Pool<Connection>, BuildError> {
    let mut config = ManagerConfig::default();
    config.custom_setup = Box::new(|path| {
        async move {
            let mut conn = Connection::establish(path).await?;
            let prepared = prepare_async(&mut conn).await;
            prepared.map_err(ConnectionError::CouldntSetupConfiguration)?;
            Ok(conn)
        }
        .boxed()
    });
    let manager = AsyncDieselConnectionManager::new_with_config(path, config);
    Pool::builder(manager).max_size(2).build()
}
