//! What a closure leaves behind, and when its snapshot is taken.

use diesel::connection::SimpleConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel};

use crate::support::Backend;
use crate::support::postgres::Postgres;

/// A prepared transaction keeps its locks without a session.
#[test]
fn prepared_transaction_is_named() {
    let database = Postgres::new();
    let mut conn = database.connect();
    let limit = "SELECT current_setting('max_prepared_transactions')::bigint";
    if Postgres::number(&mut conn, limit) == 0 {
        return;
    }
    let result = conn.run_transaction(TransactionOptions::new(), |conn| {
        Postgres::count_up(conn, 0);
        Postgres::sql(conn, "PREPARE TRANSACTION 'left behind'");
        Ok::<_, Error>(())
    });
    let error = result.expect_err("not committed");
    assert!(error.is_transaction_aborted(), "{error:?}");
    assert!(error.to_string().contains("'left behind'"), "{error}");
    Postgres::sql(&mut conn, "ROLLBACK PREPARED 'left behind'");
    assert_eq!(Postgres::counter(&mut conn, 0), 0);
    let result = conn.run_transaction(TransactionOptions::new(), |conn| {
        Postgres::sql(conn, "COMMIT");
        Ok::<_, Error>(())
    });
    let error = result.expect_err("not committed");
    assert!(!error.to_string().contains("prepared"), "{error}");
}

/// At BEGIN it would be older than the locks on tables that the closure takes first.
#[test]
fn snapshot_is_taken_by_the_first_query_of_the_closure() {
    let database = Postgres::new();
    let (mut conn, mut other) = (database.connect(), database.connect());
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let before = Postgres::counter(&mut other, 0);
        let options = TransactionOptions::new().isolation(level);
        let seen = conn.run_transaction(options, |conn| {
            conn.batch_execute("LOCK TABLE diesel_locks_sequences IN SHARE MODE")?;
            Postgres::count_up(&mut other, 0);
            Ok::<_, Error>(Postgres::counter(conn, 0))
        });
        assert_eq!(seen.expect("no conflict"), before + 1);
    }
}
