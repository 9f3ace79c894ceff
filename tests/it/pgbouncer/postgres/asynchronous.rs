//! Connections of diesel-async. Their client prepares each statement under a name, also without a cache. Where PgBouncer does
//! not know of prepared statements, only those of transactions work.

use std::time::Duration;

use diesel::connection::CacheSize;
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use diesel_locks::Error;
use diesel_locks::prelude::*;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::support::Backend;
use crate::support::backend::counters;
use crate::support::pgbouncer::{Establishing, PgBouncer, Pooled};
use crate::support::postgres::Postgres;
use crate::support::threads::{begin, roll_back};
use crate::support::wrapped_backend::Wrapper;

/// The bodies of the core whose statements are in transactions.
mod in_transactions {
    use crate::behaviour as bodies;
    use crate::support::pgbouncer::AsyncPooled;

    crate::backend_tests!(AsyncPooled:
        exclusion::{
            waiter_gets_the_lock_when_the_holder_commits,
            waiter_gets_the_lock_when_the_holder_rolls_back,
        },
        contention::{
            thirty_two_connections_lose_no_update_on_a_transient_lock,
            thirty_two_connections_lose_no_update_on_a_kept_lock,
            thirty_two_connections_lose_no_update_on_both_kinds_of_locks,
            sixteen_connections_take_two_of_ten_ids_each,
            lock_object_in_own_transactions_loses_no_update,
        },
        waiting::{
            transaction_survives_a_timeout,
            no_wait_returns_unavailable,
        },
        nesting::{
            lock_is_reentrant,
            lock_in_a_savepoint_ends_as_documented,
            opposite_orders_deadlock_or_run_in_turn,
        },
        transaction_end::{
            closure_error_rolls_back_and_releases,
            panic_rolls_back_releases_and_propagates,
        },
        multi_lock::{
            all_or_none,
            order_of_ids_does_not_matter,
        },
    );
    mod sequences {
        use super::AsyncPooled;
        use crate::behaviour::sequences as bodies;

        crate::backend_tests!(AsyncPooled:
            numbering::{
                numbers_have_neither_gaps_nor_repeats,
                rolled_back_number_is_drawn_again,
                draw_blocks_until_previous_draw_commits,
                several_numbers_are_consecutive,
            },
        );
    }
    mod transactions {
        use super::AsyncPooled;
        use crate::behaviour::transactions as bodies;

        crate::backend_tests!(AsyncPooled:
            depth::{
                a_panic_in_a_nested_transaction_rolls_back_all,
            },
            retries::{
                deadlock_victims_are_retried_until_they_succeed,
            },
            upgrades::{
                readers_for_update_take_turns,
                same_order_does_not_deadlock,
            },
        );
    }
}

/// All statements, through a PgBouncer that tells prepared statements apart.
mod told_apart {
    use diesel_async::AsyncPgConnection;

    use crate::support::awaited::Awaited;
    use crate::support::pgbouncer::PooledApart;
    use crate::support::postgres::PostgresOn;

    type Database = PooledApart<PostgresOn<Awaited<AsyncPgConnection>>>;

    crate::statement_tests!(Database);
    crate::waiter_tests!(Database);
}

const TASKS: i64 = 16;
const ROUNDS: i64 = 5;

fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test);
}

async fn connect(url: &str) -> AsyncPgConnection {
    let establishing = Establishing::begin();
    loop {
        match AsyncPgConnection::establish(url).await {
            Ok(conn) => return conn,
            Err(error) => establishing.retry_after(&error),
        }
    }
}

/// The statement was prepared in the other session.
#[test]
fn named_prepared_statements_of_diesel_async_are_rejected_with_advice() {
    run(async {
        let database = Postgres::new();
        let two = PgBouncer::<2>::open(&database);
        let mut conn = connect(&two.url()).await;
        let slots = one();
        let lease = || LeaseOptions::new(Duration::from_secs(3600));
        conn.register_semaphores([&slots]).await.expect("register");
        let slot = conn.try_acquire_slot(&slots, lease()).await;
        assert!(slot.expect("its own").is_some());
        // Takes the session, so that the next statement gets the other one.
        let mut holder = Pooled::connect_to(&two.url());
        begin(&mut holder);
        Postgres::number(&mut holder, "SELECT pg_backend_pid()");
        let error = conn.try_acquire_slot(&slots, lease()).await;
        let error = error.expect_err("another session");
        assert!(
            matches!(error, Error::PreparedStatementMismatch { .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains("diesel-async"), "{text}");
        roll_back(&mut holder);
    });
}

/// More clients than sessions, so that each transaction may get another one.
#[test]
fn object_locks_and_draws_of_diesel_async_lose_no_update() {
    run(async {
        let database = Postgres::new();
        let two = PgBouncer::<2>::open(&database);
        let mut connections = Vec::new();
        for _ in 0..TASKS {
            let mut conn = connect(&two.url()).await;
            conn.set_prepared_statement_cache_size(CacheSize::Disabled);
            connections.push(conn);
        }
        let mut tasks = JoinSet::new();
        for mut conn in connections {
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    let lock = ObjectId::new("Counter", 1);
                    let counted = conn.with_object_lock(lock, async |conn| {
                        conn.next_number(&invoice()).await?;
                        Ok::<_, Error>(add_one(conn).await?)
                    });
                    counted.await.expect("free at last");
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no panic");
        }
        let mut conn = database.connect();
        let sql = "SELECT n FROM counters WHERE id = 1";
        assert_eq!(Postgres::number(&mut conn, sql), TASKS * ROUNDS);
        let last = conn.last_number(&invoice());
        assert_eq!(last.expect("a number"), Some(TASKS * ROUNDS));
    });
}

/// Adds one to a counter, by reading and writing it.
async fn add_one(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    let row = counters::table.find(1);
    let n: i64 = row.select(counters::n).first(conn).await?;
    let changed = diesel::update(row).set(counters::n.eq(n + 1));
    changed.execute(conn).await?;
    Ok(())
}

fn one() -> Semaphore {
    Semaphore::new("one", 1)
}

fn invoice() -> Sequence {
    Sequence::new("invoice")
}
