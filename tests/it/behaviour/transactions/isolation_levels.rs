//! Isolation level and access mode.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy};

use crate::support::Backend;

const LEVELS: [IsolationLevel; 3] = [
    IsolationLevel::ReadCommitted,
    IsolationLevel::RepeatableRead,
    IsolationLevel::Serializable,
];

/// Whether the second of two reads in a transaction of this kind shows what another committed between
/// them.
fn sees_what_is_committed<B: Backend>(
    conn: &mut B::Conn,
    other: &mut B::Conn,
    transaction: TransactionOptions,
) -> bool {
    conn.run_transaction(transaction, |conn| {
        let before = B::counter(conn, 0);
        B::count_up(other, 0);
        Ok::<_, Error>(B::counter(conn, 0) != before)
    })
    .expect("it only reads")
}

pub(crate) fn isolation_level_applies_to_one_transaction<B: Backend>() {
    if B::ONE_WRITER {
        // There is one level, and one writer.
        let database = B::new();
        let mut conn = database.connect();
        let transaction = TransactionOptions::new().isolation(IsolationLevel::Serializable);
        let mut other = database.connect();
        let refused = conn
            .run_transaction(transaction, |_| {
                other.try_with_object_lock("a", |_| Ok::<_, Error>(()))
            })
            .expect("an answer");
        assert_eq!(refused, None);
        return;
    }
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let plain = TransactionOptions::new();
    let default = sees_what_is_committed::<B>(&mut conn, &mut other, plain);
    for level in LEVELS {
        if level == IsolationLevel::Serializable {
            serializable_is_serializable::<B>(&mut conn, &mut other);
        } else {
            let transaction = plain.isolation(level);
            assert_eq!(
                sees_what_is_committed::<B>(&mut conn, &mut other, transaction),
                level == IsolationLevel::ReadCommitted,
                "{level}"
            );
        }
        assert_eq!(
            sees_what_is_committed::<B>(&mut conn, &mut other, plain),
            default,
            "after {level}"
        );
        // Nor after one that failed.
        let failed: Result<(), Error> = conn.run_transaction(plain.isolation(level), |_| {
            Err(diesel::result::Error::RollbackTransaction.into())
        });
        assert!(failed.is_err());
        assert_eq!(
            sees_what_is_committed::<B>(&mut conn, &mut other, plain),
            default,
            "after {level}"
        );
    }
}

/// Two read a row, and each changes another: one of them must fail.
fn serializable_is_serializable<B: Backend>(conn: &mut B::Conn, other: &mut B::Conn) {
    let transaction = TransactionOptions::new().isolation(IsolationLevel::Serializable);
    let skewed = conn.run_transaction(transaction, |conn| {
        let sum = B::counter(conn, 1) + B::counter(conn, 2);
        // InnoDB's reads lock: the other is not to wait for us, who wait for it.
        let theirs = other.run_transaction(transaction, |other| {
            B::counter(other, 2);
            if B::ENGINE == "mysql" {
                B::sql(other, "SET SESSION innodb_lock_wait_timeout = 1");
            }
            B::try_sql(other, "UPDATE counters SET n = n + 1 WHERE id = 1")
        });
        B::try_sql(
            conn,
            &format!("UPDATE counters SET n = {sum} + 1 WHERE id = 2"),
        )?;
        Ok::<_, Error>(theirs.is_ok())
    });
    assert!(
        !matches!(skewed, Ok(true)),
        "each has written what the other has read"
    );
}

pub(crate) fn unsupported_options_are_rejected<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut run = |transaction| conn.run_transaction(transaction, |_| Ok::<_, Error>(()));
    for level in LEVELS {
        let result = run(TransactionOptions::new().isolation(level));
        let lacks = B::ONE_WRITER && level != IsolationLevel::Serializable;
        match result {
            Err(Error::Unsupported { mode, .. }) => {
                assert!(lacks);
                assert_eq!(mode, level.to_string());
            }
            result => assert!(result.is_ok() && !lacks, "{level}: {result:?}"),
        }
    }
    let deferrable = TransactionOptions::new()
        .isolation(IsolationLevel::Serializable)
        .read_only()
        .deferrable();
    match run(deferrable) {
        Err(Error::Unsupported { mode, .. }) => assert_eq!(mode, "DEFERRABLE"),
        result => assert!(result.is_ok() && B::ENGINE == "postgres", "{result:?}"),
    }
}

pub(crate) fn read_only_transaction_writes_nothing_and_restores_the_session<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let read_only = TransactionOptions::new().read_only();
    // It does not wait for a writer.
    other
        .run_transaction(TransactionOptions::new(), |other| {
            B::count_up(other, 0);
            let seen = conn.run_transaction(read_only, |conn| Ok::<_, Error>(B::counter(conn, 0)));
            assert_eq!(seen.expect("no wait"), 0);
            Ok::<_, Error>(())
        })
        .expect("commit");
    let mut writes = |transaction: TransactionOptions| {
        conn.run_transaction(transaction, |conn| {
            B::try_sql(conn, "UPDATE counters SET n = n + 1 WHERE id = 0")
        })
    };
    let error = writes(read_only).expect_err("read only");
    assert!(error.is_read_only(), "{error:?}");
    writes(TransactionOptions::new()).expect("as before");
    for how in ["fails", "panics"] {
        let read = catch_unwind(AssertUnwindSafe(|| {
            conn_reads::<B>(&database, read_only, how);
        }));
        assert_eq!(read.is_err(), how == "panics");
    }
    writes(TransactionOptions::new().read_write()).expect("it may write");
    assert_eq!(B::counter(&mut database.connect(), 0), 3);
}

/// A connection that has read and failed writes afterwards.
fn conn_reads<B: Backend>(database: &B, read_only: TransactionOptions, how: &str) {
    let mut conn = database.connect();
    let read = catch_unwind(AssertUnwindSafe(|| {
        conn.run_transaction(read_only, |conn| -> Result<(), Error> {
            B::counter(conn, 0);
            assert_ne!(how, "panics", "as told");
            Err(diesel::result::Error::RollbackTransaction.into())
        })
    }));
    B::try_sql(&mut conn, "UPDATE counters SET n = n WHERE id = 0").expect("as before");
    if let Err(panic) = read {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn locks_slots_and_numbers_work_in_run_transaction<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let one = Semaphore::new("one", 1);
    conn.register_semaphores([&one]).expect("register");
    let level = if B::ONE_WRITER {
        IsolationLevel::Serializable
    } else {
        IsolationLevel::ReadCommitted
    };
    let transaction = TransactionOptions::new()
        .isolation(level)
        .retry(RetryPolicy::max_attempts(3));
    conn.run_transaction(transaction, |conn| {
        conn.lock_object("a")?;
        let tried = conn.with_object_lock("b", |conn| conn.try_lock_object("c"))?;
        assert!(tried.is_acquired());
        assert!(
            other
                .try_with_object_lock("a", |_| Ok::<_, Error>(()))?
                .is_none()
        );
        let slot = conn.try_with_slot(&one, |conn| conn.next_number(&Sequence::new("n")))?;
        assert_eq!(slot, Some(1));
        Ok::<_, Error>(())
    })
    .expect("commit");
    let last = other.last_number(&Sequence::new("n")).expect("rows");
    assert_eq!(last, Some(1));
    assert!(database.is_free("a"));
}

/// Also when the session's own level would do: the level is the transaction's.
pub(crate) fn object_lock_requires_fresh_reads<B: Backend>() {
    if B::ONE_WRITER {
        return;
    }
    let database = B::new();
    let mut conn = database.connect();
    B::in_transaction(&mut conn, |_| Ok(())).expect("commit");
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let result = conn.run_transaction(TransactionOptions::new().isolation(level), |conn| {
            B::counter(conn, 0);
            conn.lock_object("a")
        });
        let error = result.expect_err("a snapshot");
        assert!(
            matches!(error, Error::UnsuitableIsolation { .. }),
            "{error:?}"
        );
        assert!(
            error
                .to_string()
                .to_uppercase()
                .contains(&level.to_string()),
            "{error}"
        );
    }
}
