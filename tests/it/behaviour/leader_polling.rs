//! How often waiters for a leased slot ask the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent};
use diesel_locks::prelude::*;
use diesel_locks::{Error, SlotRenewer, StopToken};

use super::events::Collector;
use super::leader::{Node, name_of_its_own, next};
use super::slots::guards::{guarded, renewer};
use super::slots::{HOUR, acquire, one_hour};
use crate::support::Backend;
use crate::support::R2d2;
use crate::support::threads::{LONG, result_of, spawn, until};

/// A renewer over one connection, whose statements are shown when they begin and when they have ended.
fn observed<B: Backend>(
    database: &B,
    shown: impl Fn(&InstrumentationEvent<'_>) + Clone + Send + Sync + 'static,
) -> SlotRenewer<R2d2<B::Conn>> {
    SlotRenewer::new(B::pool_of(&database.url(), 1, move |conn| {
        let shown = shown.clone();
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| shown(&event));
    }))
}

/// A renewer whose statements are counted.
fn counted<B: Backend>(database: &B, statements: &Arc<AtomicU32>) -> SlotRenewer<R2d2<B::Conn>> {
    let statements = Arc::clone(statements);
    observed(database, move |event| {
        if let InstrumentationEvent::StartQuery { .. } = event {
            statements.fetch_add(1, Ordering::SeqCst);
        }
    })
}

/// A bound on the number of statements in the time that has passed, however long that is.
pub(crate) fn idle_standbys_send_few_statements<B: Backend>() {
    let database = B::new();
    let ours = renewer::<B>(&database, 2);
    let semaphore = name_of_its_own::<B>("idle standbys");
    let held = guarded::<B>(&ours, &semaphore, &one_hour());
    let (elected, elections) = channel();
    let statements = Arc::new(AtomicU32::new(0));
    let renewer = counted(&database, &statements);
    let node = Node::with_renewer::<B>(&renewer, &semaphore, "a", &elected);
    let started = Instant::now();
    std::thread::sleep(Duration::from_secs(4));
    let sent = statements.load(Ordering::SeqCst);
    // At most two looks per second. And those with which it begins: settings of the connection, the attempt, the identity
    // of the database, a first look.
    let polls = u32::try_from(started.elapsed().as_millis() / 500).expect("a short test") + 1;
    assert!(
        sent <= 15 + B::STATEMENTS_PER_LOOK * polls,
        "{sent} statements, {polls} polls"
    );
    assert!(elections.try_recv().is_err(), "no election");
    held.release().expect("ours");
    next(&elections);
    node.stop();
}

/// The pauses of a renewer's wait grow too.
pub(crate) fn long_wait_of_a_renewer_sends_few_statements<B: Backend>() {
    let database = B::new();
    let ours = renewer::<B>(&database, 2);
    let semaphore = name_of_its_own::<B>("long wait");
    let held = guarded::<B>(&ours, &semaphore, &one_hour());
    let statements = Arc::new(AtomicU32::new(0));
    let renewer = counted(&database, &statements);
    let stop = StopToken::new();
    let waits = Arc::new(AtomicUsize::new(0));
    let (stoppable, waiting) = (renewer.stopped_by(&stop), Arc::clone(&waits));
    let waiter = std::thread::spawn(move || {
        waiting.fetch_add(1, Ordering::SeqCst);
        stoppable.acquire(&semaphore, one_hour(), Wait::Forever)
    });
    let started = Instant::now();
    while waits.load(Ordering::SeqCst) == 0 || started.elapsed() < Duration::from_secs(6) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let seconds = u32::try_from(started.elapsed().as_secs()).expect("a short test") + 1;
    let sent = statements.load(Ordering::SeqCst);
    // 22 polls in the first second; then a pause of half a tenth to a tenth of the time: 14 polls per doubling. Without
    // that there would be 10 to 20 per second.
    let doublings = seconds.ilog2() + 1;
    assert!(
        sent <= 15 + 2 * 22 + B::STATEMENTS_PER_LOOK * 20 * doublings,
        "{sent} in {seconds} s"
    );
    drop(held);
    let guard = waiter.join().expect("no panic").expect("a slot");
    guard.release().expect("ours");
}

/// The first waiter has a long interval, and one that comes later not.
pub(crate) fn waiters_ask_at_the_shortest_of_their_intervals<B: Backend>() {
    let database = B::new();
    let semaphore = name_of_its_own::<B>("shortest interval");
    let mut conn = database.connect();
    let slot = acquire::<B>(&mut conn, &semaphore);
    let looks = Arc::new(AtomicU32::new(0));
    let looked = Arc::clone(&looks);
    let patient = observed(&database, move |event| {
        if let InstrumentationEvent::FinishQuery { query, .. } = event
            && query.to_string().contains("expires_us - ")
        {
            looked.fetch_add(1, Ordering::SeqCst);
        }
    });
    let (elected, elections) = channel();
    let patient = patient.poll_interval(HOUR);
    let node = Node::with_renewer::<B>(&patient, &semaphore, "patient", &elected);
    // From then on it pauses for an hour.
    until(|| looks.load(Ordering::SeqCst) > 0);
    let (other, name) = (renewer::<B>(&database, 2), semaphore.clone());
    let second = spawn(move || other.acquire(&name, one_hour(), Wait::AtMost(LONG)));
    // As another process releases it: no waiter of this process is notified.
    let released = format!(
        "UPDATE diesel_locks_slots SET token = NULL, expires_us = 0 WHERE name = '{}'",
        slot.semaphore()
    );
    B::sql(&mut conn, &released);
    assert_eq!(next(&elections).0, "patient");
    node.stop();
    let guard = result_of(&second).expect("it is the next");
    guard.release().expect("ours");
}

/// However long its poll interval is.
pub(crate) fn standby_of_a_registered_semaphore_is_elected_when_the_lease_ends<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let name = name_of_its_own::<B>("registered").name().to_owned();
    conn.set_permits(&name, 1).expect("set");
    let registered = Semaphore::registered(&name);
    let lease = LeaseOptions::new(Duration::from_secs(3));
    let _ends = conn
        .acquire_slot(&registered, lease, Wait::No)
        .expect("free");
    let (elected, elections) = channel();
    let standby = renewer::<B>(&database, 2).poll_interval(HOUR);
    let node = Node::with_renewer::<B>(&standby, &registered, "standby", &elected);
    assert_eq!(next(&elections).0, "standby");
    node.stop();
}

/// Its leases end before the answers come.
pub(crate) fn node_with_a_too_short_lease_pauses_between_its_grants<B: Backend>() {
    const PAUSE: Duration = Duration::from_millis(300);
    let database = B::new();
    let semaphore = name_of_its_own::<B>("too short");
    let slow = observed(&database, |event| {
        if let InstrumentationEvent::FinishQuery { .. } = event {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let (slow, stop) = (slow.poll_interval(PAUSE), StopToken::new());
    let token = stop.clone();
    let lease = LeaseOptions::new(Duration::from_millis(1));
    let collector = Collector::global();
    let started = Instant::now();
    let node = std::thread::spawn(move || {
        slow.stopped_by(&token)
            .run_as_leader(&semaphore, &lease, |_| -> Result<(), Error> {
                panic!("its lease has ended")
            })
    });
    let thread = node.thread().id();
    until(|| collector.events_of(thread).matches("granted").count() >= 3);
    // A pause follows each grant.
    assert!(started.elapsed() >= 2 * PAUSE, "{:?}", started.elapsed());
    stop.stop();
    node.join().expect("no panic").expect("no error");
}
