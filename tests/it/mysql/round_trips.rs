//! Round trips.

use std::time::Duration;

use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Retention};

use crate::support::Backend;
use crate::support::mysql::{Mysql, words};
use crate::support::proxy::{
    CountingProxy, round_trips_of, round_trips_of_a_sequence, round_trips_of_a_slot,
    round_trips_of_a_transaction,
};

fn read(conn: &mut MysqlConnection) -> QueryResult<()> {
    // Cached, other than a query made of text.
    crate::schema::mysql::diesel_locks_objects::table
        .count()
        .execute(conn)?;
    Ok(())
}

#[test]
fn round_trips_are_none_for_a_free_transient_lock_and_one_for_a_kept() {
    let database = Mysql::new();
    let (proxy, url) = CountingProxy::url(&database.url());
    let mut conn = Mysql::connect_to(&url);
    let lock = LockRequest::new("a").retention(Retention::Kept);
    // Prepares the statements, and makes the row.
    conn.transaction(read).expect("commit");
    conn.with_object_lock(&lock, read).expect("free");
    let bare = proxy.count(|| conn.transaction(read).expect("commit"));
    let locked = proxy.count(|| conn.with_object_lock(&lock, read).expect("free"));
    assert_eq!(locked, bare + 1);
    for wait in [Wait::Forever, Wait::AtMost(Duration::from_millis(500))] {
        let transient = LockRequest::all(["b", "c"]).wait(wait);
        let locked = || proxy.count(|| conn.with_object_lock(&transient, read).expect("free"));
        // It costs more where the machine is busy.
        let fewest = std::iter::repeat_with(locked).take(10).min();
        assert_eq!(fewest, Some(bare), "{wait:?}");
    }
    // Without a wait too. A refusal costs one more message, which undoes the first one.
    let transient = LockRequest::all(["b", "c"]).wait(Wait::No);
    let locked = proxy.count(|| {
        conn.with_object_lock(transient.clone(), read)
            .expect("free");
    });
    assert_eq!(locked, bare);
    let mut other = database.connect();
    other
        .with_object_lock("b", |_| {
            let refused = proxy.count(|| {
                let tried = conn.try_with_object_lock(transient.clone(), read);
                assert!(tried.expect("an answer").is_none());
            });
            // Diesel switches several statements in one message on and off again.
            assert_eq!(refused, 2 * 3);
            Ok::<_, Error>(())
        })
        .expect("free");
    let transaction = TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);
    conn.run_transaction(transaction, |conn| {
        let inside = proxy.count(|| conn.lock_object(&lock).expect("ours"));
        assert_eq!(inside, 1);
        Ok::<_, Error>(())
    })
    .expect("commit");
    Mysql::in_transaction(&mut conn, |conn| {
        // Prepares the statement, which is another one where the level is not known.
        conn.lock_object(&lock)?;
        let inside = proxy.count(|| conn.lock_object(&lock).expect("ours"));
        assert_eq!(inside, 1 + transaction_check_round_trips(conn));
        Ok(())
    })
    .expect("commit");
}

/// Round trips that check on MySQL whether a transaction of Diesel's is open. MariaDB returns that with the lock.
fn transaction_check_round_trips(conn: &mut MysqlConnection) -> u32 {
    if words(conn, "VERSION()").contains("MariaDB") {
        0
    } else {
        3
    }
}

#[test]
fn round_trips_of_a_slot_are_two_to_grant_and_one_for_the_rest() {
    assert_eq!(round_trips_of_a_slot::<Mysql>(), [2, 1, 1, 1]);
}

/// Only MariaDB's INSERT returns what it has written.
#[test]
fn round_trips_of_a_draw_are_one_on_mariadb_and_two_on_mysql() {
    let draw = match transaction_check_round_trips(&mut Mysql::new().connect()) {
        0 => 1,
        check => 2 + check,
    };
    assert_eq!(round_trips_of_a_sequence::<Mysql>(), [draw, 1]);
    // A row that was there before this process, and a start that came later.
    let database = Mysql::new();
    let started = "INSERT INTO diesel_locks_sequences (name, scope, last) VALUES ('late round trips', '', 10)";
    Mysql::sql(&mut database.connect(), started);
    let late = Sequence::new("late round trips").start_with(1000);
    assert_eq!(round_trips_of(&database, &late), [draw, 1]);
}

/// Each is three, since Diesel switches several statements in one message on and off again.
#[test]
fn round_trips_of_a_transaction_are_diesels() {
    assert_eq!(round_trips_of_a_transaction::<Mysql>(), [6, 6]);
}
