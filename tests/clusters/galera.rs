//! Galera: what holds on all of its nodes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread::scope;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Retention, RetryPolicy, migrate};

use crate::nodes::{Database, Nodes, Tests, await_that, number};
use crate::writers::{minute, read_committed, refused};

pub(crate) const TESTS: Tests = &[
    ("all_nodes_migrate_at_once", all_nodes_migrate_at_once),
    (
        "object_locks_exclude_sessions_of_all_nodes",
        object_locks_exclude_sessions_of_all_nodes,
    ),
    (
        "locks_in_a_transaction_exclude_sessions_of_all_nodes",
        locks_in_a_transaction_exclude_sessions_of_all_nodes,
    ),
    (
        "locks_of_diesel_async_exclude_sessions_of_all_nodes",
        locks_of_diesel_async_exclude_sessions_of_all_nodes,
    ),
    (
        "wait_for_a_lock_on_another_node_ends_in_time",
        wait_for_a_lock_on_another_node_ends_in_time,
    ),
    (
        "deadlock_between_nodes_ends_after_the_servers_limit",
        deadlock_between_nodes_ends_after_the_servers_limit,
    ),
    (
        "commit_that_lost_is_never_reported_as_done",
        commit_that_lost_is_never_reported_as_done,
    ),
    (
        "transaction_that_another_node_ends_leaves_the_session_as_it_was",
        transaction_that_another_node_ends_leaves_the_session_as_it_was,
    ),
    (
        "lock_in_a_savepoint_that_is_rolled_back",
        lock_in_a_savepoint_that_is_rolled_back,
    ),
    (
        "refused_request_leaves_no_rows",
        refused_request_leaves_no_rows,
    ),
    (
        "transactions_hold_slots_on_all_nodes",
        transactions_hold_slots_on_all_nodes,
    ),
    (
        "transactions_hold_several_permits_on_all_nodes",
        transactions_hold_several_permits_on_all_nodes,
    ),
    (
        "pinned_slot_is_not_granted_on_another_node",
        pinned_slot_is_not_granted_on_another_node,
    ),
    (
        "slot_is_pinned_on_another_node_as_soon_as_it_is_granted",
        slot_is_pinned_on_another_node_as_soon_as_it_is_granted,
    ),
    (
        "numbers_drawn_on_all_nodes_have_no_gaps",
        numbers_drawn_on_all_nodes_have_no_gaps,
    ),
    (
        "transactions_of_diesel_are_refused",
        transactions_of_diesel_are_refused,
    ),
    (
        "settings_of_the_session_are_restored",
        settings_of_the_session_are_restored,
    ),
];

/// Afterwards there are two nodes.
pub(crate) const LAST_TESTS: Tests = &[
    (
        "node_without_a_quorum_is_a_lost_connection",
        node_without_a_quorum_is_a_lost_connection,
    ),
    (
        "locks_of_a_killed_node_are_freed",
        locks_of_a_killed_node_are_freed,
    ),
];

diesel::table! { counters (id) { id -> Integer, n -> BigInt } }

/// A database with the tables of this crate and a table of counters, in which counter 1 is 0.
fn with_counter(nodes: &Nodes) -> Database {
    let database = Database::migrated(nodes);
    database
        .on(0)
        .batch_execute(
            "CREATE TABLE counters (id INTEGER PRIMARY KEY, n BIGINT NOT NULL); INSERT INTO counters VALUES (1, 0)",
        )
        .expect("a table");
    for node in 1..nodes.len() {
        let mut conn = database.on(node);
        let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() \
                      AND table_name = 'counters'";
        await_that(|| {
            number(&mut conn, tables) == 1
                && number(&mut conn, "SELECT COUNT(*) FROM counters") == 1
        });
    }
    database
}

/// Reads the counter and writes what follows: an update is lost if two do it at a time, or if one reads what is outdated.
fn count_up(conn: &mut MysqlConnection) -> Result<(), Error> {
    let counter = counters::table.find(1);
    let n: i64 = counter.select(counters::n).first(conn)?;
    let changed = diesel::update(counter)
        .set(counters::n.eq(n + 1))
        .execute(conn)?;
    assert_eq!(changed, 1);
    Ok(())
}

/// Calls `work` until this many of its transactions are committed. Others may be ended by those of other nodes: then nothing is
/// committed.
#[track_caller]
fn until_committed(transactions: i64, mut work: impl FnMut(i64) -> Result<(), Error>) -> i64 {
    let mut done = 0;
    while done < transactions {
        match work(done) {
            Ok(()) => done += 1,
            Err(error) => assert!(is_ended(&error), "{error:?}"),
        }
    }
    done
}

fn is_ended(error: &Error) -> bool {
    error.is_retryable() || error.is_transaction_aborted()
}

/// How many are in it.
#[derive(Default)]
struct Inside(AtomicI64);

impl Inside {
    fn enter<T>(&self, permits: i64, work: impl FnOnce() -> T) -> T {
        let now = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= permits, "{now} at a time, where {permits} may be");
        let result = work();
        self.0.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

/// Runs `work` in two threads for each node at the same time, and returns the sum of what they return.
fn on_all_nodes(
    database: &Database,
    work: impl Fn(usize, &mut MysqlConnection) -> i64 + Sync,
) -> i64 {
    let threads = 2 * database.nodes.len();
    let start = Barrier::new(threads);
    scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (work, start) = (&work, &start);
                scope.spawn(move || {
                    let mut conn = database.on(thread);
                    start.wait();
                    work(thread, &mut conn)
                })
            })
            .collect();
        let done = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        done.sum()
    })
}

#[track_caller]
fn assert_counted(database: &Database, counted: i64) {
    for node in 0..database.nodes.len() {
        let mut conn = database.on(node);
        conn.batch_execute("SET wsrep_sync_wait = 1").expect("set");
        assert_eq!(
            number(&mut conn, "SELECT n FROM counters"),
            counted,
            "updates are lost, or made twice"
        );
    }
}

const ROUNDS: i64 = 20;

fn object_locks_exclude_sessions_of_all_nodes(nodes: &Nodes) {
    for retention in [Retention::Transient, Retention::Kept] {
        for ids in [&["a"][..], &["a", "b", "c d"]] {
            let database = with_counter(nodes);
            let inside = Inside::default();
            let done = on_all_nodes(&database, |thread, conn| {
                let mut ids: Vec<_> = ids.iter().map(|id| ObjectId::from(*id)).collect();
                // Nobody detects a deadlock between nodes: the crate has to sort them.
                if thread % 2 == 1 {
                    ids.reverse();
                }
                let lock = LockRequest::all(ids).retention(retention);
                until_committed(ROUNDS, |_| {
                    conn.with_object_lock(&lock, |conn| inside.enter(1, || count_up(conn)))
                })
            });
            assert_counted(&database, done);
            let rows = number(
                &mut database.on(0),
                "SELECT COUNT(*) FROM diesel_locks_objects",
            );
            let kept = i64::from(retention == Retention::Kept);
            assert_eq!(rows, kept * i64::try_from(ids.len()).expect("few"));
        }
    }
}

fn committed() -> TransactionOptions {
    TransactionOptions::new()
        .isolation(IsolationLevel::ReadCommitted)
        .retry(RetryPolicy::max_attempts(1000))
}

fn locks_in_a_transaction_exclude_sessions_of_all_nodes(nodes: &Nodes) {
    for retention in [Retention::Transient, Retention::Kept] {
        let database = with_counter(nodes);
        let done = on_all_nodes(&database, |_, conn| {
            let lock = LockRequest::new("a").retention(retention);
            until_committed(ROUNDS, |round| {
                conn.run_transaction(committed(), |conn| {
                    if round % 2 == 0 {
                        conn.lock_object(&lock)?;
                        return count_up(conn);
                    }
                    conn.with_object_lock(&lock, count_up)
                })
            })
        });
        assert_counted(&database, done);
    }
}

fn locks_of_diesel_async_exclude_sessions_of_all_nodes(nodes: &Nodes) {
    use diesel_async::{AsyncConnection, AsyncMysqlConnection, RunQueryDsl as Async};

    let database = with_counter(nodes);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let tasks = 2 * nodes.len();
    let done = runtime.block_on(async {
        let tasks: Vec<_> = (0..tasks)
            .map(|task| {
                let url = database.url(task);
                tokio::spawn(async move {
                    let mut conn = AsyncMysqlConnection::establish(&url)
                        .await
                        .expect("connect");
                    let mut done = 0;
                    while done < ROUNDS {
                        let result =
                            conn.with_object_lock("a", async |conn| -> Result<(), Error> {
                                let counter = counters::table.find(1);
                                let n: i64 =
                                    Async::first(counter.select(counters::n), conn).await?;
                                let up = diesel::update(counter).set(counters::n.eq(n + 1));
                                Async::execute(up, conn).await?;
                                Ok(())
                            });
                        match result.await {
                            Ok(()) => done += 1,
                            Err(error) => assert!(is_ended(&error), "{error:?}"),
                        }
                    }
                    done
                })
            })
            .collect();
        let mut done = 0;
        for task in tasks {
            done += task.await.expect("no panic");
        }
        done
    });
    assert_counted(&database, done);
}

fn wait_for_a_lock_on_another_node_ends_in_time(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        let (held, is_held) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        scope(|scope| {
            let (database, lock) = (&database, &lock);
            let holder = scope.spawn(move || {
                database.on(0).with_object_lock(lock, |_| {
                    held.send(()).expect("awaited");
                    ended.recv().expect("sent");
                    Ok::<_, Error>(())
                })
            });
            is_held.recv().expect("held");
            for node in 1..nodes.len() {
                let mut conn = database.on(node);
                // The change takes a moment to reach the node, which no request needs: each asks all nodes.
                for _ in 0..2 {
                    let seen = conn
                        .try_with_object_lock(lock, |_| Ok::<_, Error>(()))
                        .expect("an answer");
                    assert_eq!(seen, None);
                    let limit = Duration::from_millis(300);
                    let started = Instant::now();
                    let limited = lock.clone().wait(Wait::AtMost(limit));
                    let error = conn
                        .with_object_lock(&limited, |_| Ok::<_, Error>(()))
                        .expect_err("held");
                    assert!(matches!(error, Error::LockTimeout { .. }), "{error:?}");
                    assert!(started.elapsed() >= limit);
                    let inside = conn.run_transaction(committed(), |conn| {
                        assert!(!conn.try_lock_object(lock)?.is_acquired());
                        // The transaction goes on.
                        Ok::<_, Error>(number(conn, "SELECT 1"))
                    });
                    assert_eq!(inside.expect("committed"), 1);
                }
            }
            let waiter = scope.spawn(move || {
                let mut conn = database.on(1);
                conn.with_object_lock(lock, |_| Ok::<_, Error>(()))
            });
            end.send(()).expect("awaited");
            holder.join().expect("no panic").expect("committed");
            waiter.join().expect("no panic").expect("free by now");
        });
    }
}

/// No server detects it.
fn deadlock_between_nodes_ends_after_the_servers_limit(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let at_level = TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = |id: &str| LockRequest::new(id).retention(retention);
        let both_hold = Barrier::new(2);
        let ends = scope(|scope| {
            let (database, both_hold) = (&database, &both_hold);
            [(0, "a", "b"), (1, "b", "a")]
                .map(|(node, first, second)| {
                    scope.spawn(move || {
                        let mut conn = database.on(node);
                        conn.batch_execute("SET SESSION innodb_lock_wait_timeout = 2")
                            .expect("set");
                        conn.run_transaction(at_level, |conn| {
                            conn.lock_object(lock(first))?;
                            both_hold.wait();
                            conn.lock_object(lock(second))
                        })
                    })
                })
                .map(|thread| thread.join().expect("no panic"))
        });
        let errors: Vec<Error> = ends.into_iter().filter_map(Result::err).collect();
        assert!(!errors.is_empty(), "both hold both");
        for error in errors {
            assert!(error.is_timeout(), "{error:?}");
        }
    }
}

/// The closures hold locks on different objects, and change one row of the application: conflicts that only COMMIT, or the
/// statement that meets the end of its transaction, can tell of.
fn commit_that_lost_is_never_reported_as_done(nodes: &Nodes) {
    let database = with_counter(nodes);
    let done = on_all_nodes(&database, |thread, conn| {
        let mut done = 0;
        for round in 0..5 * ROUNDS {
            let id = format!("{thread}-{round}");
            let result = conn.with_object_lock(&*id, |conn| {
                let counter = counters::table.find(1);
                // Diesel prepares this anew each time.
                let up = counters::n.eq(counters::n + 1);
                diesel::update(counter).set(up).execute(conn)?;
                let n: i64 = counter.select(counters::n).first(conn)?;
                assert!(n > 0);
                Ok::<_, Error>(())
            });
            match result {
                Ok(()) => done += 1,
                Err(error) => assert!(is_ended(&error), "{error:?}"),
            }
        }
        done
    });
    assert!(done > 0);
    assert_counted(&database, done);
}

/// It has changed a row, for which another node may end it at any statement, before it locks.
fn transaction_that_another_node_ends_leaves_the_session_as_it_was(nodes: &Nodes) {
    let database = with_counter(nodes);
    let done = on_all_nodes(&database, |thread, conn| {
        until_committed(5 * ROUNDS, |round| {
            let once = TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);
            let result = conn.run_transaction(once, |conn| {
                let up = diesel::update(counters::table.find(1));
                up.set(counters::n.eq(counters::n + 1)).execute(conn)?;
                conn.lock_object(&*format!("{thread}-{round}"))?;
                conn.next_number(&Sequence::new("invoice").for_key(thread))?;
                Ok(())
            });
            // The end of the transaction may be the answer to the next statement.
            let _ = conn.batch_execute("DO 0");
            let session = "SELECT COALESCE(@diesel_locks_one_writer, 2) = 2 AND @@autocommit \
                           AND @@SESSION.wsrep_trx_fragment_size = 0";
            assert_eq!(number(conn, session), 1);
            result
        })
    });
    assert_counted(&database, done);
}

fn assert_no_rows(database: &Database) {
    for node in 0..database.nodes.len() {
        let mut conn = database.on(node);
        conn.batch_execute("SET wsrep_sync_wait = 1").expect("set");
        assert_eq!(
            number(&mut conn, "SELECT COUNT(*) FROM diesel_locks_objects"),
            0
        );
    }
}

fn lock_in_a_savepoint_that_is_rolled_back(nodes: &Nodes) {
    for writes_before in [false, true] {
        let database = with_counter(nodes);
        let mut conn = database.on(0);
        let done = conn.run_transaction(committed(), |conn| {
            if writes_before {
                count_up(conn)?;
            }
            let undone = conn.with_object_lock("a", |conn| {
                count_up(conn)?;
                Err::<(), _>(Error::from(diesel::result::Error::RollbackTransaction))
            });
            undone.expect_err("rolled back");
            conn.lock_object("b")?;
            let other = database
                .on(1)
                .try_with_object_lock("b", |_| Ok::<_, Error>(()))?;
            assert_eq!(other, None);
            count_up(conn)
        });
        done.expect("committed");
        assert_counted(&database, 1 + i64::from(writes_before));
        assert_no_rows(&database);
    }
}

fn refused_request_leaves_no_rows(nodes: &Nodes) {
    let database = with_counter(nodes);
    let held = database.on(0).with_object_lock("b", |_| {
        let done = database.on(1).run_transaction(committed(), |conn| {
            let error = conn
                .try_lock_object(["a", "b"])
                .expect_err("the first is acquired");
            assert!(matches!(error, Error::PartlyLocked { .. }), "{error:?}");
            count_up(conn)
        });
        done.expect("committed");
        Ok::<_, Error>(())
    });
    held.expect("free");
    assert_counted(&database, 1);
    assert_no_rows(&database);
}

fn transactions_hold_slots_on_all_nodes(nodes: &Nodes) {
    for permits in [1, 2] {
        let database = with_counter(nodes);
        let semaphore = Semaphore::new("reports", permits);
        let inside = Inside::default();
        let done = on_all_nodes(&database, |thread, conn| {
            let mut done = 0;
            for _ in 0..ROUNDS {
                let work = |conn: &mut MysqlConnection| {
                    inside.enter(permits.into(), || {
                        if permits == 1 {
                            count_up(conn)?;
                        }
                        Ok::<_, Error>(())
                    })
                };
                let held = if thread % 2 == 0 {
                    conn.try_with_slot(&semaphore, work)
                } else {
                    conn.with_slot(&semaphore, Wait::Forever, work).map(Some)
                };
                match held {
                    Ok(held) => done += i64::from(held.is_some()),
                    // Nothing is committed.
                    Err(error) => assert!(is_ended(&error), "{error:?}"),
                }
            }
            assert!(done > 0);
            done
        });
        if permits == 1 {
            assert_counted(&database, done);
        }
    }
}

/// Two requests together are for more permits than there are.
fn transactions_hold_several_permits_on_all_nodes(nodes: &Nodes) {
    let database = with_counter(nodes);
    let semaphore = Semaphore::new("reports", 3);
    let inside = Inside::default();
    let done = on_all_nodes(&database, |thread, conn| {
        let permits = if thread % 2 == 0 { 2 } else { 3 };
        until_committed(5, |_| {
            conn.with_slots(&semaphore, permits, Wait::Forever, |conn| {
                inside.enter(1, || count_up(conn))
            })
        })
    });
    assert_counted(&database, done);
}

fn slot_is_pinned_on_another_node_as_soon_as_it_is_granted(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let one = Semaphore::new("one", 1);
    let [mut holder, mut other] = [0, 1].map(|node| database.on(node));
    for round in 0..100 {
        let slot = holder.try_acquire_slot(&one, minute());
        let slot = slot.expect("an answer").expect("free");
        until_committed(1, |_| {
            other.run_transaction(committed(), |conn| {
                let pinned = conn.pin_slot(&slot);
                assert!(
                    !matches!(pinned, Err(Error::SlotLost { .. })),
                    "{round}: {pinned:?}"
                );
                pinned
            })
        });
        // Not while the pin is on its way to the node of the holder.
        await_that(|| holder.release_slot(&slot).is_ok());
    }
}

fn pinned_slot_is_not_granted_on_another_node(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let one = Semaphore::new("one", 1);
    let mut holder = database.on(0);
    let short = LeaseOptions::new(Duration::from_millis(300));
    let slot = holder
        .try_acquire_slot(&one, short)
        .expect("an answer")
        .expect("free");
    let mut other = database.on(1);
    let pinned = holder.run_transaction(committed(), |conn| {
        conn.pin_slot(&slot)?;
        let free = "SELECT COUNT(*) FROM diesel_locks_slots WHERE expires_us < \
                    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
        await_that(|| number(&mut other, free) == 1);
        for _ in 0..5 {
            let granted = other.try_acquire_slot(&one, minute()).expect("an answer");
            assert!(granted.is_none(), "it is pinned");
        }
        Ok::<_, Error>(())
    });
    pinned.expect("committed");
    let next = other
        .acquire_slot(&one, minute(), Wait::AtMost(Duration::from_secs(10)))
        .expect("its lease has ended");
    assert!(next.fence() > slot.fence());
    let lost = holder.run_transaction(committed(), |conn| conn.pin_slot(&slot));
    let error = lost.expect_err("another holds it");
    assert!(matches!(error, Error::SlotLost { .. }), "{error:?}");
}

fn numbers_drawn_on_all_nodes_have_no_gaps(nodes: &Nodes) {
    let database = with_counter(nodes);
    database
        .on(0)
        .batch_execute("CREATE TABLE invoices (number BIGINT NOT NULL PRIMARY KEY)")
        .expect("a table");
    for node in 1..nodes.len() {
        let mut conn = database.on(node);
        await_that(|| {
            conn.batch_execute("DO (SELECT COUNT(*) FROM invoices)")
                .is_ok()
        });
    }
    let sequence = Sequence::new("invoice");
    let done = on_all_nodes(&database, |_, conn| {
        let mut done = 0;
        for round in 0..ROUNDS {
            let invoiced = conn.run_transaction(committed(), |conn| {
                let number = conn.next_number(&sequence)?;
                diesel::sql_query(format!("INSERT INTO invoices VALUES ({number})"))
                    .execute(conn)?;
                if round % 5 == 4 {
                    return Err(Error::from(diesel::result::Error::RollbackTransaction));
                }
                Ok(())
            });
            match invoiced {
                Ok(()) => done += 1,
                Err(error) => assert!(round % 5 == 4 || is_ended(&error), "{error:?}"),
            }
        }
        done
    });
    let mut conn = database.on(0);
    conn.batch_execute("SET wsrep_sync_wait = 1").expect("set");
    assert_eq!(number(&mut conn, "SELECT COUNT(*) FROM invoices"), done);
    assert_eq!(number(&mut conn, "SELECT MAX(number) FROM invoices"), done);
    assert_eq!(conn.last_number(&sequence).expect("an answer"), Some(done));
}

/// An abort may be lost between the statements of Diesel: see "Several writers" in DESIGN.md.
fn transactions_of_diesel_are_refused(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let one = Semaphore::new("one", 1);
    let mut conn = database.on(0);
    // In it `''` is NULL.
    conn.batch_execute("SET SESSION sql_mode = 'EMPTY_STRING_IS_NULL'")
        .expect("set");
    let held = conn
        .try_acquire_slot(&one, minute())
        .expect("a lease")
        .expect("free");
    // Twice: a refusal is not forgotten.
    for _ in 0..2 {
        for retention in [Retention::Transient, Retention::Kept] {
            let lock = LockRequest::new("a").retention(retention);
            refused(read_committed(&mut conn, |conn| conn.lock_object(&lock)));
            refused(read_committed(&mut conn, |conn| {
                conn.with_object_lock(&lock, |_| Ok::<_, Error>(()))
            }));
        }
        refused(read_committed(&mut conn, |conn| conn.pin_slot(&held)));
        refused(read_committed(&mut conn, |conn| {
            conn.next_number(&Sequence::new("invoice"))
        }));
        refused(read_committed(&mut conn, |conn| {
            conn.try_with_slot(&Semaphore::new("one", 2), |_| Ok::<_, Error>(()))
        }));
    }
    assert_eq!(number(&mut conn, "SELECT RELEASE_ALL_LOCKS()"), 0);
    assert_eq!(
        number(&mut conn, "SELECT COUNT(*) FROM diesel_locks_sequences"),
        0
    );
}

fn settings_of_the_session_are_restored(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let mut conn = database.on(0);
    conn.batch_execute(
        "SET SESSION wsrep_trx_fragment_unit = 'rows', SESSION wsrep_trx_fragment_size = 17",
    )
    .expect("set");
    let settings = "SELECT @@wsrep_trx_fragment_unit = 'rows' AND @@wsrep_trx_fragment_size = 17 AND @@autocommit";
    for wait in [
        Wait::Forever,
        Wait::AtMost(Duration::from_secs(1)),
        Wait::No,
    ] {
        let lock = LockRequest::new("a").wait(wait);
        conn.with_object_lock(&lock, |conn| {
            let inside =
                "SELECT @@wsrep_trx_fragment_unit = 'rows' AND @@wsrep_trx_fragment_size = 17";
            assert_eq!(number(conn, inside), 1);
            // Another node holds nothing meanwhile, and gets nothing.
            let other = database
                .on(1)
                .try_with_object_lock("a", |_| Ok::<_, Error>(()))?;
            assert_eq!(other, None);
            Ok::<_, Error>(())
        })
        .expect("free");
        assert_eq!(number(&mut conn, settings), 1);
    }
    let holder = database.on(1).with_object_lock("b", |_| {
        let refused = conn.try_with_object_lock("b", |_| Ok::<_, Error>(()))?;
        assert_eq!(refused, None);
        Ok::<_, Error>(())
    });
    holder.expect("free");
    assert_eq!(number(&mut conn, settings), 1);
}

fn all_nodes_migrate_at_once(nodes: &Nodes) {
    for _ in 0..3 {
        let database = nodes.database();
        let threads = 2 * nodes.len();
        let start = Barrier::new(threads);
        let ran: Vec<String> = scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|node| {
                    let (database, start) = (&database, &start);
                    scope.spawn(move || {
                        let mut conn = database.on(node);
                        start.wait();
                        migrate(&mut conn).expect("migrate")
                    })
                })
                .collect();
            let ran = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            ran.flatten().collect()
        });
        assert_eq!(ran.len(), 3, "each once: {ran:?}");
        for node in 0..nodes.len() {
            let mut conn = database.on(node);
            await_that(|| {
                number(&mut conn, "SELECT COUNT(*) FROM __diesel_schema_migrations") == 3
            });
            assert_eq!(
                number(&mut conn, "SELECT COUNT(*) FROM diesel_locks_fences"),
                1
            );
        }
    }
}

/// The last node, cut off from the others, which go on.
fn node_without_a_quorum_is_a_lost_connection(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let last = nodes.len() - 1;
    let isolate = |conn: &mut MysqlConnection, isolate: u8| {
        conn.batch_execute(&format!(
            "SET GLOBAL wsrep_provider_options = 'gmcast.isolate={isolate}'"
        ))
        .expect("set");
    };
    let mut operator = database.on(last);
    isolate(&mut operator, 1);
    let ready = "SELECT variable_value = 'ON' FROM information_schema.global_status \
                 WHERE variable_name = 'wsrep_ready'";
    await_that(|| number(&mut operator, ready) == 0);
    // After an error a connection may count as broken.
    let refuses = |call: &dyn Fn(&mut MysqlConnection) -> Result<(), Error>| {
        let error = call(&mut database.on(last)).expect_err("no quorum");
        assert!(error.is_connection_lost(), "{error:?}");
        assert!(!error.is_retryable(), "{error:?}");
    };
    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        refuses(&|conn| conn.with_object_lock(&lock, |_| Ok(())));
        refuses(&|conn| conn.try_with_object_lock(&lock, |_| Ok(())).map(drop));
    }
    let one = Semaphore::new("one", 1);
    refuses(&|conn| conn.try_acquire_slot(&one, minute()).map(drop));
    refuses(&|conn| conn.try_with_slot(&one, |_| Ok(())).map(drop));
    refuses(&|conn| {
        conn.run_transaction(committed(), |conn| {
            conn.next_number(&Sequence::new("invoice")).map(drop)
        })
    });
    let mut other = database.on(0);
    until_committed(1, |_| other.with_object_lock("a", |_| Ok(())));
    isolate(&mut operator, 0);
    nodes.await_galera();
    let mut conn = database.on(last);
    until_committed(1, |_| conn.with_object_lock("a", |_| Ok(())));
}

/// The holder's node is killed on this machine.
fn locks_of_a_killed_node_are_freed(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let last = nodes.len() - 1;
    let mut holder = database.on(last);
    let pid_file = diesel::select(diesel::dsl::sql::<Text>("@@pid_file"))
        .get_result::<String>(&mut holder)
        .expect("a name");
    let server = std::fs::read_to_string(&pid_file).expect(&pid_file);
    let held = holder.with_object_lock("a", |_| -> Result<(), Error> {
        let mut conn = database.on(0);
        let seen = conn.try_with_object_lock("a", |_| Ok::<_, Error>(()))?;
        assert_eq!(seen, None);
        let kill = std::process::Command::new("kill")
            .args(["-KILL", server.trim()])
            .status();
        assert!(kill.expect("kill").success());
        let free = LockRequest::new("a").wait(Wait::AtMost(Duration::from_secs(60)));
        loop {
            match conn.with_object_lock(&free, |_| Ok::<_, Error>(())) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_connection_lost() => conn = database.on(0),
                Err(error) => assert!(is_ended(&error), "{error:?}"),
            }
        }
    });
    let error = held.expect_err("its server is gone");
    assert!(!error.is_retryable(), "{error:?}");
    assert!(
        error.is_connection_lost() || matches!(error, Error::OutcomeUnknown { .. }),
        "{error:?}"
    );
}
