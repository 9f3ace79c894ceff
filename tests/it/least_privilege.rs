//! The core of the suite as users who have the privileges of `docs/privileges.md` and no others, and what each privilege
//! is needed for.
//!
//! Left out is what the owner of the tables does: migrate, revert, and ask an empty database.

use std::time::Duration;

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, ListOptions, LockPool, Retention, SlotRenewer};

use crate::support::Backend;
use crate::support::backend::MIGRATIONS;
use crate::support::privileges::{Privilege, single_privileges};
use crate::support::wrapped_backend::{WrappedBackend, Wrapper};

mod mysql;
mod postgres;

/// Does once what the crate can do with tables that are there, in sessions that have been prepared; the errors.
fn everything<B: Backend>(url: &str, prepare: &str) -> Vec<Error> {
    let mut conn = B::connect_to(url);
    B::sql(&mut conn, prepare);
    let mut errors = Vec::new();
    let mut note = |result: Result<(), Error>| errors.extend(result.err());
    let nothing = |_: &mut B::Conn| Ok::<_, Error>(());

    for retention in [Retention::Transient, Retention::Kept] {
        let lock = LockRequest::new("a").retention(retention);
        note(conn.with_object_lock(&lock, nothing));
        note(conn.try_with_object_lock(&lock, nothing).map(drop));
        let two = LockRequest::all(["b", "c"]).retention(retention);
        note(conn.with_object_lock(two.wait(Wait::AtMost(SHORT)), nothing));
        note(B::in_transaction(&mut conn, |conn| conn.lock_object(&lock)));
    }
    let shared = LockRequest::from([LockRequest::shared("s"), "a".into()]);
    note(conn.with_object_lock(&shared, nothing));
    note(conn.with_object_lock(LockRequest::shared("s"), |_| {
        wait_behind_a_reader::<B>(url, prepare)
    }));
    note(conn.purge_object_locks().map(drop));

    let lease = || LeaseOptions::new(Duration::from_secs(60));
    let two = Semaphore::new("two", 2);
    note(conn.register_semaphores([&two]));
    match conn.acquire_slot(&two, lease(), Wait::AtMost(SHORT)) {
        Ok(mut slot) => {
            note(conn.renew_slot(&mut slot, SHORT * 2).map(drop));
            for held in conn.held_slots(&ListOptions::new()).unwrap_or_default() {
                note(conn.request_release(&held).map(drop));
            }
            note(conn.set_slot_data(&slot, "data").map(drop));
            note(B::in_transaction(&mut conn, |conn| conn.pin_slot(&slot)));
            note(conn.release_slot(slot).map(drop));
        }
        Err(error) => note(Err(error)),
    }
    note(conn.with_slot(&two, Wait::No, nothing));
    note(conn.set_permits("two", 2));
    note(conn.with_slot(&Semaphore::registered("two"), Wait::No, nothing));
    note(B::in_transaction(&mut conn, |conn| {
        conn.try_acquire_slot(&two, lease())?
            .map_or(Ok(()), |slot| conn.release_slot(slot).map(drop))
    }));
    // Fewer permits than slots.
    let one = Semaphore::new("two", 1);
    note(conn.try_acquire_slot(&one, lease()).map(drop));
    note(conn.force_release_all(&two).map(drop));
    let first = prepare.to_owned();
    let pool = B::pool_of(url, 1, move |conn| B::sql(conn, &first));
    note(
        SlotRenewer::new(pool)
            .try_run(&two, lease(), |_| Ok(()))
            .map(drop),
    );
    note(
        conn.try_acquire_slot(&Semaphore::new("new", 1), lease())
            .and_then(|slot| slot.map_or(Ok(()), |slot| conn.release_slot(slot).map(drop))),
    );
    note(conn.purge_slots(Duration::ZERO).map(drop));
    note(conn.raise_fences(Duration::ZERO).map(drop));

    let sequence = Sequence::new("invoice");
    for _ in 0..2 {
        note(conn.run_transaction(TransactionOptions::new(), |conn| {
            conn.next_number(&sequence).map(drop)
        }));
    }
    note(conn.last_number(&sequence).map(drop));
    let all = ListOptions::new();
    note(conn.semaphores(&all).map(drop));
    note(conn.held_slots(&all).map(drop));
    note(conn.sequences(&all).map(drop));
    errors
}

const SHORT: Duration = Duration::from_secs(2);

/// A writer that waits for what a reader holds, and times out.
fn wait_behind_a_reader<B: Backend>(url: &str, prepare: &str) -> Result<(), Error> {
    let prepare = prepare.to_owned();
    let pool = B::pool_of(url, 1, move |conn| B::sql(conn, &prepare));
    let writer = LockRequest::new("s").wait(Duration::from_millis(500));
    match LockPool::new(pool).with_object_lock(writer, |_| Ok::<_, Error>(())) {
        Err(Error::LockTimeout { source: None, .. }) => Ok(()),
        Ok(()) => panic!("a reader holds it"),
        error => error,
    }
}

/// Takes away each privilege alone. All errors are then about what it is on, and say what is needed on it; what the
/// server says has `refusal` in it.
fn each_privilege_is_needed<W: Wrapper>(
    grants: &[String],
    prepare: &str,
    refusal: &str,
    with: impl Fn(&W::Inner, &[String]) -> W,
) where
    WrappedBackend<W>: Backend,
{
    // Dropped after the database in which they have privileges.
    let mut users = Vec::new();
    let database = W::Inner::new();
    let all = single_privileges(grants);
    let mut owner = database.connect();
    users.push(with(&database, grants));
    // As after a test suite that empties all tables.
    W::Inner::sql(&mut owner, "DELETE FROM diesel_locks_fences");
    let errors = everything::<WrappedBackend<W>>(&users[0].url(), prepare);
    assert!(errors.is_empty(), "with all of them: {errors:?}");
    for Privilege {
        name: privilege,
        object,
        grant,
    } in &all
    {
        let others: Vec<String> = all
            .iter()
            .map(|other| other.grant.clone())
            .filter(|other| other != grant)
            .collect();
        let without = with(&database, &others);
        let url = without.url();
        users.push(without);
        W::Inner::sql(&mut owner, "DELETE FROM diesel_locks_fences");
        let errors = everything::<WrappedBackend<W>>(&url, prepare);
        assert!(!errors.is_empty(), "{privilege} on {object} is not needed");
        for error in errors {
            let on_it = all.iter().filter(|privilege| privilege.object == *object);
            assert_names(
                &error,
                privilege,
                object,
                &on_it.collect::<Vec<_>>(),
                refusal,
            );
        }
    }
}

fn assert_names(
    error: &Error,
    privilege: &str,
    object: &str,
    of_object: &[&Privilege],
    refusal: &str,
) {
    if object.starts_with("SCHEMA ") {
        assert!(error.is_missing_tables(), "{error:?}");
        assert!(error.to_string().contains("USAGE"), "{error}");
        return;
    }
    // FUNCTION name(types)
    let name = object
        .split(['(', ' '])
        .find(|word| word.contains("diesel"));
    let name = name.expect("a table or function");
    assert!(
        error.is_insufficient_privilege(),
        "without {privilege} on {object}: {error:?}"
    );
    let Error::InsufficientPrivilege {
        object, privileges, ..
    } = error
    else {
        unreachable!("it is");
    };
    assert_eq!(*object, name, "without {privilege}");
    let needed: Vec<&str> = of_object
        .iter()
        .map(|privilege| privilege.name.as_str())
        .collect();
    assert_eq!(*privileges, needed.join(", "), "as documented for {name}");
    let text = error.to_string();
    assert!(text.contains(privilege) && text.contains(name), "{text}");
    // The server says which, in its language.
    let source = std::error::Error::source(error).expect("the database's");
    let said = source.to_string();
    assert!(said.contains(name) && said.contains(refusal), "{said}");
}

/// The owner of the tables can migrate, and the application's user gets an error.
fn only_the_owner_migrates<W: Wrapper>(owner: impl FnOnce(&W::Inner) -> W)
where
    WrappedBackend<W>: Backend,
{
    let mut users = Vec::new();
    let migrated = WrappedBackend::<W>::new();
    let ran = diesel_locks::migrate(&mut migrated.connect()).expect("nothing to create");
    assert!(ran.is_empty(), "{ran:?}");
    let empty = W::Inner::empty();
    users.push(owner(&empty));
    let ran = diesel_locks::migrate(&mut WrappedBackend::<W>::connect_to(&users[0].url()));
    assert_eq!(ran.expect("its business").len(), MIGRATIONS);
}
