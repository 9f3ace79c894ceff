//! Slots that were granted to a node or a caller that does not use them.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::connection::{Connection, InstrumentationEvent};
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, SlotRenewer, StopToken, TimerJob};

use super::slots::{HOUR, one_hour, single_slot, slots_of};
use crate::support::Backend;
use crate::support::R2d2;
use crate::support::threads::{LONG, result_of, spawn, until};

/// Longer than the time from a grant to the next one, and short enough to be waited for.
const PERIOD: Duration = Duration::from_secs(20);

/// A job that is due in half a second.
fn due_soon<B: Backend>(conn: &mut B::Conn) -> TimerJob {
    let due = u64::try_from(B::now_us(conn) + 500_000).expect("after 1970");
    TimerJob::new("job", PERIOD).offset(Duration::from_micros(due))
}

/// The connection of another session, and the time of the grant once there is one.
struct Observer<C> {
    conn: C,
    granted_us: Option<i64>,
}

/// A renewer that is interrupted by `act` when a slot has been granted with its connection, for the first time.
fn interrupted_at_the_grant<B: Backend>(
    database: &Arc<B>,
    observer: &Arc<Mutex<Observer<B::Conn>>>,
    act: impl Fn(&mut B::Conn) + Send + Sync + 'static,
) -> SlotRenewer<R2d2<B::Conn>> {
    let (observer, act) = (Arc::clone(observer), Arc::new(act));
    let pool = B::pool_of(&database.url(), 2, move |conn| {
        let (observer, act) = (Arc::clone(&observer), Arc::clone(&act));
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            let InstrumentationEvent::FinishQuery { error, .. } = event else {
                return;
            };
            let mut observer = observer.lock().expect("no panic");
            if observer.granted_us.is_none() {
                let granted = "SELECT coalesce(max(acquired_us), 0) FROM diesel_locks_slots WHERE token IS NOT NULL";
                let granted = B::number(&mut observer.conn, granted);
                if granted > 0 {
                    observer.granted_us = Some(granted);
                    act(&mut observer.conn);
                }
            } else if error.is_some() {
                B::end_disturbance(&mut observer.conn);
            }
        });
    });
    SlotRenewer::new(pool)
}

/// Runs the first tick of the job, which is that of the first grant.
fn assert_first_grant_is_run<B: Backend>(
    renewer: SlotRenewer<R2d2<B::Conn>>,
    job: TimerJob,
    lease: LeaseOptions,
    observer: &Mutex<Observer<B::Conn>>,
) {
    let stop = StopToken::new();
    let node = spawn(move || {
        let mut due = None;
        let run = renewer
            .stopped_by(&stop)
            .run_on_timer(&job, &lease, |tick| {
                due = Some(tick.due_at());
                stop.stop();
                Ok::<_, Error>(())
            });
        run.map(|()| due.expect("a tick"))
    });
    let due = result_of(&node).expect("no error").timestamp_micros();
    let granted = observer.lock().expect("no panic").granted_us.expect("one");
    let period = i64::try_from(PERIOD.as_micros()).expect("short");
    assert!(
        (due..due + period).contains(&granted),
        "{due}, granted {granted}"
    );
}

fn observer<B: Backend>(conn: B::Conn) -> Arc<Mutex<Observer<B::Conn>>> {
    Arc::new(Mutex::new(Observer {
        conn,
        granted_us: None,
    }))
}

pub(crate) fn error_after_a_grant_does_not_skip_the_tick<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.disturber();
    let job = due_soon::<B>(&mut conn);
    let observer = observer::<B>(conn);
    let disturbed = Arc::clone(&database);
    let renewer =
        interrupted_at_the_grant(&database, &observer, move |conn| disturbed.disturb(conn));
    assert_first_grant_is_run::<B>(renewer, job, one_hour(), &observer);
}

pub(crate) fn lease_that_ends_before_the_call_does_not_skip_the_tick<B: Backend>() {
    const LEASE: Duration = Duration::from_millis(500);
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let job = due_soon::<B>(&mut conn);
    let observer = observer::<B>(conn);
    let renewer = interrupted_at_the_grant(&database, &observer, |_| std::thread::sleep(LEASE));
    assert_first_grant_is_run::<B>(renewer, job, LeaseOptions::new(LEASE), &observer);
}

/// A connection that does not answer, until the client library gives up: the other connection of the pool would renew the lease.
pub(crate) fn node_that_hangs_after_the_grant_leaves_later_ticks_to_others<B: Backend>() {
    const SECOND: Duration = Duration::from_secs(1);
    let database = B::new();
    let observed = Arc::new(Mutex::new(database.connect()));
    let (hangs, hung) = channel();
    let (answers, answered) = channel::<()>();
    let first = Arc::new(Mutex::new(Some((hangs, answered))));
    let pool = B::pool_of(&database.url(), 2, move |conn| {
        let (observed, first) = (Arc::clone(&observed), Arc::clone(&first));
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            let InstrumentationEvent::StartQuery { query, .. } = event else {
                return;
            };
            let granted = "SELECT count(*) FROM diesel_locks_slots WHERE token IS NOT NULL";
            let granted = || B::number(&mut observed.lock().expect("no panic"), granted);
            if !query.to_string().contains("hold_until_us") || granted() == 0 {
                return;
            }
            let is_first = first.lock().expect("no panic").take();
            if let Some((hangs, answered)) = is_first {
                hangs.send(()).expect("the test waits");
                let _ended = answered.recv();
            }
        });
    });
    let (job, lease) = (TimerJob::new("job", SECOND), LeaseOptions::new(SECOND));
    let run = |pool: R2d2<B::Conn>| {
        let (job, lease, stop) = (job.clone(), lease.clone(), StopToken::new());
        let renewer = SlotRenewer::new(pool).stopped_by(&stop);
        spawn(move || {
            renewer.run_on_timer(&job, &lease, |_| {
                stop.stop();
                Ok::<_, Error>(())
            })
        })
    };
    let node = run(pool);
    hung.recv_timeout(LONG).expect("it looks at its grant");
    result_of(&run(database.pool(2))).expect("another node runs a tick");
    drop(answers);
    result_of(&node).expect("it runs a later one");
}

pub(crate) fn node_stopped_at_the_grant_leaves_the_tick_to_others<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let job = due_soon::<B>(&mut conn);
    let observer = observer::<B>(conn);
    let stop = StopToken::new();
    let token = stop.clone();
    let renewer = interrupted_at_the_grant(&database, &observer, move |_| token.stop());
    let node = spawn(move || {
        renewer
            .stopped_by(&stop)
            .run_on_timer(&job, one_hour(), |_| -> Result<(), Error> {
                panic!("it was stopped")
            })
    });
    result_of(&node).expect("no error");
    let observer = observer.lock().expect("no panic");
    assert!(observer.granted_us.is_some(), "it was granted the tick");
    let mut conn = database.connect();
    assert_eq!(
        conn.held_slots(&slots_of("job")).expect("rows"),
        [],
        "it is free"
    );
}

pub(crate) fn caller_stopped_at_the_grant_leaves_no_minimum_hold_time<B: Backend>() {
    for waits in [true, false] {
        let database = Arc::new(B::new());
        let observer = observer::<B>(database.connect());
        let stop = StopToken::new();
        let token = stop.clone();
        let renewer = interrupted_at_the_grant(&database, &observer, move |_| token.stop());
        let renewer = renewer.stopped_by(&stop);
        let lease = one_hour().hold_at_least(HOUR / 2);
        let acquired = if waits {
            let acquired = renewer.acquire(&single_slot(), &lease, Wait::Forever);
            acquired.map(Some)
        } else {
            renewer.try_acquire(&single_slot(), &lease)
        };
        let error = acquired.map(|guard| guard.is_some());
        assert!(matches!(error, Err(Error::Stopped { .. })), "{error:?}");
        assert!(observer.lock().expect("no panic").granted_us.is_some());
        let mut conn = database.connect();
        let held = conn.held_slots(&slots_of(single_slot()));
        assert_eq!(held.expect("rows"), [], "it is free");
        // If the clock is set back, the slot is not free before the time of this grant.
        let rows = "SELECT count(*) FROM diesel_locks_slots WHERE expires_us = acquired_us";
        assert_eq!(B::number(&mut conn, rows), 1);
    }
}

/// While another session has the table locked, a node does not know whether the tick was run. An attempt could be granted
/// the slot when the lock ends, and run the tick once more after the clock was set back.
pub(crate) fn node_that_cannot_look_at_the_slot_does_not_try_to_acquire_it<B: Backend>(
    database: &B,
    mut set_locked: impl FnMut(bool),
) {
    const LOOKS: usize = 3;
    let mut conn = database.connect();
    let job = due_soon::<B>(&mut conn);
    let statements = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&statements);
    let pool = B::pool_of(&database.url(), 2, move |conn| {
        let sent = Arc::clone(&sent);
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event {
                sent.lock().expect("no panic").push(query.to_string());
            }
        });
    });
    let renewer = SlotRenewer::new(pool);
    let stop = StopToken::new();
    let token = stop.clone();
    set_locked(true);
    let node = spawn(move || {
        renewer
            .stopped_by(&token)
            .run_on_timer(&job, one_hour(), |_| -> Result<(), Error> {
                panic!("the table is locked")
            })
    });
    let is_look = |statement: &&String| statement.contains("hold_until_us");
    until(|| {
        statements
            .lock()
            .expect("no panic")
            .iter()
            .filter(is_look)
            .count()
            >= LOOKS
    });
    stop.stop();
    result_of(&node).expect("no error");
    set_locked(false);
    let statements = statements.lock().expect("no panic");
    let attempts: Vec<&String> = statements
        .iter()
        .filter(|statement| {
            statement.contains("acquire_slot") || statement.contains("expires_us, ")
        })
        .collect();
    assert!(attempts.is_empty(), "{attempts:?}");
}
