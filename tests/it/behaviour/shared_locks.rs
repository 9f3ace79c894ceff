//! Shared locks: many readers at a time, and no writer beside them.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Retention};

use super::exclusion::begin_for_locks;
use super::pool_waits::{WAIT, locks};
use crate::support::Backend;
use crate::support::threads::{Holder, LONG, begin, commit, result_of, roll_back, spawn, until};

const ID: &str = "Folder:1";

const RETENTIONS: [Retention; 2] = [Retention::Transient, Retention::Kept];

/// Whether the lock is granted at once.
fn is_granted<B: Backend>(database: &B, request: impl Into<LockRequest>) -> bool {
    let mut conn = database.connect();
    let granted = conn.try_with_object_lock(request, |_| Ok::<_, Error>(()));
    granted.expect("an answer").is_some()
}

/// A thread that waits for the shared lock, and reads a counter.
fn waiting_reader<B: Backend>(database: &Arc<B>) -> Receiver<Result<i64, Error>> {
    let database = Arc::clone(database);
    spawn(move || {
        let mut conn = database.connect();
        conn.with_object_lock(LockRequest::shared(ID), |conn| Ok(B::counter(conn, 0)))
    })
}

pub(crate) fn readers_share_an_object_and_exclude_writers<B: Backend>() {
    let database = Arc::new(B::new());
    // Once without a row, once with it.
    for _ in 0..2 {
        let reader = Holder::acquire(&database, LockRequest::shared(ID));
        assert_eq!(
            is_granted(&*database, LockRequest::shared(ID)),
            !B::ONE_WRITER
        );
        let second = (!B::ONE_WRITER).then(|| Holder::acquire(&database, LockRequest::shared(ID)));
        for retention in RETENTIONS {
            let writer = LockRequest::new(ID).retention(retention);
            assert!(!is_granted(&*database, &writer), "{retention:?}");
            let error = database
                .connect()
                .with_object_lock(writer.wait(Duration::from_millis(100)), |_| {
                    Ok::<_, Error>(())
                })
                .expect_err("readers hold it");
            assert!(error.is_timeout(), "{error:?}");
        }
        reader.release();
        if let Some(second) = second {
            assert!(!is_granted(&*database, ID), "the second one holds it");
            second.release();
        }
        assert!(is_granted(&*database, ID));
        assert_eq!(database.rows(), 1, "it is kept");
    }
}

pub(crate) fn writers_exclude_readers<B: Backend>() {
    let database = Arc::new(B::new());
    // Without a row, of which a transient writer leaves none; then with one.
    for retention in [Retention::Transient, Retention::Kept, Retention::Transient] {
        let writer = Holder::acquire(&database, LockRequest::new(ID).retention(retention));
        assert!(
            !is_granted(&*database, LockRequest::shared(ID)),
            "{retention:?}"
        );
        let limited = LockRequest::shared(ID).wait(Duration::from_millis(100));
        let error = database
            .connect()
            .with_object_lock(limited, |_| Ok::<_, Error>(()))
            .expect_err("a writer holds it");
        assert!(error.is_timeout(), "{error:?}");
        let shown = r#"the object lock "Folder:1" (shared): not acquired within"#;
        assert!(error.to_string().starts_with(shown), "{error}");
        let reader = waiting_reader(&database);
        database.await_waiting(1);
        assert!(reader.try_recv().is_err(), "not yet");
        writer.release();
        assert_eq!(result_of(&reader).expect("it comes free"), 0);
    }
}

pub(crate) fn waiting_writer_goes_before_later_readers<B: Backend>() {
    let database = Arc::new(B::new());
    let reader = Holder::acquire(&database, LockRequest::shared(ID));
    let writer = {
        let database = Arc::clone(&database);
        spawn(move || {
            let mut conn = database.connect();
            conn.with_object_lock(ID, |conn| {
                B::count_up(conn, 0);
                Ok::<_, Error>(())
            })
        })
    };
    // Until it waits for the readers. A session of MySQL that asks for a named lock without waiting is listed like one that waits.
    until(|| !is_granted(&*database, LockRequest::shared(ID)));
    let later = waiting_reader(&database);
    database.await_waiting(2);
    assert!(later.try_recv().is_err(), "the writer waits");
    reader.release();
    result_of(&writer).expect("the readers end");
    let seen = result_of(&later).expect("the writer ends");
    // SQLite lets any of those that wait go first.
    assert!(B::ONE_WRITER || seen == 1, "{seen}");
}

/// A writer on a pool asks again and again, and readers that overlap always hold the lock when it does.
pub(crate) fn writer_of_a_pool_goes_before_later_readers<B: Backend>() {
    let database = Arc::new(B::new());
    // Once more beside the mark of the first time.
    for _ in 0..2 {
        let reader = Holder::acquire(&database, LockRequest::shared(ID));
        let writer = {
            let pool = locks(&*database, 1);
            spawn(move || {
                pool.with_object_lock(LockRequest::new(ID).wait(WAIT), |_| Ok::<_, Error>(()))
            })
        };
        until(|| !is_granted(&*database, LockRequest::shared(ID)));
        // A mark that ended with the first look would let all in. On a busy machine the writer may look too late to renew it.
        let both = LockRequest::from([LockRequest::shared("Folder:0"), LockRequest::shared(ID)]);
        let refused = (0..100).filter(|_| {
            !is_granted(&*database, LockRequest::shared(ID)) && !is_granted(&*database, &both)
        });
        assert!(refused.count() >= 50);
        let waiting = {
            let database = Arc::clone(&database);
            spawn(move || {
                let mut conn = database.connect();
                let request = LockRequest::shared(ID).wait(WAIT);
                conn.with_object_lock(request, |_| Ok::<_, Error>(()))
            })
        };
        assert!(writer.try_recv().is_err(), "a reader holds it");
        reader.release();
        result_of(&writer).expect("the readers end");
        result_of(&waiting).expect("the writer ends");
        until(|| is_granted(&*database, LockRequest::shared(ID)));
    }
}

/// Requests that begin a transaction look at the mark, and those that wait do.
pub(crate) fn mark_of_a_clock_that_was_set_back_keeps_no_reader_out<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    assert!(is_granted(&database, LockRequest::shared(ID)));
    let mut mark = |until_us: i64| {
        B::sql(&mut conn, "DELETE FROM diesel_locks_wanted");
        let mark =
            format!("INSERT INTO diesel_locks_wanted (id, until_us) VALUES ('{ID}', {until_us})");
        B::sql(&mut conn, &mark);
    };
    let now = B::now_us(&mut database.connect());
    mark(now + 900_000);
    assert!(!is_granted(&database, LockRequest::shared(ID)));
    mark(now + 3_600_000_000);
    assert!(is_granted(&database, LockRequest::shared(ID)));
    let both = LockRequest::from([LockRequest::shared(ID), LockRequest::new("Doc:7")]);
    assert!(is_granted(&database, &both));
    let waits = LockRequest::shared(ID).wait(LONG);
    let granted = database
        .connect()
        .with_object_lock(waits, |_| Ok::<_, Error>(()));
    granted.expect("nobody holds it");
}

/// Each waits for what the other one reads.
pub(crate) fn writers_on_pools_of_what_the_other_reads_take_turns<B: Backend>() {
    let database = Arc::new(B::new());
    let readers = ["a", "b"].map(LockRequest::shared);
    let reader = Holder::acquire(&database, LockRequest::from(readers.clone()));
    let writers = [["a", "b"], ["b", "a"]].map(|[written, read]| {
        let pool = locks(&*database, 1);
        spawn(move || {
            let request = LockRequest::from([written.into(), LockRequest::shared(read)]);
            pool.with_object_lock(request.wait(WAIT), |_| Ok::<_, Error>(()))
        })
    });
    for reader in readers {
        until(|| !is_granted(&*database, &reader));
    }
    reader.release();
    for writer in &writers {
        result_of(writer).expect("each in its turn");
    }
}

/// Two are held, one by a reader.
pub(crate) fn writer_that_waits_for_a_writer_keeps_no_reader_out<B: Backend>() {
    let database = Arc::new(B::new());
    // The rows are there.
    let both = ["a", "b"].map(LockRequest::shared);
    assert!(is_granted(&*database, LockRequest::from(both)));
    let holders = ["a".into(), LockRequest::shared("b")];
    let holders = holders.map(|request| Holder::acquire(&database, request));
    let pool = locks(&*database, 1);
    let waiter = spawn(move || {
        let request = LockRequest::all(["a", "b"]).wait(Duration::from_millis(500));
        pool.with_object_lock(request, |_| Ok::<_, Error>(()))
    });
    let mut looks = 0;
    let error = loop {
        assert!(is_granted(&*database, LockRequest::shared("b")), "{looks}");
        looks += 1;
        if let Ok(ended) = waiter.try_recv() {
            break ended.expect_err("both are held");
        }
    };
    assert!(error.is_timeout(), "{error:?}");
    for holder in holders {
        holder.release();
    }
}

/// The row of one is made while the other is held.
pub(crate) fn row_of_a_shared_lock_is_committed_before_the_request_waits<B: Backend>() {
    let database = Arc::new(B::new());
    let writer = Holder::acquire(&database, "b");
    let reader = {
        let database = Arc::clone(&database);
        spawn(move || {
            let request = [LockRequest::shared("a"), "b".into()];
            let mut conn = database.connect();
            conn.with_object_lock(request, |_| Ok::<_, Error>(()))
        })
    };
    database.await_waiting(1);
    // It may be running the statement that makes the row.
    until(|| is_granted(&*database, LockRequest::shared("a")));
    writer.release();
    result_of(&reader).expect("the writer ends");
}

pub(crate) fn readers_of_a_pool_enter_together<B: Backend>() {
    let database = Arc::new(B::new());
    let writer = Holder::acquire(&database, ID);
    let pool = locks(&*database, 3);
    let together = Arc::new(Barrier::new(3));
    let readers = [(); 3].map(|()| {
        let (pool, together) = (pool.clone(), Arc::clone(&together));
        spawn(move || {
            pool.with_object_lock(LockRequest::shared(ID).wait(WAIT), |_| {
                if !B::ONE_WRITER {
                    together.wait();
                }
                Ok::<_, Error>(())
            })
        })
    });
    until(|| pool.waiting() == 3);
    writer.release();
    for reader in &readers {
        result_of(reader).expect("the writer ends");
    }
}

pub(crate) fn one_request_has_locks_of_both_kinds<B: Backend>() {
    let database = Arc::new(B::new());
    for retention in RETENTIONS {
        let of_document = |document: &str| {
            let locks = [LockRequest::shared(ID), document.into()];
            LockRequest::from(locks).retention(retention)
        };
        let first = Holder::acquire(&database, of_document("Document:1"));
        assert_eq!(
            is_granted(&*database, of_document("Document:2")),
            !B::ONE_WRITER
        );
        assert!(!is_granted(&*database, of_document("Document:1")));
        assert!(!is_granted(&*database, ID));
        assert!(!is_granted(&*database, ["Another", ID]));
        first.release();
        // In an open transaction, and all or none.
        let folder = Holder::acquire(&database, ID);
        let mut conn = database.connect();
        B::in_transaction(&mut conn, |conn| {
            let outcome = conn.try_lock_object(of_document("Document:1"))?;
            assert!(!outcome.is_acquired());
            if !B::ONE_WRITER {
                assert!(database.is_free("Document:1"));
            }
            Ok(())
        })
        .expect("it stays usable");
        folder.release();
        let both = [LockRequest::shared(ID), ID.into()];
        let exclusive = Holder::acquire(&database, LockRequest::from(both));
        assert!(!is_granted(&*database, LockRequest::shared(ID)));
        exclusive.release();
    }
}

pub(crate) fn shared_lock_is_not_upgraded<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let refused = |error: Error| {
        let is_upgrade = matches!(&error, Error::LockUpgrade { id, .. } if id == ID);
        assert!(is_upgrade, "{error:?}");
    };
    let work = |conn: &mut B::Conn| {
        refused(conn.lock_object(ID).expect_err("held shared"));
        refused(conn.try_lock_object(["A", ID]).expect_err("held shared"));
        let nested = conn.with_object_lock(ID, |_| Ok::<_, Error>(()));
        refused(nested.expect_err("held shared"));
        // What it holds it acquires again, and other objects.
        conn.lock_object(LockRequest::shared(ID))?;
        conn.lock_object("Other")?;
        B::count_up(conn, 0);
        Ok::<_, Error>(())
    };
    conn.with_object_lock(LockRequest::shared(ID), work)
        .expect("the transaction stays usable");
    let options = TransactionOptions::new();
    let options = if B::ONE_WRITER {
        options
    } else {
        options.isolation(IsolationLevel::ReadCommitted)
    };
    conn.run_transaction(options, |conn| {
        conn.lock_object(LockRequest::shared(ID))?;
        work(conn)
    })
    .expect("the transaction stays usable");
    let pool = locks(&*database, 1);
    pool.with_object_lock(LockRequest::shared(ID), work)
        .expect("the transaction stays usable");
    assert_eq!(B::counter(&mut conn, 0), 3);

    // The next transaction holds nothing.
    conn.with_object_lock(ID, |conn| {
        conn.lock_object(LockRequest::shared(ID))?;
        assert!(
            !is_granted(&*database, LockRequest::shared(ID)),
            "it stays exclusive"
        );
        conn.lock_object(ID)
    })
    .expect("free");
}

/// In a transaction of Diesel, whose end this crate does not see.
pub(crate) fn shared_lock_in_an_open_transaction_lasts_until_its_end<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    for ends in [commit::<B::Conn>, roll_back::<B::Conn>] {
        begin_for_locks::<B>(&mut conn);
        conn.lock_object(LockRequest::shared(ID)).expect("free");
        assert!(!is_granted(&*database, ID));
        ends(&mut conn);
        assert!(is_granted(&*database, ID));
        begin(&mut conn);
        conn.lock_object(ID).expect("the one before has ended");
        ends(&mut conn);
    }
}

/// Writers change two counters one after the other, readers compare them. The variable `DIESEL_LOCKS_TEST_ROUNDS` asks for more.
pub(crate) fn sixteen_readers_and_writers_see_no_half_update<B: Backend>() {
    let rounds = std::env::var("DIESEL_LOCKS_TEST_ROUNDS");
    let rounds: u32 = rounds.map_or(24, |rounds| rounds.parse().expect("a number"));
    assert_eq!(rounds % 4, 0, "as many rounds of each kind in each thread");
    let database = Arc::new(B::new());
    let threads: Vec<_> = (0..16)
        .map(|number: u32| {
            let database = Arc::clone(&database);
            spawn(move || {
                let mut conn = database.connect();
                for round in 0..rounds {
                    match (number + round) % 4 {
                        0 => {
                            let retention = RETENTIONS[usize::from(round % 8 == 0)];
                            let writer = LockRequest::new(ID).retention(retention);
                            conn.with_object_lock(writer, |conn| {
                                B::count_up(conn, 0);
                                B::count_up(conn, 1);
                                Ok::<_, Error>(())
                            })?;
                        }
                        1 if round % 5 == 0 => {
                            conn.purge_object_locks()?;
                        }
                        _ => {
                            let reader = [LockRequest::shared(ID), LockRequest::shared("Another")];
                            conn.with_object_lock(reader, |conn| {
                                let first = B::counter(conn, 0);
                                assert_eq!(B::counter(conn, 1), first);
                                Ok::<_, Error>(())
                            })?;
                        }
                    }
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    let longest = LONG * rounds.div_ceil(24);
    for thread in &threads {
        let ended = thread.recv_timeout(longest);
        ended.expect("it comes to an end").expect("no error");
    }
    let mut conn = database.connect();
    let written = i64::from(16 * rounds / 4);
    assert_eq!(B::counter(&mut conn, 0), written);
    assert_eq!(B::counter(&mut conn, 1), written);
}

pub(crate) fn requests_that_do_not_agree_are_refused<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut error_of = |request: LockRequest| {
        let locked = conn.with_object_lock(request, |_| Ok::<_, Error>(()));
        locked.expect_err("refused").to_string()
    };
    let waits = [
        LockRequest::new("a").wait(Wait::No),
        LockRequest::shared("b").wait(Wait::Forever),
    ];
    let error = error_of(LockRequest::from(waits.clone()));
    assert!(
        error.contains("different values for wait: [No, Forever]"),
        "{error}"
    );
    let retentions = vec![
        LockRequest::new("a").retention(Retention::Kept),
        LockRequest::new("b").retention(Retention::Transient),
    ];
    let error = error_of(retentions.into());
    assert!(
        error.contains("different values for retention: [Kept, Transient]"),
        "{error}"
    );
    let many: Vec<_> = (0..=1000)
        .map(|id| LockRequest::shared(id.to_string()))
        .collect();
    let error = error_of(many.into());
    assert!(error.contains("1001 kept objects requested"), "{error}");

    let set_for_all = LockRequest::from(waits).wait(Wait::No);
    let granted = conn.try_with_object_lock(set_for_all, |_| Ok::<_, Error>(()));
    assert!(granted.expect("a valid request").is_some());
}
