//! A user of MySQL's or MariaDB's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diesel_locks::Error;
use diesel_locks::prelude::*;

use crate::support::Backend;
use crate::support::rights::{ApplicationUser, User, documented};
use crate::support::threads::Holder;

/// Users that come and go meanwhile, at most.
const CHANGES: usize = 200;

const WAITS: usize = 40;

/// Of a wait of 3 ms: a change of users takes its time, too.
const LONGEST: Duration = Duration::from_secs(1);

crate::core_promises!(ApplicationUser);
crate::many_writers_promises!(ApplicationUser);
crate::session_promises!(ApplicationUser);

#[test]
fn each_documented_right_is_needed() {
    let [_, grants] = documented();
    super::each_right_is_needed(&grants, "DO 0", User::with);
}

#[test]
fn a_missing_right_is_named_in_german() {
    let [_, grants] = documented();
    super::each_right_is_needed(&grants, "SET lc_messages = 'de_DE'", User::with);
}

#[test]
fn only_the_owner_migrates() {
    let create = "GRANT CREATE, SELECT, INSERT ON * TO 'app'@'%'".to_owned();
    super::only_the_owner_migrates(|empty| User::with(empty, &[create]));
}

/// MySQL looks at a user's rights on tables with each statement, and waits while somebody changes any: the time of
/// a statement may be up then already, with errors of their own. Whether that is met is chance; how long a wait may
/// last is not.
#[test]
fn waits_end_in_time_while_rights_change() {
    let database = Arc::new(ApplicationUser::new());
    let holder = Holder::of(&database, "a");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CHANGES {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                drop(User::with(&database.database, &[]));
            }
        });
        let mut conn = database.connect();
        let lock = ObjectLock::on("a").wait(Wait::AtMost(Duration::from_millis(3)));
        let waits: Vec<(Option<Error>, Duration)> = (0..WAITS)
            .map(|_| {
                let begun = Instant::now();
                let result = conn.with_object_lock(&lock, |_| Ok::<_, Error>(()));
                (result.err(), begun.elapsed())
            })
            .collect();
        // Before an assertion fails.
        done.store(true, Ordering::SeqCst);
        for (error, took) in waits {
            assert!(error.as_ref().is_some_and(Error::is_timeout), "{error:?}");
            assert!(took <= LONGEST, "{took:?}");
        }
    });
    holder.let_go();
}
