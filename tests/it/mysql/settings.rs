//! Settings of a session or a connection that change what its statements do.

use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_async::{AsyncMysqlConnection, SimpleAsyncConnection};
use diesel_locks::prelude::*;
use diesel_locks::{
    AsyncInspectExt, Error, InspectExt, LeaseState, ListOptions, Retention, SlotRenewer,
    TransactionOptions,
};
use mysql_async::{Conn, Opts, OptsBuilder};
use tokio::runtime::Builder;

use crate::behaviour::slots::renewers::await_renewal;
use crate::behaviour::slots::{acquire, one_hour, single_slot, slots_of};
use crate::subprocess::RENEWED_LEASE;
use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::mysql::Mysql;
use crate::support::threads::LONG;

/// The search for the rows of a new semaphore begins a transaction of the session.
fn refused<T>(result: Result<T, Error>) {
    let error = result.err().expect("an error");
    let refused = matches!(
        error,
        Error::Unsupported { .. } | Error::UntrackedTransaction { .. }
    );
    assert!(refused, "{error:?}");
    assert!(error.to_string().contains("autocommit"), "{error}");
}

/// A lease that is not committed would exclude nobody.
#[test]
fn sessions_without_autocommit_are_refused_leases() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let mut without = database.connect();
    Mysql::sql(&mut without, "SET SESSION autocommit = 0");
    let many = Semaphore::new("many", 200);
    let registered = Semaphore::registered("registered");
    conn.set_permits(registered.name(), 2).expect("set");
    // With and without rows.
    for _ in 0..2 {
        for semaphore in [&single_slot(), &many, &registered] {
            refused(without.try_acquire_slot(semaphore, one_hour()));
            refused(without.acquire_slot(semaphore, one_hour(), Wait::Forever));
            let slot = conn.try_acquire_slot(semaphore, one_hour());
            let slot = slot.expect("an answer").expect("free");
            refused(without.try_acquire_slot(semaphore, one_hour()));
            refused(without.renew_slot(&mut slot.clone(), Duration::from_secs(60)));
            refused(without.release_slot(slot.clone()));
            let held = conn.held_slots(&slots_of(semaphore)).expect("rows");
            refused(without.request_release(&held[0]));
            refused(without.set_slot_data(&slot, "data"));
            refused(without.force_release_all(semaphore.name()));
            Mysql::sql(&mut without, "ROLLBACK");
            conn.release_slot(slot).expect("nothing has changed");
        }
    }
    conn.set_permits(registered.name(), 0).expect("paused");
    refused(without.try_acquire_slot(&registered, one_hour()));
    refused(without.acquire_slot(&registered, one_hour(), Wait::Forever));
    Mysql::sql(&mut without, "ROLLBACK");
    let paused = without.try_with_slot(&registered, |_| Ok::<_, Error>(()));
    assert_eq!(paused.expect("an answer"), None);
    conn.set_permits(registered.name(), 2).expect("resumed");
    let slot = conn.acquire_slot(&single_slot(), one_hour(), Wait::No);
    let slot = slot.expect("free");
    without
        .transaction(|conn| {
            conn.renew_slot(&mut slot.clone(), Duration::from_secs(60))?;
            conn.release_slot(slot)
        })
        .expect("a transaction is committed");
    for semaphore in [&single_slot(), &registered] {
        without
            .with_slot(semaphore, Wait::No, |_| Ok::<_, Error>(()))
            .expect("so is one of this crate");
    }
    without
        .with_object_lock("a", |_| Ok::<_, Error>(()))
        .expect("so is one of this crate");
    assert_eq!(Mysql::number(&mut without, "SELECT @@autocommit"), 0);
}

/// A renewer whose sessions lose `autocommit` after the grant neither renews nor releases.
#[test]
fn batches_without_autocommit_change_nothing() {
    let database = Mysql::new();
    let pool = Mysql::pool_to(&database.url(), 1);
    let renewer = SlotRenewer::new(pool.clone());
    let guard = renewer
        .acquire(&single_slot(), LeaseOptions::new(RENEWED_LEASE), Wait::No)
        .expect("free");
    let mut conn = pool.get().expect("a connection");
    Mysql::sql(&mut conn, "SET SESSION autocommit = 0");
    drop(conn);
    let started = Instant::now();
    while guard.is_held() {
        assert!(started.elapsed() < LONG, "it seems to be renewed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut conn = database.connect();
    let slot = conn.acquire_slot(&single_slot(), one_hour(), Wait::AtMost(LONG));
    let _held = slot.expect("the lease has expired");
}

/// `sql_safe_updates` refuses joins without a key, `sql_select_limit` cuts off results, and `max_join_size` refuses queries
/// that read many rows.
#[test]
fn safe_updates_and_limits_of_rows_change_nothing() {
    let database = Mysql::new();
    let set = |conn: &mut MysqlConnection| {
        Mysql::sql(
            conn,
            "SET SESSION sql_safe_updates = 1, SESSION sql_select_limit = 1, SESSION max_join_size = 5",
        );
    };
    let mut conn = database.connect();
    set(&mut conn);
    let conn = &mut conn;
    for permits in [3, 200] {
        let semaphore = Semaphore::new(format!("of {permits}"), permits);
        let slots = [(); 3].map(|()| {
            let slot = conn.try_acquire_slot(&semaphore, one_hour());
            slot.expect("an answer").expect("free")
        });
        assert_eq!(
            conn.held_slots(&slots_of(&semaphore)).expect("rows").len(),
            3
        );
        let fewer = Semaphore::new(semaphore.name(), 2);
        assert_eq!(
            conn.try_acquire_slot(&fewer, one_hour())
                .expect("an answer"),
            None
        );
        assert_eq!(conn.force_release_all(semaphore.name()).expect("rows"), 3);
        let slot = conn.try_acquire_slot(&fewer, one_hour());
        conn.release_slot(slot.expect("an answer").expect("free"))
            .expect("ours");
        drop(slots);
    }
    let registered = |permits| Semaphore::new("registered", permits);
    for permits in [200, 300] {
        conn.register_semaphores([&registered(permits)])
            .expect("registered");
        conn.set_permits("registered", permits + 50).expect("set");
    }
    let bonds = (0..9).map(|key| ObjectId::new("Bond", key));
    for id in bonds.clone() {
        let kept = LockRequest::new(id).retention(Retention::Kept);
        conn.with_object_lock(kept, |_| Ok::<_, Error>(()))
            .expect("free");
    }
    let several = LockRequest::all(bonds).retention(Retention::Kept);
    let tried = Mysql::in_transaction(conn, |conn| conn.try_lock_object(several));
    assert!(tried.expect("an answer").is_acquired());
    assert_eq!(conn.purge_object_locks().expect("purge"), 9);
    let all = ListOptions::new();
    assert_eq!(conn.semaphores(&all).expect("a list").len(), 3);
    assert_eq!(conn.held_slots(&all).expect("a list"), []);
    assert_eq!(conn.sequences(&all).expect("a list"), []);
    assert_eq!(conn.purge_slots(Duration::ZERO).expect("purge"), 203);

    let renewer = SlotRenewer::new(Mysql::pool_of(&database.url(), 2, set));
    let lease = LeaseOptions::new(RENEWED_LEASE);
    let semaphores = ["a", "b", "c"].map(|name| Semaphore::new(name, 1));
    let guards = semaphores.each_ref().map(|semaphore| {
        let slot = renewer.acquire(semaphore, &lease, Wait::No);
        slot.expect("free")
    });
    for semaphore in &semaphores {
        await_renewal::<Mysql>(conn, semaphore);
    }
    assert!(guards.iter().all(diesel_locks::SlotGuard::is_held));
    for guard in guards {
        guard.release().expect("ours");
    }
}

/// A connection that the application has opened itself counts the rows that an UPDATE has changed, and not those that it has
/// found, unless `CLIENT_FOUND_ROWS` is set.
#[test]
fn what_changes_no_row_is_not_lost() {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let database = Mysql::new();
        let options = Opts::from_url(&database.url()).expect("a URL");
        let options = OptsBuilder::from_opts(options).client_found_rows(false);
        let conn = Conn::new(options).await.expect("a connection");
        let mut conn = AsyncMysqlConnection::try_from(conn).await.expect("ours");
        let minute = Duration::from_secs(60);
        let lease = LeaseOptions::new(minute).hold_at_least(minute);
        for semaphore in [single_slot(), Semaphore::new("many", 200)] {
            let slot = conn.try_acquire_slot(&semaphore, lease.clone()).await;
            let mut slot = slot.expect("an answer").expect("free");
            // The slot is held until the end of its minimum hold time, so that its expiry stays as it is.
            for _ in 0..3 {
                let renewed = conn.renew_slot(&mut slot, Duration::from_secs(1)).await;
                assert_eq!(renewed.expect("ours"), LeaseState::Unexpired);
            }
            let held = conn.held_slots(&slots_of(&semaphore)).await;
            let held = held.expect("rows").remove(0);
            let stops = conn.batch_execute("SET timestamp = UNIX_TIMESTAMP(NOW(6))");
            stops.await.expect("the clock stops");
            for _ in 0..3 {
                let requested = conn.request_release(&held).await;
                assert_eq!(requested.expect("held"), LeaseState::Unexpired);
            }
            for _ in 0..3 {
                let set = conn.set_slot_data(&slot, "the same").await;
                assert_eq!(set.expect("held"), LeaseState::Unexpired);
            }
            let goes_on = conn.batch_execute("SET timestamp = DEFAULT");
            goes_on.await.expect("the clock goes on");
            let released = conn.release_slot(slot).await;
            assert_eq!(released.expect("ours"), LeaseState::Unexpired);
            let released = conn.force_release_all(semaphore.name()).await;
            assert_eq!(released.expect("an answer"), 1);
            for _ in 0..2 {
                let registered = conn.register_semaphores([&semaphore]).await;
                registered.expect("registered");
            }
            let held = conn.with_slot(&semaphore, Wait::No, async |_| Ok::<_, Error>(()));
            held.await.expect("free");
        }
        for retention in [Retention::Kept, Retention::Transient] {
            for _ in 0..2 {
                let lock = LockRequest::new("a").retention(retention);
                let held = conn.with_object_lock(lock, async |_| Ok::<_, Error>(()));
                held.await.expect("free");
            }
        }
        for expected in 1..3 {
            let drawn = conn.run_transaction(TransactionOptions::new(), async |conn| {
                conn.next_number(&Sequence::new("invoices")).await
            });
            assert_eq!(Box::pin(drawn).await.expect("drawn"), expected);
        }
    });
}

const MODES_OF_BOTH: [&str; 15] = [
    "",
    "ALLOW_INVALID_DATES",
    "ANSI",
    "HIGH_NOT_PRECEDENCE",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_BACKSLASH_ESCAPES",
    "NO_DIR_IN_CREATE",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,STRICT_ALL_TABLES",
    "PAD_CHAR_TO_FULL_LENGTH",
    "ANSI_QUOTES",
    "IGNORE_SPACE",
    "PIPES_AS_CONCAT",
    "REAL_AS_FLOAT",
    "TRADITIONAL,ONLY_FULL_GROUP_BY",
];
const MODES_OF_MARIADB: [&str; 8] = [
    "EMPTY_STRING_IS_NULL",
    "ORACLE",
    "ORACLE,EMPTY_STRING_IS_NULL",
    "SIMULTANEOUS_ASSIGNMENT",
    "TIME_ROUND_FRACTIONAL",
    "MSSQL",
    "DB2,POSTGRESQL",
    "MAXDB,MYSQL40",
];
const MODES_OF_MYSQL: [&str; 1] = ["TIME_TRUNCATE_FRACTIONAL"];

/// Every mode of the session (`sql_mode`).
#[test]
fn sql_modes_change_nothing() {
    let database = Mysql::new();
    let mariadb = Mysql::number(&mut database.connect(), "SELECT VERSION() LIKE '%MariaDB%'");
    let own = if mariadb == 1 {
        MODES_OF_MARIADB.as_slice()
    } else {
        MODES_OF_MYSQL.as_slice()
    };
    for mode in MODES_OF_BOTH.iter().chain(own) {
        let set = |database: &Mysql| {
            let mut conn = database.connect();
            Mysql::sql(&mut conn, &format!("SET SESSION sql_mode = '{mode}'"));
            conn
        };
        every_primitive(&mut set(&database), mode);
        let empty = Mysql::empty();
        for migrations in [MIGRATIONS, 0] {
            let ran = diesel_locks::migrate(&mut set(&empty));
            let ran = ran.unwrap_or_else(|error| panic!("{mode}: {error:?}"));
            assert_eq!(ran.len(), migrations, "{mode}");
        }
    }
}

fn every_primitive(conn: &mut MysqlConnection, mode: &str) {
    // Characters that mean something in SQL.
    let id = format!("a\\'\"` {mode} ");
    for retention in [Retention::Kept, Retention::Transient] {
        let several = LockRequest::all([id.as_str(), "b"]).retention(retention);
        for wait in [Wait::No, Wait::AtMost(LONG), Wait::Forever] {
            conn.with_object_lock(several.clone().wait(wait), |conn| {
                conn.lock_object(LockRequest::new("c").retention(retention))
            })
            .unwrap_or_else(|error| panic!("{mode}: {error}"));
        }
    }
    assert_eq!(conn.purge_object_locks().expect("purged"), 3, "{mode}");
    for permits in [1, 200] {
        let semaphore = Semaphore::new(id.clone() + &permits.to_string(), permits);
        conn.register_semaphores([&semaphore]).expect(mode);
        let lease = one_hour().holder("a holder ");
        let slot = conn.try_acquire_slot(&semaphore, lease).expect(mode);
        let mut slot = slot.expect("free");
        let held = conn.held_slots(&slots_of(&semaphore)).expect(mode);
        assert_eq!(held.len(), 1, "{mode}");
        assert_eq!(held[0].holder.as_deref(), Some("a holder "), "{mode}");
        conn.renew_slot(&mut slot, Duration::from_secs(60))
            .expect(mode);
        conn.release_slot(slot).expect(mode);
        conn.with_slot(&semaphore, Wait::No, |_| Ok::<_, Error>(()))
            .expect(mode);
    }
    for sequence in [
        Sequence::new(id.as_str()),
        Sequence::new(id.as_str()).for_key("a key"),
    ] {
        assert_eq!(conn.last_number(&sequence).expect(mode), None, "{mode}");
        for expected in 1..4 {
            let drawn = conn
                .run_transaction(TransactionOptions::new(), |conn| {
                    conn.next_number(&sequence)
                })
                .unwrap_or_else(|error| panic!("{mode}: {error}"));
            assert_eq!(drawn, expected, "{mode}");
            assert_eq!(
                conn.last_number(&sequence).expect(mode),
                Some(expected),
                "{mode}"
            );
        }
    }
}

/// FOR SHARE alone is not refused: on a replica it would exclude nobody on the source.
#[test]
fn read_only_sessions_are_refused_shared_locks_and_pins() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let slot = acquire::<Mysql>(&mut conn, &single_slot());
    let both = ["a", "b"].map(LockRequest::shared);
    // Makes the rows.
    conn.with_object_lock(both.clone(), |_| Ok::<_, Error>(()))
        .expect("free");
    Mysql::sql(&mut conn, "SET SESSION TRANSACTION READ ONLY");
    let mixed = [
        LockRequest::shared("a"),
        LockRequest::new("b").retention(Retention::Kept),
    ];
    for requests in [&both[..1], &both, &mixed] {
        for wait in [Wait::No, Wait::AtMost(LONG), Wait::Forever] {
            let requests: Vec<_> = requests.iter().map(|one| one.clone().wait(wait)).collect();
            let requests = LockRequest::from(requests);
            let errors = [
                conn.with_object_lock(&requests, |_| Ok::<_, Error>(()))
                    .expect_err("read only"),
                conn.try_with_object_lock(requests.clone().wait(Wait::No), |_| Ok::<_, Error>(()))
                    .expect_err("read only"),
                Mysql::in_transaction(&mut conn, |conn| conn.lock_object(&requests))
                    .expect_err("read only"),
            ];
            for error in errors {
                assert!(error.is_read_only(), "{requests:?}: {error:?}");
            }
        }
    }
    let pinned = Mysql::in_transaction(&mut conn, |conn| conn.pin_slot(&slot));
    let error = pinned.expect_err("read only");
    assert!(error.is_read_only(), "{error:?}");
}
