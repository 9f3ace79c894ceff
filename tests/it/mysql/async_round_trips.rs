//! Round trips of locks on asynchronous connections.

use crate::schema::mysql::diesel_locks_objects as objects;
use diesel::QueryDsl;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, RunQueryDsl};
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};
use tokio::runtime::Builder;

use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::proxy::CountingProxy;

/// A query that is prepared once.
async fn read(conn: &mut AsyncMysqlConnection) -> Result<i64, Error> {
    Ok(objects::table.count().get_result(conn).await?)
}

/// BEGIN, the query and COMMIT are three.
#[test]
fn round_trips_are_none_for_a_free_transient_lock_and_one_for_a_kept() {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let database = Mysql::new();
        // The client would go to the server's socket, past the proxy.
        let (proxy, url) = CountingProxy::url(&database.url());
        let mark = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{mark}prefer_socket=false");
        let conn = AsyncMysqlConnection::establish(&url).await;
        let mut conn = conn.expect("a connection");
        let mut bare = 0;
        for _ in 0..2 {
            let transaction =
                conn.transaction(async |conn: &mut AsyncMysqlConnection| read(conn).await);
            bare = proxy
                .count_async(async { transaction.await.expect("commit") })
                .await;
        }
        assert_eq!(bare, 3);
        for (retention, added) in [(Retention::Transient, 0), (Retention::Kept, 1)] {
            let mut taken = Vec::new();
            for _ in 0..2 {
                let lock = LockRequest::new("a").retention(retention);
                let locked = conn
                    .with_object_lock(lock, async |conn: &mut AsyncMysqlConnection| {
                        read(conn).await
                    });
                let locked = async { locked.await.expect("free") };
                taken.push(proxy.count_async(locked).await);
            }
            // The first time prepares statements, and makes the row.
            assert_eq!(taken[1], bare + added, "{retention:?}");
        }
    });
}
