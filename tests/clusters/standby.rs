//! A hot standby of PostgreSQL.

use diesel::prelude::*;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::nodes::{Nodes, Tests, await_that};

pub(crate) const TESTS: Tests = &[(
    "lock_on_a_standby_is_read_only",
    lock_on_a_standby_is_read_only,
)];

fn lock_on_a_standby_is_read_only(nodes: &Nodes) {
    let mut primary = PgConnection::establish(&nodes.url(0, "postgres")).expect("the primary");
    diesel_locks::migrate(&mut primary).expect("migrate");
    let kept = ObjectLock::on("a").retention(Retention::Kept);
    primary
        .with_object_lock(&kept, |_| Ok::<_, Error>(()))
        .expect("free");
    let mut standby = PgConnection::establish(&nodes.url(1, "postgres")).expect("the standby");
    await_that(|| {
        diesel::sql_query("SELECT 'diesel_sequences'::regclass")
            .execute(&mut standby)
            .is_ok()
    });
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = ObjectLock::on("a").retention(retention);
        let read_only = |result: Result<(), Error>| {
            let error = result.expect_err("a standby");
            assert!(error.is_read_only(), "{error:?}");
        };
        read_only(standby.with_object_lock(&lock, |_| Ok(())));
        read_only(standby.try_with_object_lock(&lock, |_| Ok(())).map(|_| ()));
        read_only(standby.transaction(|conn| conn.lock_object(&lock)));
    }
    for transaction in [
        Transaction::new().isolation(Isolation::Serializable),
        Transaction::new().read_write(),
    ] {
        let error = standby
            .run_transaction(transaction, |_| Ok::<_, Error>(()))
            .expect_err("a standby");
        assert!(error.is_read_only(), "{error:?}");
    }
}
