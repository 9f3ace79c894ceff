//! Transactions that end before their closure does.

use std::time::Duration;

use diesel::Connection;
use diesel::connection::SimpleConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Retention, RetryPolicy};

use crate::behaviour::slots::{acquire, one_hour};
use crate::support::Backend;

/// How a transaction ends before its closure does.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The database aborts it.
    Aborted,
    /// Statements that an application sends.
    Sent(&'static [&'static str]),
}

const ENDS: [End; 5] = [
    End::Aborted,
    End::Sent(&["ROLLBACK"]),
    End::Sent(&["ROLLBACK; BEGIN"]),
    End::Sent(&["COMMIT"]),
    End::Sent(&["COMMIT", "BEGIN"]),
];

impl End {
    fn come<B: Backend>(self, conn: &mut B::Conn, database: &B) {
        match self {
            Self::Aborted => B::abort_transaction(conn, database.connect()),
            Self::Sent(statements) => {
                for statement in statements {
                    conn.batch_execute(statement).expect(statement);
                }
            }
        }
    }

    fn commits(self) -> bool {
        matches!(self, Self::Sent(["COMMIT", ..]))
    }
}

pub(super) fn pair() -> Semaphore {
    Semaphore::new("pair", 2)
}

/// Options with which object locks can be acquired in the transaction.
fn fresh_reads<B: Backend>() -> TransactionOptions {
    TransactionOptions::new().isolation(if B::ONE_WRITER {
        IsolationLevel::Serializable
    } else {
        IsolationLevel::ReadCommitted
    })
}

/// A method that runs a closure.
pub(super) type Runner<C> =
    fn(&mut C, &mut dyn FnMut(&mut C) -> Result<(), Error>) -> Result<(), Error>;

/// All methods that run a closure in a transaction of their own.
pub(super) fn runners<B: Backend>() -> [(&'static str, Runner<B::Conn>); 7] {
    [
        ("run_transaction", |conn, work| {
            conn.run_transaction(fresh_reads::<B>(), work)
        }),
        ("run_transaction, several times", |conn, work| {
            conn.run_transaction(fresh_reads::<B>().retry(RetryPolicy::max_attempts(3)), work)
        }),
        ("with_object_lock", |conn, work| {
            conn.with_object_lock("a", work)
        }),
        ("with_object_lock, several, kept", |conn, work| {
            let locks = LockRequest::all(["a", "b"]).retention(Retention::Kept);
            conn.with_object_lock(locks, work)
        }),
        ("try_with_object_lock", |conn, work| {
            conn.try_with_object_lock("a", work)
                .map(|done| done.expect("free"))
        }),
        ("with_slot", |conn, work| {
            conn.with_slot(&pair(), Wait::Forever, work)
        }),
        ("try_with_slot", |conn, work| {
            conn.try_with_slot(&pair(), work)
                .map(|done| done.expect("free"))
        }),
    ]
}

/// What the connection does afterwards is committed, and nothing is locked.
pub(super) fn assert_usable<B: Backend>(conn: &mut B::Conn, database: &B) {
    let before = B::counter(&mut database.connect(), 9);
    B::count_up(conn, 9);
    assert_eq!(B::counter(&mut database.connect(), 9), before + 1);
    conn.with_object_lock("a", |conn| {
        B::count_up(conn, 9);
        Ok::<_, Error>(())
    })
    .expect("usable");
    assert_eq!(B::counter(&mut database.connect(), 9), before + 2);
    assert!(database.is_free("a") && database.is_free("b"));
    for _ in 0..2 {
        let free = database.connect().try_with_slot(&pair(), |other| {
            other.try_with_slot(&pair(), |_| Ok::<_, Error>(()))
        });
        assert!(free.expect("an answer").is_some());
    }
}

pub(super) fn assert_aborted<T: std::fmt::Debug>(
    result: Result<T, Error>,
    what: impl std::fmt::Debug,
) {
    let error = result.expect_err("not committed as a whole");
    assert!(error.is_transaction_aborted(), "{what:?}: {error:?}");
    assert!(!error.is_retryable());
}

pub(super) fn prepared<B: Backend>() -> (B, B::Conn) {
    let database = B::new();
    let mut conn = database.connect();
    conn.register_semaphores([pair()]).expect("register");
    (database, conn)
}

pub(crate) fn closure_whose_transaction_has_ended_fails<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    let mut committed = 0;
    for (runner, run) in runners::<B>() {
        for end in ENDS {
            let mut runs = 0;
            let result = run(&mut conn, &mut |conn| {
                runs += 1;
                B::count_up(conn, 0);
                end.come(conn, &database);
                Ok(())
            });
            assert_aborted(result, (runner, end));
            assert_eq!(runs, 1, "{runner}, {end:?}");
            committed += i64::from(end.commits());
            assert_eq!(
                B::counter(&mut database.connect(), 0),
                committed,
                "{runner}, {end:?}"
            );
            assert_usable(&mut conn, &database);
        }
    }
}

/// On SQLite, where each statement after the end is committed by itself, it is at least not done twice.
pub(crate) fn statements_after_the_end_of_a_transaction_are_not_committed<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    for (runner, run) in runners::<B>() {
        for fails in [false, true] {
            let before = B::counter(&mut database.connect(), 0);
            let mut runs = 0;
            let result = run(&mut conn, &mut |conn| {
                runs += 1;
                if runs == 1 {
                    B::count_up(conn, 0);
                    B::abort_transaction(conn, database.connect());
                    let _ = B::try_sql(conn, "UPDATE counters SET n = n + 1 WHERE id = 0");
                    if fails {
                        return Err(victim().into());
                    }
                }
                Ok(())
            });
            let written = B::counter(&mut database.connect(), 0) - before;
            if B::ONE_WRITER {
                assert_eq!((runs, written), (1, 1), "{runner}");
                assert!(result.is_err(), "{runner}");
            } else {
                assert_eq!(written, 0, "{runner}");
                assert_eq!(result.is_ok(), runs == 2, "{runner}: {result:?}");
            }
            assert_usable(&mut conn, &database);
        }
    }
}

/// A retry would repeat what is committed. On InnoDB the server itself ends the transaction with the other errors that are
/// retried.
pub(crate) fn closure_that_has_committed_is_not_retried<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    let ends: &[&[&str]] = if B::ONE_WRITER {
        &[&["COMMIT"], &["COMMIT; BEGIN"], &["COMMIT", "BEGIN"]]
    } else {
        &[
            &["COMMIT"],
            &["COMMIT; BEGIN"],
            &["COMMIT", "BEGIN"],
            &["COMMIT AND CHAIN"],
        ]
    };
    for (done, end) in (1..).zip(ends) {
        let retry = RetryPolicy::max_attempts(3).retry_lock_timeouts();
        let mut runs = 0;
        let result: Result<(), _> = conn.run_transaction(fresh_reads::<B>().retry(retry), |conn| {
            runs += 1;
            B::count_up(conn, 0);
            End::Sent(end).come(conn, &database);
            Err(Error::LockTimeout {
                resource: "a".to_owned(),
                waited: Duration::ZERO,
                limit: None,
                source: None,
            })
        });
        assert_aborted(result, end);
        assert_eq!(runs, 1, "{end:?}");
        assert_eq!(B::counter(&mut database.connect(), 0), done, "{end:?}");
        assert_usable(&mut conn, &database);
    }
}

/// What Diesel makes of SQLSTATE 40001.
fn victim() -> diesel::result::Error {
    diesel::result::Error::DatabaseError(
        diesel::result::DatabaseErrorKind::SerializationFailure,
        Box::new("serialization failure".to_owned()),
    )
}

/// A method that locks or draws.
type Method<C> = fn(&mut C) -> Result<(), Error>;

fn methods<B: Backend>() -> Vec<(&'static str, Method<B::Conn>)> {
    fn kept() -> LockRequest {
        LockRequest::new("kept").retention(Retention::Kept)
    }
    const SHORT: Wait = Wait::AtMost(Duration::from_millis(50));
    vec![
        ("lock_object", |conn| conn.lock_object("a")),
        ("lock_object, kept", |conn| conn.lock_object(kept())),
        ("lock_object, new and kept", |conn| {
            conn.lock_object(LockRequest::new("new").retention(Retention::Kept))
        }),
        ("lock_object, at most", |conn| {
            conn.lock_object(LockRequest::new("a").wait(SHORT))?;
            conn.lock_object(kept().wait(SHORT))
        }),
        ("try_lock_object", |conn| {
            conn.try_lock_object("a").map(|_| ())
        }),
        ("try_lock_object, kept", |conn| {
            conn.try_lock_object(kept()).map(|_| ())
        }),
        ("with_object_lock", |conn| {
            conn.with_object_lock("a", |_| Ok(()))
        }),
        ("with_object_lock, several", |conn| {
            conn.with_object_lock(["a", "b"], |_| Ok(()))
        }),
        ("try_with_object_lock", |conn| {
            conn.try_with_object_lock(kept(), |_| Ok(())).map(|_| ())
        }),
        ("next_number", |conn| {
            conn.next_number(&Sequence::new("started")).map(|_| ())
        }),
        ("next_number, new", |conn| {
            conn.next_number(&Sequence::new("new")).map(|_| ())
        }),
        ("next_numbers", |conn| {
            conn.next_numbers(&Sequence::new("started"), 7).map(|_| ())
        }),
        ("try_acquire_slot", |conn| {
            conn.try_acquire_slot(&pair(), one_hour()).map(|_| ())
        }),
        ("acquire_slot", |conn| {
            conn.acquire_slot(&pair(), one_hour(), Wait::Forever)
                .map(|_| ())
        }),
        ("try_with_slot", |conn| {
            conn.try_with_slot(&pair(), |_| Ok(())).map(|_| ())
        }),
        ("with_slot", |conn| {
            conn.with_slot(&pair(), Wait::Forever, |_| Ok(()))
        }),
    ]
}

pub(crate) fn methods_in_an_aborted_transaction_have_no_effect<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    let started = Sequence::new("started");
    for _ in 0..3 {
        conn.run_transaction(TransactionOptions::new(), |conn| conn.next_number(&started))
            .expect("free");
    }
    conn.with_object_lock(LockRequest::new("kept").retention(Retention::Kept), |_| {
        Ok::<_, Error>(())
    })
    .expect("free");
    let slot = acquire::<B>(&mut conn, &Semaphore::new("another", 1));
    let before = B::tables(&mut database.connect());

    let try_all = |conn: &mut B::Conn| {
        B::abort_transaction(conn, database.connect());
        for (method, call) in methods::<B>() {
            assert_aborted(call(conn), method);
        }
        assert_aborted(conn.pin_slot(&slot), "pin_slot");
        let refreshed = conn.renew_slot(&mut slot.clone(), Duration::from_secs(60));
        assert_aborted(refreshed, "renew_slot");
        assert_aborted(conn.release_slot(&slot), "release_slot");
        assert_aborted(conn.force_release_all("another"), "force_release_all");
        Ok::<_, Error>(())
    };
    if B::METHODS_NOTICE_ABORTS {
        assert_aborted(conn.run_transaction(fresh_reads::<B>(), try_all), "the end");
    }
    let result = conn.run_transaction(TransactionOptions::new(), |conn| {
        B::abort_transaction(conn, database.connect());
        let drawn = conn.next_number(&started);
        if B::METHODS_NOTICE_ABORTS {
            assert_aborted(drawn, "at the session's level");
        }
        Ok::<_, Error>(())
    });
    assert_aborted(result, "at the session's level");
    // A savepoint of Diesel's outside of a transaction begins one on SQLite.
    for (method, call) in methods::<B>() {
        let result = conn.run_transaction(fresh_reads::<B>(), |conn| {
            B::abort_transaction(conn, database.connect());
            let nested = conn.transaction(|conn| {
                let result = call(conn);
                if B::METHODS_NOTICE_ABORTS {
                    assert_aborted(result, method);
                }
                Ok::<_, Error>(())
            });
            // On InnoDB and PostgreSQL there is no such savepoint.
            assert!(nested.is_ok() || !B::ONE_WRITER, "{method}: {nested:?}");
            Ok::<_, Error>(())
        });
        assert_aborted(result, method);
    }
    // In Diesel's own, whose end is Diesel's.
    let _ = B::in_transaction(&mut conn, try_all);
    // Nested in one of Diesel's.
    let _ = B::in_transaction(&mut conn, |conn| {
        let result = conn.with_object_lock("a", |conn| {
            B::abort_transaction(conn, database.connect());
            Ok::<_, Error>(())
        });
        assert_aborted(result, "a savepoint");
        Ok(())
    });

    assert_eq!(B::tables(&mut database.connect()), before);
    assert_usable(&mut conn, &database);
}

/// COMMIT and ROLLBACK as text. On InnoDB what follows is another transaction, which is rolled back when the closure ends.
pub(crate) fn methods_after_the_end_of_the_transaction_have_no_effect<B: Backend>() {
    let (database, mut conn) = prepared::<B>();
    let started = Sequence::new("started");
    conn.run_transaction(TransactionOptions::new(), |conn| conn.next_number(&started))
        .expect("free");
    let single = Semaphore::new("another", 1);
    let slot = acquire::<B>(&mut conn, &single);
    let before = B::tables(&mut database.connect());
    for end in ["COMMIT", "ROLLBACK"] {
        let mut check = |what: &str, call: &mut dyn FnMut(&mut B::Conn) -> Result<(), Error>| {
            for nested in [false, true] {
                let ended = |conn: &mut B::Conn| {
                    conn.batch_execute(end).expect(end);
                    let result = call(conn);
                    if B::METHODS_NOTICE_ENDS {
                        assert_aborted(result, (what, end));
                    }
                    Ok::<_, Error>(())
                };
                let result = if nested {
                    conn.with_object_lock("outer", |conn| conn.with_object_lock("a", ended))
                } else {
                    conn.run_transaction(fresh_reads::<B>(), ended)
                };
                assert_aborted(result, (what, end));
                assert_eq!(B::tables(&mut database.connect()), before, "{what}, {end}");
            }
        };
        for (method, call) in methods::<B>() {
            let mut call = call;
            check(method, &mut call);
        }
        check("pin_slot", &mut |conn| conn.pin_slot(&slot));
        check("renew_slot", &mut |conn| {
            conn.renew_slot(&mut slot.clone(), Duration::from_secs(60))
                .map(|_| ())
        });
        check("release_slot", &mut |conn| {
            conn.release_slot(&slot).map(|_| ())
        });
        check("force_release_all", &mut |conn| {
            conn.force_release_all("another").map(|_| ())
        });
        // Refused in any transaction.
        let nested = |result| match result {
            Err(Error::AlreadyInTransaction { reason, .. }) => Err(Error::TransactionAborted {
                reason: reason.to_owned(),
                source: None,
            }),
            result => result,
        };
        check("register_semaphores", &mut |conn| {
            nested(conn.register_semaphores([Semaphore::new("registered", 1)]))
        });
        check("run_transaction", &mut |conn| {
            nested(conn.run_transaction(TransactionOptions::new(), |_| Ok(())))
        });
    }
    assert_usable(&mut conn, &database);
}

/// Before COMMIT is sent nothing is committed. After it nobody knows.
pub(crate) fn lost_connection_is_told_apart<B: Backend>() {
    if B::ONE_WRITER {
        // It has no sessions.
        return;
    }
    let database = B::new();
    for sends in [true, false] {
        let before = B::counter(&mut database.connect(), 0);
        let result = database.connect().with_object_lock("a", |conn| {
            B::count_up(conn, 0);
            database.disconnect_sessions();
            if sends {
                conn.last_number(&Sequence::new("any"))?;
            }
            Ok::<_, Error>(())
        });
        let error = result.expect_err("the session has ended");
        assert!(error.is_connection_lost(), "{error:?}");
        assert!(!error.is_busy() && !error.is_retryable(), "{error:?}");
        let unknown = matches!(error, Error::OutcomeUnknown { .. });
        assert_eq!(unknown, !sends, "{error:?}");
        let mut other = database.connect();
        other
            .with_object_lock("a", |_| Ok::<_, Error>(()))
            .expect("released");
        assert_eq!(B::counter(&mut other, 0), before);
    }
}
