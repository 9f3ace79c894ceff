//! Group Replication with several primaries.

use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, Slot, assume_single_writer, migrate};

use crate::nodes::{
    Database, HOUR, MINUTE, Nodes, PROMOTION, Stopped, Tests, await_that, leases_follow_the_clock,
    locks_are_free, number, refuses_to_write, ticks_within,
};
use crate::writers::locks_are_refused_on_several_writers;

pub(crate) const TESTS: Tests = &[
    ("migrate_is_refused", migrate_is_refused),
    (
        "locks_are_refused_on_several_writers",
        locks_are_refused_on_several_writers,
    ),
    (
        "what_the_group_refuses_is_told",
        what_the_group_refuses_is_told,
    ),
    // The last ones: from here on there is one primary.
    (
        "another_member_becomes_the_primary",
        another_member_becomes_the_primary,
    ),
    ("grants_need_a_majority", grants_need_a_majority),
];

fn migrate_is_refused(nodes: &Nodes) {
    let database = nodes.database();
    for node in 0..nodes.len() {
        let error = migrate(&mut database.on(node)).expect_err("several primaries");
        assert!(matches!(error, Error::SeveralWriters { .. }), "{error:?}");
    }
    let mut conn = database.on(0);
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()";
    assert_eq!(number(&mut conn, tables), 0);
}

/// Error 3098, of a statement of this crate and of one of the application.
fn what_the_group_refuses_is_told(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    let mut conn = database.on(0);
    assume_single_writer(&mut conn).expect("said");
    let refused = |result: Result<(), Error>| {
        let error = result.expect_err("the group refuses it");
        let is_told = matches!(&error, Error::RefusedByGroup { .. });
        assert!(is_told, "{error:?}");
    };
    let serializable = TransactionOptions::new().isolation(IsolationLevel::Serializable);
    let invoices = Sequence::new("invoice");
    refused(conn.run_transaction(serializable, |conn| conn.next_number(&invoices).map(drop)));
    conn.batch_execute("CREATE TABLE without_key (n INTEGER)")
        .expect("a table");
    let options = TransactionOptions::new().isolation(IsolationLevel::ReadCommitted);
    refused(conn.run_transaction(options, |conn| {
        diesel::sql_query("INSERT INTO without_key VALUES (1)").execute(conn)?;
        Ok(())
    }));
    let drawn = conn.run_transaction(options, |conn| conn.next_number(&invoices));
    assert_eq!(drawn.expect("a number"), 1);
}

/// Has a member become the only primary.
fn make_primary(nodes: &Nodes, member: usize) {
    let mut conn = MysqlConnection::establish(&nodes.url(member, "mysql")).expect("a member");
    let has_one = "SELECT @@group_replication_single_primary_mode";
    let function = if number(&mut conn, has_one) == 1 {
        "group_replication_set_as_primary"
    } else {
        "group_replication_switch_to_single_primary_mode"
    };
    conn.batch_execute(&format!("SELECT {function}(@@server_uuid)"))
        .expect("switched");
    await_that(|| number(&mut conn, "SELECT @@super_read_only") == 0);
}

/// Its clock is 50 minutes behind.
fn another_member_becomes_the_primary(nodes: &Nodes) {
    let database = Database::migrated(nodes);
    make_primary(nodes, 0);
    let mut primary = database.on(0);
    // Unlike root, this user has the clock of `init_connect`.
    primary
        .batch_execute("CREATE USER app IDENTIFIED BY ''; GRANT ALL ON *.* TO app; REVOKE SUPER, CONNECTION_ADMIN ON *.* FROM app")
        .expect("a user");
    let app = |member| database.url(member).replace("//root@", "//app@");
    let lease = || LeaseOptions::new(HOUR);
    let kept = primary.try_acquire_slot(&PROMOTION, lease());
    let kept = kept.expect("the primary").expect("a free slot");
    let last = primary.try_acquire_slot(&PROMOTION, lease());
    let last = last.expect("the primary").expect("a free slot");
    assert!(ticks_within::<MysqlConnection>(MINUTE, &app(0)));
    let invoices = Sequence::new("invoice");
    let draw = |conn: &mut MysqlConnection| {
        let drawn = conn.transaction(|conn| conn.next_number(&invoices));
        drawn.expect("a number")
    };
    assert_eq!(draw(&mut primary), 1);
    primary.release_slot(&last).expect("its own");

    let mut operator = database.on(1);
    operator
        .batch_execute("SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() - 3000'")
        .expect("a clock");
    make_primary(nodes, 1);
    refuses_to_write(&mut primary);
    let mut conn = MysqlConnection::establish(&app(1)).expect("the new primary");
    assert_eq!(draw(&mut conn), 2);
    let first = conn.try_acquire_slot(&PROMOTION, lease());
    let first = first
        .expect("the new primary")
        .expect("the slot that was released");
    assert!(
        first.fence() > last.fence(),
        "{} after {}",
        first.fence(),
        last.fence()
    );
    locks_are_free(&mut conn);
    leases_follow_the_clock(&mut operator, &app(1), &kept, &first);
}

/// Of three members one may be silent.
fn grants_need_a_majority(nodes: &Nodes) {
    const SEMAPHORE: Semaphore = Semaphore::from_static("majority", 2);

    make_primary(nodes, 0);
    let database = Database::migrated(nodes);
    let [mut first, mut second] = [1, 2].map(|member| database.on(member));
    let grant = || {
        let mut conn = database.on(0);
        thread::spawn(move || conn.try_acquire_slot(&SEMAPHORE, LeaseOptions::new(HOUR)))
    };
    let finish = |granted: thread::JoinHandle<Result<Option<Slot>, Error>>| {
        let granted = granted.join().expect("no panic").expect("the primary");
        assert!(granted.is_some(), "a free slot");
    };
    let mut observer = database.on(0);
    let one = Stopped::new(&mut first);
    let granted = grant();
    await_that(|| granted.is_finished());
    finish(granted);
    let members = "SELECT COUNT(*) FROM performance_schema.replication_group_members";
    assert_eq!(number(&mut observer, members), 3, "not excluded yet");

    let other = Stopped::new(&mut second);
    let granted = grant();
    // `information_schema.processlist` returns an error if a statement contains bytes that are not text.
    let waits = "SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_db = DATABASE() \
                 AND processlist_id <> CONNECTION_ID() AND processlist_command <> 'Sleep' AND processlist_time >= 3";
    await_that(|| number(&mut observer, waits) == 1);
    assert!(!granted.is_finished(), "no majority");
    drop(other);
    await_that(|| granted.is_finished());
    finish(granted);
    drop(one);
}
