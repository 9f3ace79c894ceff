//! What holds where several nodes take writes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread::scope;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention, RetryPolicy, assume_single_writer};

use crate::nodes::{Database, Nodes, Tests, await_that, number};

pub(crate) fn minute() -> LeaseOptions {
    LeaseOptions::new(Duration::from_secs(60))
}

pub(crate) const TESTS: Tests = &[
    (
        "lease_is_known_on_other_nodes_as_soon_as_it_is_granted",
        lease_is_known_on_other_nodes_as_soon_as_it_is_granted,
    ),
    (
        "application_says_that_one_node_takes_its_writes",
        application_says_that_one_node_takes_its_writes,
    ),
    (
        "leases_of_all_nodes_never_exceed_the_permits",
        leases_of_all_nodes_never_exceed_the_permits,
    ),
    (
        "commit_that_lost_is_tried_again",
        commit_that_lost_is_tried_again,
    ),
    (
        "slots_are_added_and_purged_by_all_nodes",
        slots_are_added_and_purged_by_all_nodes,
    ),
];

pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.expect_err("it would lock nothing");
    assert!(matches!(error, Error::SeveralWriters { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("assume_single_writer"), "{text}");
}

pub(crate) fn locks_are_refused_on_several_writers(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let one = Semaphore::new("one", 1);
    let two = Semaphore::new("two", 2);
    let sequence = Sequence::new("invoice");
    for node in 0..nodes.len() {
        let mut conn = database.on(node);
        // Twice: a refusal is not forgotten.
        for _ in 0..2 {
            for wait in [
                Wait::Forever,
                Wait::AtMost(Duration::from_secs(1)),
                Wait::No,
            ] {
                for retention in [Retention::Transient, Retention::Kept] {
                    let lock = LockRequest::new("a").retention(retention).wait(wait);
                    refused(conn.with_object_lock(&lock, |_| Ok::<_, Error>(())));
                    refused(read_committed(&mut conn, |conn| conn.lock_object(&lock)));
                }
            }
            for retention in [Retention::Transient, Retention::Kept] {
                let lock = LockRequest::new("a").retention(retention);
                refused(conn.try_with_object_lock(&lock, |_| Ok::<_, Error>(())));
            }
            let held = conn
                .try_acquire_slot(&one, minute())
                .expect("a lease")
                .expect("free");
            refused(read_committed(&mut conn, |conn| conn.pin_slot(&held)));
            conn.release_slot(held).expect("ours");
            refused(conn.try_with_slot(&one, |_| Ok::<_, Error>(())));
            refused(conn.with_slots(&two, 2, Wait::No, |_| Ok::<_, Error>(())));
            refused(read_committed(&mut conn, |conn| {
                conn.next_number(&sequence)
            }));
        }
        // No gate is left behind.
        assert_eq!(number(&mut conn, "SELECT RELEASE_ALL_LOCKS()"), 0);
    }
    // Known to this process by now: another way through the code.
    let rows = number(
        &mut database.on(0),
        "SELECT COUNT(*) FROM diesel_locks_sequences",
    );
    assert_eq!(rows, 0, "what was refused was rolled back");
}

fn application_says_that_one_node_takes_its_writes(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let mut conn = database.on(0);
    assume_single_writer(&mut conn).expect("said");
    conn.with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect("free");
    let kept = LockRequest::new("b").retention(Retention::Kept);
    conn.with_object_lock(&kept, |_| Ok::<_, Error>(()))
        .expect("free");
    let one = Semaphore::new("one", 1);
    let done = conn.try_with_slot(&one, |_| Ok::<_, Error>(()));
    assert_eq!(done.expect("an answer"), Some(()));
    let sequence = Sequence::new("invoice");
    let drawn = read_committed(&mut conn, |conn| conn.next_number(&sequence));
    assert_eq!(drawn.expect("drawn"), 1);
    // Another draw, of a connection that has not said so, of a sequence that the process knows.
    let drawn = read_committed(&mut conn, |conn| conn.next_number(&sequence));
    assert_eq!(drawn.expect("drawn"), 2);
    refused(read_committed(&mut database.on(0), |conn| {
        conn.next_number(&sequence)
    }));
    // Nor is a number lost when that is ignored.
    let ignored = |sequence: &Sequence| {
        read_committed(&mut database.on(0), |conn| {
            refused(conn.next_numbers(sequence, 3));
            Ok(())
        })
        .expect("commit");
    };
    ignored(&sequence);
    let drawn = read_committed(&mut conn, |conn| conn.next_number(&sequence));
    assert_eq!(drawn.expect("drawn"), 3);
    conn.batch_execute("DELETE FROM diesel_locks_sequences")
        .expect("as an application's tests do");
    ignored(&sequence);
    assert_eq!(conn.last_number(&sequence).expect("an answer"), None);
}

/// No error, and never more holders than permits. Slots are added by all nodes at once.
fn leases_of_all_nodes_never_exceed_the_permits(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    for round in 0..10 {
        leases_never_exceed(&database, &Semaphore::new(format!("round {round}"), 2));
    }
}

fn leases_never_exceed(database: &Database, two: &Semaphore) {
    const CYCLES: usize = 10;
    let threads = 2 * database.nodes.len();
    let start = Barrier::new(threads);
    let holders = AtomicI64::new(0);
    let fences = Mutex::new(Vec::new());
    scope(|scope| {
        for thread in 0..threads {
            let (start, holders, fences) = (&start, &holders, &fences);
            scope.spawn(move || {
                let mut conn = database.on(thread);
                start.wait();
                for _ in 0..CYCLES {
                    // Those who wait in one process would take turns.
                    let slot = loop {
                        let slot = conn.try_acquire_slot(two, minute()).expect("an answer");
                        if let Some(slot) = slot {
                            break slot;
                        }
                    };
                    let now = holders.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= 2, "{now} holders of 2 permits");
                    fences.lock().expect("no panic").push(slot.fence());
                    holders.fetch_sub(1, Ordering::SeqCst);
                    conn.release_slot(slot).expect("ours");
                }
            });
        }
    });
    let mut fences = fences.into_inner().expect("no panic");
    assert_eq!(fences.len(), threads * CYCLES);
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(
        fences.len(),
        threads * CYCLES,
        "a fence was given out twice"
    );
}

/// The numbers of the slots stay without gaps, and a slot that is held stays.
fn slots_are_added_and_purged_by_all_nodes(nodes: &Nodes) {
    const ROUNDS: u32 = 12;
    let database = Database::migrated(nodes);
    let start = Barrier::new(2 * nodes.len());
    scope(|scope| {
        for thread in 0..2 * nodes.len() {
            let (database, start) = (&database, &start);
            scope.spawn(move || {
                let mut conn = database.on(thread);
                start.wait();
                for round in 1..=ROUNDS {
                    if thread % 2 == 0 {
                        conn.purge_slots(Duration::ZERO).expect("purged");
                        continue;
                    }
                    let many = Semaphore::new("many", 5 * round);
                    let slot = conn.try_acquire_slot(&many, minute()).expect("an answer");
                    if let Some(mut slot) = slot {
                        conn.renew_slot(&mut slot, Duration::from_secs(60))
                            .expect("an answer");
                        conn.release_slot(slot).expect("ours");
                    }
                }
            });
        }
    });
    let mut conn = database.on(0);
    let gaps = "SELECT COALESCE(MAX(number), 0) - COUNT(*) FROM diesel_locks_slots";
    assert_eq!(number(&mut conn, gaps), 0);
}

/// Both have changed the row. The second to commit gets an error at COMMIT, which is classified by its text: 1213 on
/// Galera, 3101 or 1180 on Group Replication.
fn commit_that_lost_is_tried_again(nodes: &Nodes) {
    let database = nodes.database();
    let mut first = database.on(0);
    first
        .batch_execute(
            "CREATE TABLE counters (id INTEGER PRIMARY KEY, n BIGINT NOT NULL); INSERT INTO counters VALUES (1, 0)",
        )
        .expect("a table");
    let mut second = database.on(1);
    await_that(|| {
        let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() \
                      AND table_name = 'counters'";
        number(&mut second, tables) == 1
            && number(&mut second, "SELECT COUNT(*) FROM counters") == 1
    });
    let up = "UPDATE counters SET n = n + 1";
    let retry = TransactionOptions::new().retry(RetryPolicy::max_attempts(10));
    let mut attempts = 0;
    let done = second.run_transaction(retry, |second| {
        attempts += 1;
        diesel::sql_query(up).execute(second)?;
        if attempts == 1 {
            diesel::sql_query(up).execute(&mut first)?;
        }
        Ok::<_, Error>(())
    });
    done.expect("in the end");
    assert!(attempts > 1);
    assert_eq!(number(&mut second, "SELECT n FROM counters"), 2);
}

pub(crate) fn read_committed<T>(
    conn: &mut MysqlConnection,
    work: impl FnOnce(&mut MysqlConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    conn.batch_execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
    conn.transaction(work)
}

/// Another node receives the grant a moment later than the holder its answer.
fn lease_is_known_on_other_nodes_as_soon_as_it_is_granted(nodes: &Nodes) {
    const ROUNDS: usize = 200;

    let database = Database::migrated(nodes);
    let mut conns: Vec<_> = (0..nodes.len()).map(|node| database.on(node)).collect();
    let one = Semaphore::new("one", 1);
    for round in 0..ROUNDS {
        conns.rotate_left(1);
        // The node that grants may not have received the release yet.
        let mut granted = None;
        await_that(|| {
            granted = conns[0]
                .try_acquire_slot(&one, minute())
                .expect("an answer");
            granted.is_some()
        });
        let mut slot = granted.expect("it is");
        if round % 2 == 0 {
            let renewed = conns[1].renew_slot(&mut slot, Duration::from_secs(60));
            let is_in_time = renewed.as_ref().is_ok_and(|state| !state.is_expired());
            assert!(is_in_time, "{round}: {renewed:?}");
        }
        let released = conns[2 % nodes.len()].release_slot(&slot);
        let is_in_time = released.as_ref().is_ok_and(|state| !state.is_expired());
        assert!(is_in_time, "{round}: {released:?}");
    }
}
