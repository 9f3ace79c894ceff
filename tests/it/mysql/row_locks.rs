//! Which rows a transaction leaves locked.

use std::sync::Arc;
use std::sync::mpsc::channel;

use diesel::connection::InstrumentationEvent;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel};

use crate::behaviour::slots::{HOUR, acquire};
use crate::support::Backend;
use crate::support::mysql::Mysql;
use crate::support::threads::{Holder, begin};

type Attempt = fn(&mut MysqlConnection, &Semaphore) -> Result<bool, Error>;

/// Another session is granted the slots between the search and the lock. It can renew and release them, although the transaction
/// that was refused is open.
#[test]
fn slots_that_another_session_was_granted_are_not_locked() {
    let lease: Attempt = |conn, semaphore| {
        let slot = conn.try_acquire_slot(semaphore, LeaseOptions::new(HOUR))?;
        Ok(slot.is_some())
    };
    let hold: Attempt = |conn, semaphore| {
        Ok(conn
            .try_with_slot(semaphore, |_| Ok::<_, Error>(()))?
            .is_some())
    };
    for attempt in [lease, hold] {
        let database = Mysql::new();
        let three = Semaphore::new("three", 3);
        let mut conn = database.connect();
        let mut other = database.connect();
        conn.register_semaphores([&three]).expect("register");
        Mysql::sql(&mut other, "SET SESSION innodb_lock_wait_timeout = 1");
        let (grants, granted) = channel();
        let mut between = Some((other, three.clone()));
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event
                && query.to_string().contains("FOR UPDATE SKIP LOCKED")
                && let Some((mut other, three)) = between.take()
            {
                let slots = [(); 3].map(|()| acquire::<Mysql>(&mut other, &three));
                grants.send((other, slots)).expect("the test waits");
            }
        });
        let level = TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);
        conn.run_transaction(level, |conn| {
            assert!(!attempt(conn, &three)?, "all are held");
            let (mut other, slots) = granted.try_recv().expect("between the two statements");
            for mut slot in slots {
                other.renew_slot(&mut slot, HOUR).expect("not locked");
                other.release_slot(slot).expect("not locked");
            }
            Ok::<_, Error>(())
        })
        .expect("commit");
    }
}

/// A lease in an open transaction locks the row of its slot, and not the entries of another index, which the optimizer prefers.
#[test]
fn lease_in_an_open_transaction_locks_one_slot() {
    let database = Mysql::new();
    let three = Semaphore::new("three", 3);
    let [mut holder, mut second, mut third] = [(); 3].map(|()| database.connect());
    let mut slots = [(); 3].map(|()| acquire::<Mysql>(&mut holder, &three));
    slots.sort_by_key(diesel_locks::Slot::number);
    let [first, _, last] = slots;
    for conn in [&mut second, &mut third] {
        Mysql::sql(
            conn,
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        );
        begin(conn);
    }
    holder.release_slot(first).expect("ours");
    let held = third.try_with_slot(&three, |_| Ok::<_, Error>(()));
    held.expect("an answer").expect("the first one");
    holder.release_slot(last).expect("ours");
    let last = acquire::<Mysql>(&mut second, &three);
    let first = acquire::<Mysql>(&mut third, &three);
    assert_eq!([first.number(), last.number()], [1, 3]);
}

const READ_COMMITTED: TransactionOptions =
    TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);

/// A request for shared locks that is refused locks none of them, also after their table was rebuilt.
#[test]
fn refused_shared_locks_in_an_open_transaction_lock_none() {
    let database = Arc::new(Mysql::new());
    let mut conn = database.connect();
    let both = || [LockRequest::shared("a"), LockRequest::shared("b")];
    let made = conn.with_object_lock(both(), |_| Ok::<_, Error>(()));
    made.expect("free");
    Mysql::sql(&mut conn, "OPTIMIZE TABLE diesel_locks_objects");
    let holder = Holder::acquire(&database, LockRequest::new("b"));
    conn.run_transaction(READ_COMMITTED, |conn| {
        assert!(!conn.try_lock_object(both())?.is_acquired());
        assert!(database.is_free("a"));
        Ok::<_, Error>(())
    })
    .expect("commit");
    holder.release();
}

/// A request after the number of permits was lowered locks no slots of others, also after their table was rebuilt.
#[test]
fn request_after_lowering_locks_no_slot_of_others() {
    let database = Mysql::new();
    let mut conn = database.connect();
    let mut other = database.connect();
    let mut first = acquire::<Mysql>(&mut other, &Semaphore::new("three", 3));
    Mysql::sql(&mut conn, "OPTIMIZE TABLE diesel_locks_slots");
    Mysql::sql(&mut other, "SET SESSION innodb_lock_wait_timeout = 1");
    conn.run_transaction(READ_COMMITTED, |conn| {
        let lowered = Semaphore::new("three", 2);
        let second = conn.try_acquire_slot(&lowered, LeaseOptions::new(HOUR))?;
        let _second = second.expect("one of two is free");
        other.renew_slot(&mut first, HOUR).expect("not locked");
        Ok::<_, Error>(())
    })
    .expect("commit");
}

#[derive(QueryableByName)]
struct Plan {
    #[diesel(sql_type = Nullable<Text>)]
    key: Option<String>,
}

/// A release locks the row of its slot, and no gap between the entries of another index: at REPEATABLE READ no other session could
/// create the slots of a semaphore there. MariaDB prefers that index if most rows are those of one semaphore and have had holders.
#[test]
fn release_in_an_open_transaction_locks_no_gap() {
    let database = Mysql::new();
    let [mut conn, mut other] = [(); 2].map(|()| database.connect());
    let slot = acquire::<Mysql>(&mut conn, &Semaphore::new("t", 1));
    let others = [("u", 1), ("v", 1), ("big", 900)];
    let others = others.map(|(name, permits)| Semaphore::new(name, permits));
    conn.register_semaphores(&others).expect("register");
    let used =
        "UPDATE diesel_locks_slots SET token = number, holder = 'web-2/4711' WHERE name = 'big'";
    Mysql::sql(&mut conn, used);
    Mysql::sql(&mut conn, "ANALYZE TABLE diesel_locks_slots");
    if Mysql::number(&mut conn, "VERSION() LIKE '%MariaDB%'") == 1 {
        let without_hint = "EXPLAIN UPDATE diesel_locks_slots SET token = NULL WHERE name = 't' AND number = 1 AND token = 'A'";
        let plan: Vec<Plan> = diesel::sql_query(without_hint)
            .load(&mut conn)
            .expect("a plan");
        assert_eq!(plan[0].key.as_deref(), Some("diesel_locks_slots_expiry"));
    }
    Mysql::sql(&mut other, "SET SESSION innodb_lock_wait_timeout = 1");
    begin(&mut conn);
    conn.release_slot(slot).expect("ours");
    let _created = acquire::<Mysql>(&mut other, &Semaphore::new("tt", 1));
}
