//! Transactions of `AsyncPgConnection`, whose client does not say whether the server has one open.

use std::sync::atomic::{AtomicUsize, Ordering};

use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, SimpleAsyncConnection,
    TransactionManager,
};
use diesel_locks::prelude::*;
use diesel_locks::{Error, RetryPolicy};
use tokio::runtime::Builder;

use crate::support::Backend;
use crate::support::postgres::Postgres;

const FAILS_TO_SERIALIZE: &str = "DO $$ BEGIN RAISE serialization_failure; END $$";

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

async fn connect(database: &Postgres) -> AsyncPgConnection {
    let conn = AsyncPgConnection::establish(&database.url()).await;
    conn.expect("a connection")
}

/// A retry would repeat what is committed. In a transaction that the closure has begun itself, and that has failed, no statement
/// can tell: that is retried, on blocking connections too.
#[test]
fn closure_that_has_committed_is_not_retried_after_a_serialization_failure() {
    let database = Postgres::new();
    let runs = AtomicUsize::new(0);
    let result = run(async {
        let mut conn = connect(&database).await;
        let options = TransactionOptions::new().retry(RetryPolicy::max_attempts(3));
        let work = async |conn: &mut AsyncPgConnection| -> Result<(), Error> {
            runs.fetch_add(1, Ordering::SeqCst);
            let counted = "UPDATE counters SET n = n + 1 WHERE id = 0";
            conn.batch_execute(counted).await?;
            conn.batch_execute("COMMIT").await?;
            Ok(conn.batch_execute(FAILS_TO_SERIALIZE).await?)
        };
        conn.run_transaction(options, work).await
    });
    assert!(
        matches!(result, Err(Error::TransactionAborted { .. })),
        "{result:?}"
    );
    assert_eq!(runs.into_inner(), 1);
    assert_eq!(Postgres::counter(&mut database.connect(), 0), 1);
}

/// The server does not release the savepoint. It is rolled back to, as on blocking connections.
#[test]
fn closure_in_a_savepoint_that_ignores_an_error_leaves_the_transaction_usable() {
    let database = Postgres::new();
    run(async {
        let mut conn = connect(&database).await;
        let inner = async |conn: &mut AsyncPgConnection| -> Result<(), Error> {
            conn.batch_execute("UPDATE counters SET n = n + 1 WHERE id = 0")
                .await?;
            let _ = conn.batch_execute("SELECT 1 / 0").await;
            Ok(())
        };
        let work = async |conn: &mut AsyncPgConnection| -> Result<(), Error> {
            let result = conn.with_object_lock("inner", inner).await;
            result.expect_err("its work is undone");
            let status = AnsiTransactionManager::transaction_manager_status_mut(conn);
            let depth = status.transaction_depth()?;
            assert_eq!(depth.map(std::num::NonZero::get), Some(1));
            let counted = "UPDATE counters SET n = n + 1 WHERE id = 1";
            Ok(conn.batch_execute(counted).await?)
        };
        let result = Box::pin(conn.with_object_lock("outer", work));
        result.await.expect("committed");
    });
    let mut conn = database.connect();
    let counts = [0, 1].map(|id| Postgres::counter(&mut conn, id));
    assert_eq!(counts, [0, 1]);
}
