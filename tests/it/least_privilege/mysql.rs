//! A user of MySQL's or MariaDB's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::support::Backend;
use crate::support::privileges::{ApplicationUser, User, documented_grants};
use crate::support::threads::{Holder, LONG};

/// Sessions that change privileges at the same time: the more, the longer a statement waits for them.
const CHANGERS: usize = 8;

/// Users that come and go meanwhile, if they do so within [`A_WHILE`].
const CHANGES: usize = 300;

const A_WHILE: Duration = Duration::from_secs(10);

/// The least number of changes otherwise.
const FEWEST: usize = 20;

/// At least.
const WAITS: usize = 40;

/// Of three in four waits of 3 ms: a change of users takes its time, too.
const LONGEST: Duration = Duration::from_secs(1);

crate::core_tests!(ApplicationUser);
crate::many_writers_tests!(ApplicationUser);
crate::session_tests!(ApplicationUser);

#[test]
fn each_documented_privilege_is_needed() {
    let [_, grants] = documented_grants();
    super::each_privilege_is_needed(&grants, "DO 0", "denied", User::with);
}

#[test]
fn missing_privilege_is_named_in_german() {
    let [_, grants] = documented_grants();
    let german = "SET lc_messages = 'de_DE'";
    super::each_privilege_is_needed(&grants, german, "nicht erlaubt", User::with);
}

#[test]
fn only_the_owner_migrates() {
    let create = "GRANT CREATE, SELECT, INSERT ON * TO 'app'@'%'".to_owned();
    super::only_the_owner_migrates(|empty| User::with(empty, &[create]));
}

/// MySQL checks a user's privileges on tables in each statement, and waits while a session changes any: the time of
/// a statement may be up then already, with errors of their own. Whether that is met is chance; how long a wait may
/// last is not.
#[test]
fn timeout_holds_while_privileges_change() {
    let database = Arc::new(ApplicationUser::new());
    let holder = Holder::acquire(&database, "a");
    let mut conn = database.connect();
    let done = AtomicBool::new(false);
    let changes = AtomicUsize::new(0);
    let started = Instant::now();
    let (waits, spawn) = std::thread::scope(|scope| {
        for _ in 0..CHANGERS {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    drop(User::with(&database.database, &[]));
                    changes.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // Nothing here may fail, for the changes to come to an end.
        while changes.load(Ordering::SeqCst) == 0 && started.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
        }
        let first = changes.load(Ordering::SeqCst);
        let spawn = || changes.load(Ordering::SeqCst) - first;
        let lock = LockRequest::new("a").wait(Wait::AtMost(Duration::from_millis(3)));
        let mut waits: Vec<(Option<Error>, Duration)> = Vec::new();
        let goes_on = |waits: usize| {
            let wanted = if started.elapsed() < A_WHILE {
                CHANGES
            } else {
                FEWEST
            };
            (waits < WAITS || spawn() < wanted) && started.elapsed() < LONG
        };
        while goes_on(waits.len()) {
            let started = Instant::now();
            let result = conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
            waits.push((result.err(), started.elapsed()));
        }
        let spawn = spawn();
        done.store(true, Ordering::SeqCst);
        (waits, spawn)
    });
    assert!(spawn >= FEWEST, "{spawn} changes");
    assert!(waits.len() >= WAITS, "{} waits", waits.len());
    for (error, took) in &waits {
        assert!(error.as_ref().is_some_and(Error::is_timeout), "{error:?}");
        assert!(*took < LONG, "{took:?}");
    }
    let late = waits.iter().filter(|(_, took)| *took > LONGEST).count();
    assert!(late * 4 <= waits.len(), "{late} of {}", waits.len());
    holder.release();
}
