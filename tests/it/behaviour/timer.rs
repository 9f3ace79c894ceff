//! A job on a timer: each tick on one node.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent};
use diesel_locks::chrono::{DateTime, Utc};
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, SlotRenewer, StopToken, Tick, TimerJob};

use super::slots::guards::{renewed, renewer};
use super::slots::{HOUR, one_hour, slots_of};
use crate::subprocess::Subprocess;
use crate::support::Backend;
use crate::support::threads::{LONG, result_of, spawn, until};

const PERIOD: Duration = Duration::from_millis(200);

fn job(period: Duration) -> TimerJob {
    TimerJob::new("job", period)
}

/// The ticks that were run, and a check that no two are run at the same time.
#[derive(Default)]
struct Runs {
    running: AtomicBool,
    due: Mutex<Vec<DateTime<Utc>>>,
}

impl Runs {
    /// Runs the tick, and returns how many have been run.
    fn run(&self, tick: &Tick, work: impl FnOnce(usize)) -> usize {
        assert!(!self.running.swap(true, Ordering::SeqCst), "two at a time");
        let mut due = self.due.lock().expect("no panic");
        due.push(tick.due_at());
        let count = due.len();
        drop(due);
        work(count);
        assert!(self.running.swap(false, Ordering::SeqCst));
        count
    }
}

/// The pool has no connection until the tick has passed.
pub(crate) fn tick_due_before_the_first_answer_is_run<B: Backend>() {
    const BEFORE_US: i64 = 2_000_000;
    let database = B::new();
    let mut conn = database.connect();
    let pool = database.pool(1);
    let taken = pool.get().expect("a connection");
    let due = B::now_us(&mut conn) + BEFORE_US;
    let offset = Duration::from_micros(due.try_into().expect("after 1970"));
    let job = TimerJob::new("job", Duration::from_secs(20)).offset(offset);
    let renewer = SlotRenewer::new(pool);
    let (stop, requests) = (StopToken::new(), renewer.clone());
    let node = spawn(move || {
        let mut run = None;
        let renewer = renewer.stopped_by(&stop);
        let ended = renewer.run_on_timer(&job, one_hour(), |tick| {
            run = Some(tick.due_at().timestamp_micros());
            stop.stop();
            Ok::<_, Error>(())
        });
        ended.map(|()| run)
    });
    until(|| !requests.requests().is_empty());
    assert!(B::now_us(&mut conn) < due, "the machine is too slow");
    until(|| B::now_us(&mut conn) > due);
    drop(taken);
    assert_eq!(result_of(&node).expect("no error"), Some(due));
}

/// One of them returns at once, so that its tick lasts; one takes longer than two periods.
pub(crate) fn each_tick_is_run_by_one_node<B: Backend>() {
    const NODES: usize = 4;
    const TICKS: usize = 8;
    let database = Arc::new(B::new());
    let runs = Arc::new(Runs::default());
    let stop = StopToken::new();
    let nodes: Vec<_> = (0..NODES)
        .map(|_| {
            let (database, runs, stop) = (Arc::clone(&database), Arc::clone(&runs), stop.clone());
            spawn(move || {
                let renewer = renewer::<B>(&database, 2).poll_interval(Duration::from_millis(50));
                renewer
                    .stopped_by(&stop)
                    .run_on_timer(&job(PERIOD), renewed(), |tick| {
                        let count = runs.run(tick, |count| {
                            if count == 3 {
                                let started = Instant::now();
                                while started.elapsed() < 5 * PERIOD / 2 {
                                    assert!(tick.sleep(PERIOD / 10), "it is active");
                                }
                            }
                        });
                        if count == TICKS {
                            stop.stop();
                        }
                        Ok::<_, Error>(())
                    })
            })
        })
        .collect();
    for node in &nodes {
        result_of(node).expect("no error");
    }
    let due = runs.due.lock().expect("no panic");
    assert!(due.len() >= TICKS, "{due:?}");
    assert!(
        due.windows(2).all(|two| two[0] < two[1]),
        "each once, in order: {due:?}"
    );
    let period = i64::try_from(PERIOD.as_micros()).expect("short");
    assert!(
        due.iter().all(|due| due.timestamp_micros() % period == 0),
        "{due:?}"
    );
    let longest = (due[3] - due[2]).num_microseconds().expect("short");
    assert!(longest >= 2 * period, "ticks were skipped: {due:?}");
}

pub(crate) fn tick_of_a_killed_node_is_not_repeated<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let process = Subprocess::on_timer::<B>(&database.url(), "job");
    let held = conn.held_slots(&slots_of("job")).expect("rows");
    assert_eq!(held[0].holder.as_deref(), Some("subprocess"));
    let granted = held[0].acquired_at;
    let stop = StopToken::new();
    let (renewer, token) = (renewer::<B>(&database, 2), stop.clone());
    let node = spawn(move || {
        let mut due = Vec::new();
        renewer
            .stopped_by(&token)
            .run_on_timer(&job(Duration::from_secs(1)), renewed(), |tick| {
                due.push(tick.due_at());
                token.stop();
                Ok::<_, Error>(())
            })
            .expect("no error");
        due
    });
    process.kill();
    let due = result_of(&node);
    assert_eq!(due.len(), 1, "{due:?}");
    assert!(due[0] > granted, "a later tick: {due:?}, {granted}");
}

/// Neither after an error nor after a panic. The next tick waits for the release, not for the end of the lease.
pub(crate) fn failed_tick_is_not_repeated<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2);
    let mut due = BTreeSet::new();
    let stop = StopToken::new();
    for round in 0..4 {
        let run = catch_unwind(AssertUnwindSafe(|| {
            renewer
                .stopped_by(&stop)
                .run_on_timer(&job(PERIOD), one_hour(), |tick| {
                    assert!(due.insert(tick.due_at()), "repeated");
                    assert!(round % 2 == 0, "on purpose");
                    Err(Error::from(diesel::result::Error::NotFound))
                })
        }));
        match run {
            Ok(run) => assert!(run.is_err() && round % 2 == 0, "{run:?}"),
            Err(_) => assert_eq!(round % 2, 1),
        }
    }
    assert_eq!(due.len(), 4);
}

pub(crate) fn tick_that_is_asked_to_release_ends<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2);
    let stop = StopToken::new();
    let mut conn = database.connect();
    let run = renewer
        .stopped_by(&stop)
        .run_on_timer(&job(PERIOD), renewed(), |tick| {
            let held = conn.held_slots(&slots_of("job")).expect("rows");
            conn.request_release(&held[0]).expect("held");
            assert!(!tick.sleep(HOUR) && !tick.is_active());
            assert!(tick.guard().is_held() && tick.guard().release_requested());
            stop.stop();
            Ok::<_, Error>(())
        });
    run.expect("no error");
}

pub(crate) fn stop_ends_a_wait_for_a_tick<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2);
    let stop = StopToken::new();
    let token = stop.clone();
    let node = spawn(move || {
        let day = TimerJob::new("job", Duration::from_secs(36_524 * 86_400));
        renewer
            .stopped_by(&token)
            .run_on_timer(&day, one_hour(), |_| -> Result<(), Error> {
                panic!("not due")
            })
    });
    stop.stop();
    result_of(&node).expect("no error");
}

pub(crate) fn unusable_jobs_are_refused<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2);
    let stop = StopToken::new();
    let run = |job: &TimerJob, lease: &LeaseOptions| {
        let run = renewer
            .stopped_by(&stop)
            .run_on_timer(job, lease, |_| -> Result<(), Error> { panic!("not due") });
        run.expect_err("unusable")
    };
    let error = run(&job(Duration::from_millis(99)), &one_hour());
    assert!(matches!(error, Error::InvalidInterval { .. }), "{error:?}");
    assert!(
        error.to_string().contains("99 ms: 100 ms to 100 years"),
        "{error}"
    );
    let error = run(&job(Duration::MAX), &one_hour());
    assert!(matches!(error, Error::InvalidInterval { .. }), "{error:?}");
    for (expression, zone) in [("0 2 * *", "UTC"), ("0 2 * * *", "Europe/Atlantis")] {
        let error = run(&TimerJob::cron("job", expression, zone), &one_hour());
        assert!(matches!(error, Error::InvalidSchedule { .. }), "{error:?}");
    }
    let error = run(&TimerJob::new("", PERIOD), &one_hour());
    assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
    let error = run(&job(PERIOD), &LeaseOptions::new(Duration::ZERO));
    assert!(matches!(error, Error::InvalidLease { .. }), "{error:?}");
}

/// Two nodes; the next time of the expression and the offset comes soon, also on a busy machine.
pub(crate) fn tick_of_a_cron_expression_is_run_by_one_node<B: Backend>() {
    const MINUTE: i64 = 60_000_000;
    let database = B::new();
    let now = B::number(&mut database.connect(), &format!("SELECT {}", B::NOW_US));
    let due = now + 5_000_000;
    let offset = Duration::from_micros(u64::try_from(due % MINUTE).expect("after 1970"));
    let job = TimerJob::cron("job", "* * * * *", "Europe/Berlin").offset(offset);
    let (stop, runs) = (StopToken::new(), Arc::new(Runs::default()));
    let nodes = [0, 1].map(|_| {
        let (job, runs, stop) = (job.clone(), Arc::clone(&runs), stop.clone());
        let renewer = renewer::<B>(&database, 2).stopped_by(&stop);
        spawn(move || {
            renewer.run_on_timer(&job, renewed(), |tick| {
                runs.run(tick, |_| stop.stop());
                Ok::<_, Error>(())
            })
        })
    });
    for node in &nodes {
        result_of(node).expect("no error");
    }
    let ran = runs.due.lock().expect("no panic");
    let ran: Vec<_> = ran.iter().map(DateTime::timestamp_micros).collect();
    assert_eq!(ran, [due]);
}

pub(crate) fn ticks_are_not_repeated_after_the_clock_was_set_back<B: Backend>() {
    let due = |granted: i64, due: i64| assert!(due > granted, "{due} after the grant at {granted}");
    let row = "hold_until_us = hold_until_us + 2000000, expires_us = 0";
    with_a_clock_set_back::<B>(2, row, |_| {}, due);
}

pub(crate) fn force_release_ends_the_wait_after_the_clock_was_set_back<B: Backend>() {
    let release = |conn: &mut B::Conn| assert_eq!(conn.force_release_all("job").expect("free"), 1);
    let due = |granted: i64, due: i64| assert!(due < granted, "{due} after the grant at {granted}");
    let row = "hold_until_us = hold_until_us + 3600000000, expires_us = hold_until_us + 3600000000";
    with_a_clock_set_back::<B>(3600, row, release, due);
}

/// The last grant was for a tick that was not run. Those before it may have been run.
pub(crate) fn ticks_before_an_unused_grant_are_not_repeated<B: Backend>() {
    let period = i64::try_from(PERIOD.as_micros()).expect("a short one");
    let due = |granted: i64, due: i64| {
        assert!(
            due > granted - period,
            "{due} after the unused grant at {granted}"
        );
    };
    with_a_clock_set_back::<B>(
        2,
        "hold_until_us = acquired_us, expires_us = acquired_us",
        |_| {},
        due,
    );
}

/// Runs a tick, changes the row as if the clock was then set back, and compares the grant in it with the tick of a new node.
fn with_a_clock_set_back<B: Backend>(
    seconds: u32,
    row: &str,
    operate: impl Fn(&mut B::Conn),
    assert_due: impl Fn(i64, i64),
) {
    let database = B::new();
    let mut conn = database.connect();
    let run_one = |database: &B| {
        let (renewer, stop) = (renewer::<B>(database, 2), StopToken::new());
        let node = spawn(move || {
            let mut due = None;
            let run = renewer
                .stopped_by(&stop)
                .run_on_timer(&job(PERIOD), renewed(), |tick| {
                    due = Some(tick.due_at());
                    stop.stop();
                    Ok::<_, Error>(())
                });
            run.map(|()| due.expect("a tick"))
        });
        result_of(&node).expect("no error")
    };
    run_one(&database);
    for set in [
        &*format!("acquired_us = acquired_us + {seconds}000000"),
        row,
    ] {
        B::sql(&mut conn, &format!("UPDATE diesel_locks_slots SET {set}"));
    }
    let granted = B::number(&mut conn, "SELECT acquired_us FROM diesel_locks_slots");
    operate(&mut conn);
    // A new node.
    assert_due(granted, run_one(&database).timestamp_micros());
}

/// The tick of one node has ended before the other one, whose tick was due before, looks.
pub(crate) fn nodes_with_different_periods_share_ticks<B: Backend>() {
    let database = Arc::new(B::new());
    let mut conn = database.connect();
    let (short, long) = (Duration::from_millis(100), Duration::from_secs(2));
    let due_us = B::now_us(&mut conn) + 500_000;
    let offset = Duration::from_micros(u64::try_from(due_us).expect("after 1970"));
    let (granted, grant) = channel();
    // With the long period. When its tick is due, it is overtaken.
    let overtaking = Arc::new(Mutex::new(Some((conn, granted))));
    let url = database.url();
    let pool = B::pool_of(&url.clone(), 2, move |conn| {
        let (overtaking, url) = (Arc::clone(&overtaking), url.clone());
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            let InstrumentationEvent::StartQuery { .. } = event else {
                return;
            };
            let mut overtaking = overtaking.lock().expect("no panic");
            let Some((conn, granted)) = &mut *overtaking else {
                return;
            };
            if B::now_us(conn) < due_us {
                return;
            }
            let (renewer, stop) = (SlotRenewer::new(B::pool_to(&url, 2)), StopToken::new());
            let run = renewer
                .stopped_by(&stop)
                .run_on_timer(&job(short), renewed(), |_| {
                    stop.stop();
                    Ok::<_, Error>(())
                });
            run.expect("no error");
            while !conn.held_slots(&slots_of("job")).expect("rows").is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let time = B::number(conn, "SELECT acquired_us FROM diesel_locks_slots");
            granted.send(time).expect("the test waits");
            *overtaking = None;
        });
    });
    let (renewer, stop) = (SlotRenewer::new(pool), StopToken::new());
    let node = spawn(move || {
        let mut due = None;
        let run =
            renewer
                .stopped_by(&stop)
                .run_on_timer(&job(long).offset(offset), renewed(), |tick| {
                    due = Some(tick.due_at());
                    stop.stop();
                    Ok::<_, Error>(())
                });
        run.map(|()| due.expect("a tick"))
    });
    let due = result_of(&node).expect("no error").timestamp_micros();
    let granted = grant.recv_timeout(LONG).expect("it was overtaken");
    assert!(due > granted, "{due} after the grant at {granted}");
}
