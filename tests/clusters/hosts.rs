//! URLs with several hosts of PostgreSQL, one of which takes writes.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::Integer;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, bb8};
use diesel_locks::prelude::*;
use diesel_locks::{LockPool, RetryPolicy};

use crate::nodes::{Nodes, Tests, await_that};

/// After the promotion of the standby both servers take writes, until a test forbids it to one.
pub(crate) const TESTS: Tests = &[
    (
        "transaction_follows_the_promotion_over_several_hosts",
        transaction_follows_the_promotion_over_several_hosts,
    ),
    (
        "asynchronous_transaction_follows_the_promotion_over_several_hosts",
        asynchronous_transaction_follows_the_promotion_over_several_hosts,
    ),
];

/// The servers in this order, of which a connection is led to the first that takes writes.
fn several_hosts(nodes: &Nodes) -> String {
    let parts = |node| {
        let url = nodes.url(node, "postgres");
        let (before, after) = url.split_once('@').expect("a user");
        let (host, _) = after.split_once('/').expect("a database");
        (before.to_owned(), host.to_owned())
    };
    let ((user, first), (_, second)) = (parts(0), parts(1));
    format!("{user}@{first},{second}/postgres?target_session_attrs=read-write&connect_timeout=5")
}

fn forbid_writes(nodes: &Nodes, node: usize, forbidden: bool) {
    let mut operator = PgConnection::establish(&nodes.url(node, "postgres")).expect("the server");
    let set = if forbidden { "on" } else { "off" };
    operator
        .batch_execute(&format!(
            "ALTER SYSTEM SET default_transaction_read_only = {set}"
        ))
        .expect("set");
    operator
        .batch_execute("SELECT pg_reload_conf()")
        .expect("read");
    let is_set =
        format!("SELECT 1 WHERE current_setting('default_transaction_read_only') = '{set}'");
    await_that(|| diesel::sql_query(&is_set).execute(&mut operator) == Ok(1));
}

/// The second server takes the writes of the first, whose sessions of this application are ended.
fn fail_over(nodes: &Nodes, application: &str) {
    forbid_writes(nodes, 0, true);
    forbid_writes(nodes, 1, false);
    let mut operator = PgConnection::establish(&nodes.url(0, "postgres")).expect("the server");
    let ended = diesel::sql_query(format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{application}'"
    ));
    let ended = ended.execute(&mut operator).expect("sessions");
    assert_ne!(ended, 0, "no session to end");
}

/// The test of the promotion has made the second server a primary.
fn begin(nodes: &Nodes) {
    let mut second = PgConnection::establish(&nodes.url(1, "postgres")).expect("the server");
    let is_primary = diesel::sql_query("SELECT 1 WHERE NOT pg_is_in_recovery()");
    let rows = is_primary.execute(&mut second);
    assert_eq!(rows, Ok(1), "run all tests of `standby::`");
    forbid_writes(nodes, 0, false);
    forbid_writes(nodes, 1, true);
}

/// The first attempt was on one server, the second on the other.
fn has_followed(nodes: &Nodes, ports: &[i32]) {
    forbid_writes(nodes, 0, false);
    let [first, second] = ports else {
        panic!("attempts on {ports:?}");
    };
    assert_ne!(first, second);
}

fn retries() -> TransactionOptions {
    TransactionOptions::new().retry(RetryPolicy::max_attempts(5))
}

fn transaction_follows_the_promotion_over_several_hosts(nodes: &Nodes) {
    begin(nodes);
    let url = format!("{}&application_name=blocking_hosts", several_hosts(nodes));
    let manager = ConnectionManager::<PgConnection>::new(url);
    let pool = Pool::builder().max_size(2).build(manager).expect("a pool");
    let mut ports = Vec::new();
    let locked = LockPool::new(pool).run_transaction(retries(), |conn| {
        conn.lock_object("several hosts")?;
        let port = diesel::dsl::sql::<Integer>("current_setting('port')::integer");
        ports.push(diesel::select(port).get_result::<i32>(conn)?);
        if ports.len() == 1 {
            fail_over(nodes, "blocking_hosts");
        }
        conn.lock_object("again")
    });
    locked.expect("on the other server");
    has_followed(nodes, &ports);
}

fn asynchronous_transaction_follows_the_promotion_over_several_hosts(nodes: &Nodes) {
    begin(nodes);
    let url = format!("{}&application_name=async_hosts", several_hosts(nodes));
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let ports = std::sync::Mutex::new(Vec::new());
    runtime.block_on(async {
        let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
        let pool = bb8::Pool::builder().max_size(2).build(manager).await;
        let locks = LockPool::new(pool.expect("a pool"));
        let locked = locks.run_transaction(retries(), async |conn| {
            conn.lock_object("several hosts").await?;
            let port = diesel::dsl::sql::<Integer>("current_setting('port')::integer");
            let port: i32 =
                diesel_async::RunQueryDsl::get_result(diesel::select(port), conn).await?;
            let attempts = {
                let mut ports = ports.lock().expect("no panic");
                ports.push(port);
                ports.len()
            };
            if attempts == 1 {
                fail_over(nodes, "async_hosts");
            }
            conn.lock_object("again").await
        });
        locked.await.expect("on the other server");
    });
    has_followed(nodes, &ports.into_inner().expect("no panic"));
}
