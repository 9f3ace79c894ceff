//! Rows that row-level security, triggers or rules keep from the user of an application.

use std::fmt::Debug;
use std::time::Duration;

use diesel::PgConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions, Retention, Slot};

use crate::behaviour::slots::slots_of;
use crate::support::Backend;
use crate::support::postgres::Postgres;
use crate::support::privileges::{Role, documented_grants};
use crate::support::wrapped_backend::Wrapper;

const TABLES: [&str; 6] = [
    "diesel_locks_objects",
    "diesel_locks_wanted",
    "diesel_locks_slots",
    "diesel_locks_semaphores",
    "diesel_locks_fences",
    "diesel_locks_sequences",
];

const MINUTE: Duration = Duration::from_secs(60);

fn lease() -> LeaseOptions {
    LeaseOptions::new(MINUTE)
}

fn kept(id: &str) -> LockRequest {
    LockRequest::new(id).retention(Retention::Kept)
}

fn semaphore(name: &str) -> Semaphore {
    Semaphore::new(name, 1)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the methods run closures that may fail"
)]
fn nothing(_: &mut PgConnection) -> Result<(), Error> {
    Ok(())
}

#[track_caller]
fn assert_protected<T: Debug>(result: Result<T, Error>, table: &str) {
    match result {
        Err(Error::ProtectedRow { table: named, .. }) => {
            assert_eq!(named, format!("diesel_locks_{table}"));
        }
        other => panic!("{other:?}"),
    }
}

/// Calls `work` with a slot that is leased and two connections: of the owner, and of a user with all privileges, after these
/// statements, in which `%` is the name of each table.
fn with_statements(
    statements: &str,
    work: impl FnOnce(&mut PgConnection, &mut PgConnection, &mut Slot),
) {
    let database = Postgres::new();
    let [grants, _] = documented_grants();
    let role = Role::with(&database, &grants);
    let mut owner = database.connect();
    owner.with_object_lock(kept("kept"), nothing).expect("free");
    for name in ["free", "held"] {
        owner
            .register_semaphores([semaphore(name)])
            .expect("registered");
    }
    let slot = owner.try_acquire_slot(&semaphore("held"), lease());
    let mut slot = slot.expect("an answer").expect("free");
    let drawn = owner.run_transaction(TransactionOptions::new(), |conn| {
        conn.next_number(&Sequence::new("invoice"))
    });
    assert_eq!(drawn.expect("a number"), 1);
    for table in TABLES {
        Postgres::sql(&mut owner, &statements.replace('%', table));
    }
    work(
        &mut owner,
        &mut Postgres::connect_to(&role.url()),
        &mut slot,
    );
    drop(database);
}

/// What fails with each of the statements.
fn assert_changes_are_refused(conn: &mut PgConnection, slot: &mut Slot) {
    let limit = Wait::AtMost(Duration::from_millis(100));
    for lock in [LockRequest::new("a"), kept("a")] {
        assert_protected(conn.with_object_lock(&lock, nothing), "objects");
        let at_most = lock.clone().wait(limit);
        assert_protected(conn.with_object_lock(&at_most, nothing), "objects");
        assert_protected(conn.try_with_object_lock(&lock, nothing), "objects");
    }
    assert_protected(conn.try_acquire_slot(&semaphore("free"), lease()), "slots");
    for wait in [Wait::No, limit, Wait::Forever] {
        let acquired = conn.acquire_slot(&semaphore("free"), lease(), wait);
        assert_protected(acquired, "slots");
    }
    let inside = conn.run_transaction(TransactionOptions::new(), |conn| {
        conn.try_acquire_slot(&semaphore("free"), lease())
    });
    assert_protected(inside, "slots");
    assert_protected(conn.renew_slot(slot, MINUTE), "slots");
    assert_protected(conn.release_slot(&*slot), "slots");
    let drawn = conn.run_transaction(TransactionOptions::new(), |conn| {
        conn.next_number(&Sequence::new("invoice"))
    });
    assert_protected(drawn, "sequences");
    // A slot that another holds is not free.
    let held = conn.try_acquire_slot(&semaphore("held"), lease());
    assert_eq!(held.expect("an answer"), None);
}

#[test]
fn tables_that_can_only_be_read_are_an_error() {
    let policies = "ALTER TABLE % ENABLE ROW LEVEL SECURITY; CREATE POLICY reading ON % FOR SELECT USING (true)";
    with_statements(policies, |_, conn, slot| {
        assert_changes_are_refused(conn, slot);
        assert_protected(conn.purge_object_locks(), "objects");
        assert_protected(conn.try_with_slot(&semaphore("free"), nothing), "slots");
        let waited = conn.with_slot(&semaphore("free"), Wait::Forever, nothing);
        assert_protected(waited, "slots");
        let pinned = conn.run_transaction(TransactionOptions::new(), |conn| conn.pin_slot(&*slot));
        assert_protected(pinned, "slots");
        assert_protected(conn.try_acquire_slot(&semaphore("new"), lease()), "fences");
        let waited = conn.acquire_slot(&semaphore("new"), lease(), Wait::Forever);
        assert_protected(waited, "fences");
        assert_protected(conn.register_semaphores([semaphore("new")]), "semaphores");
        let held = conn.held_slots(&slots_of("held")).expect("slots");
        assert_protected(conn.request_release(&held[0]), "slots");
        assert_protected(conn.set_slot_data(slot, "data"), "slots");
        assert_protected(conn.force_release_all("held"), "slots");
        assert_protected(conn.purge_slots(Duration::ZERO), "fences");
        assert_protected(conn.raise_fences(MINUTE), "fences");
        // What is read is there.
        let last = conn.last_number(&Sequence::new("invoice"));
        assert_eq!(last.expect("a number"), Some(1));
        assert_eq!(conn.held_slots(&slots_of("held")).expect("slots").len(), 1);
        assert_eq!(
            conn.semaphores(&ListOptions::new()).expect("a list").len(),
            2
        );
    });
}

#[test]
fn tables_to_which_rows_can_only_be_added_are_an_error() {
    let policies = "ALTER TABLE % ENABLE ROW LEVEL SECURITY; CREATE POLICY reading ON % FOR SELECT USING (true); \
                    CREATE POLICY adding ON % FOR INSERT WITH CHECK (true)";
    with_statements(policies, |_, conn, _| {
        assert_protected(conn.with_object_lock("a", nothing), "objects");
        assert_protected(conn.purge_slots(Duration::ZERO), "fences");
        assert_protected(conn.raise_fences(MINUTE), "fences");
    });
}

#[test]
fn tables_whose_rows_are_hidden_are_an_error() {
    with_statements("ALTER TABLE % ENABLE ROW LEVEL SECURITY", |_, conn, _| {
        assert_protected(conn.with_object_lock("a", nothing), "objects");
        assert_protected(conn.purge_object_locks(), "objects");
        assert_protected(conn.try_acquire_slot(&semaphore("free"), lease()), "fences");
        assert_protected(conn.purge_slots(Duration::ZERO), "slots");
        assert_protected(conn.force_release_all("held"), "slots");
        assert_protected(conn.semaphores(&ListOptions::new()), "slots");
        assert_protected(conn.held_slots(&ListOptions::new()), "slots");
        assert_protected(conn.sequences(&ListOptions::new()), "sequences");
        let last = conn.last_number(&Sequence::new("invoice"));
        assert_protected(last, "sequences");
    });
}

#[test]
fn policies_that_permit_everything_change_nothing() {
    let policies =
        "ALTER TABLE % ENABLE ROW LEVEL SECURITY; CREATE POLICY everything ON % USING (true)";
    with_statements(policies, |owner, conn, slot| {
        for lock in [LockRequest::new("a"), kept("a")] {
            conn.with_object_lock(&lock, nothing).expect("free");
        }
        conn.renew_slot(slot, MINUTE).expect("held");
        let taken = conn.try_acquire_slot(&semaphore("free"), lease());
        conn.release_slot(taken.expect("an answer").expect("free"))
            .expect("ours");
        // Another session has locked it.
        let refused = owner.with_slot(&semaphore("free"), Wait::No, |_| {
            conn.try_acquire_slot(&semaphore("free"), lease())
        });
        assert_eq!(refused.expect("an answer"), None);
        let last = conn.last_number(&Sequence::new("another"));
        assert_eq!(last.expect("an answer"), None);
        assert_eq!(conn.held_slots(&slots_of("another")).expect("a list"), []);
        conn.release_slot(&*slot).expect("held");
        assert_eq!(conn.force_release_all("held").expect("a count"), 0);
        assert_eq!(conn.purge_object_locks().expect("a count"), 2);
        assert_eq!(conn.purge_object_locks().expect("a count"), 0);
        assert_eq!(conn.purge_slots(MINUTE).expect("a count"), 0);
    });
}

#[test]
fn changes_that_a_trigger_suppresses_are_an_error() {
    let trigger = "CREATE OR REPLACE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
                   GRANT EXECUTE ON FUNCTION suppress TO PUBLIC; \
                   CREATE TRIGGER suppress BEFORE INSERT OR UPDATE OR DELETE ON % FOR EACH ROW EXECUTE FUNCTION suppress()";
    with_statements(trigger, |owner, conn, slot| {
        assert_changes_are_refused(conn, slot);
        assert_protected(conn.purge_object_locks(), "objects");
        assert_protected(conn.try_acquire_slot(&semaphore("new"), lease()), "slots");
        assert_protected(conn.register_semaphores([semaphore("new")]), "semaphores");
        assert_protected(conn.raise_fences(MINUTE), "fences");
        Postgres::sql(owner, "TRUNCATE diesel_locks_fences");
        assert_protected(conn.raise_fences(MINUTE), "fences");
        assert_protected(conn.try_acquire_slot(&semaphore("new"), lease()), "fences");
    });
}
