//! Slots that are renewed in the background.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent};
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, LeaseState, LockPool, SlotGuard, SlotRenewer};

use super::{HOUR, acquire, is_full, one_hour, single_slot, slots_of};
use crate::behaviour::events::Collector;
use crate::behaviour::lock_pool::shown;
use crate::subprocess::{LEASE, RENEWED_LEASE, SUBPROCESS_GUARDS, Subprocess};
use crate::support::Backend;
use crate::support::R2d2;
use crate::support::threads::{LONG, begin, loss_of, result_of, roll_back, spawn, until};
use crate::support::urls::fresh_name;

/// A renewer with a pool of its own.
pub(crate) fn renewer<B: Backend>(database: &B, connections: u32) -> SlotRenewer<R2d2<B::Conn>> {
    SlotRenewer::new(database.pool(connections))
}

/// A lease whose end a test waits for.
fn short() -> LeaseOptions {
    LeaseOptions::new(LEASE).holder("guard")
}

/// A lease that is renewed often enough to be held on a busy machine.
pub(crate) fn renewed() -> LeaseOptions {
    LeaseOptions::new(RENEWED_LEASE).holder("guard")
}

/// Returns when all slots are released, other than by the end of their leases, which leaves their tokens. A guard that
/// is dropped waits for the release for a short time only.
pub(crate) fn await_release<B: Backend>(conn: &mut B::Conn) {
    let with_token = "SELECT count(*) FROM diesel_locks_slots WHERE token IS NOT NULL";
    let started = Instant::now();
    while B::number(conn, with_token) > 0 {
        assert!(started.elapsed() < LONG, "all are released");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A guard of a slot that is free.
pub(crate) fn guarded<B: Backend>(
    renewer: &SlotRenewer<R2d2<B::Conn>>,
    semaphore: &Semaphore,
    lease: &LeaseOptions,
) -> SlotGuard {
    renewer
        .try_acquire(semaphore, lease)
        .expect("an answer")
        .expect("a free slot")
}

/// How long a slot is held from its grant to the end of its lease, and the remaining time.
fn times<B: Backend>(conn: &mut B::Conn) -> Option<(Duration, Duration)> {
    times_of::<B>(conn, &single_slot())
}

fn times_of<B: Backend>(conn: &mut B::Conn, semaphore: &Semaphore) -> Option<(Duration, Duration)> {
    let held = conn.held_slots(&slots_of(semaphore)).expect("rows");
    let held = held.first()?;
    let lasts = (held.expires_at - held.acquired_at).to_std();
    Some((lasts.expect("later"), held.remaining))
}

/// Reports progress until the lease was renewed after a third of it.
pub(crate) fn await_renewal<B: Backend>(conn: &mut B::Conn, guard: &SlotGuard) {
    let semaphore = Semaphore::new(guard.slot().semaphore(), 1);
    until(|| {
        guard.progress().expect("held");
        let (lasts, _) = times_of::<B>(conn, &semaphore).expect("held");
        lasts > RENEWED_LEASE * 5 / 4
    });
}

pub(crate) fn guard_is_renewed_until_it_is_dropped<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let guard = guarded::<B>(&renewer, &single_slot(), &renewed());
    let started = Instant::now();
    // A renewal comes after a third of the lease, and extends it by as much.
    loop {
        assert!(guard.is_held());
        guard.ensure_held().expect("held");
        assert!(started.elapsed() < LONG, "it is not renewed");
        let (lasts, _) = times::<B>(&mut conn).expect("held");
        if lasts > RENEWED_LEASE * 3 / 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(is_full::<B>(&mut conn, &single_slot()));
    assert!(guard.fence() > 0 && guard.remaining() <= RENEWED_LEASE);
    let lost = loss_of(&guard);
    drop(guard);
    await_release::<B>(&mut conn);
    assert!(!is_full::<B>(&mut conn, &single_slot()));
    assert!(lost.recv().is_err(), "released is not lost");
}

pub(crate) fn guard_release_returns_the_lease_state<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let guard = guarded::<B>(&renewer, &single_slot(), &one_hour());
    assert!(
        renewer
            .try_acquire(&single_slot(), one_hour())
            .expect("an answer")
            .is_none()
    );
    let wait = Wait::AtMost(Duration::from_millis(60));
    let error = renewer
        .acquire(&single_slot(), one_hour(), wait)
        .expect_err("held");
    assert!(error.is_timeout(), "{error:?}");
    let error = renewer.acquire(&single_slot(), one_hour(), Wait::No);
    assert!(error.expect_err("held").is_unavailable());
    assert_eq!(guard.release().expect("ours"), LeaseState::Unexpired);
    assert!(!is_full::<B>(&mut conn, &single_slot()));

    let guard = guarded::<B>(&renewer, &single_slot(), &one_hour());
    assert_eq!(conn.force_release_all(single_slot()).expect("a count"), 1);
    let next = acquire::<B>(&mut conn, &single_slot());
    assert!(guard.release().expect_err("another's").is_slot_lost());
    conn.release_slot(next).expect("untouched");
}

pub(crate) fn force_released_slot_is_noticed_by_its_guard<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let guard = guarded::<B>(&renewer, &single_slot(), &short());
    let called = Arc::new(AtomicUsize::new(0));
    let lost = loss_of(&guard);
    for _ in 0..2 {
        let called = Arc::clone(&called);
        guard.on_lost(move || {
            called.fetch_add(1, Ordering::SeqCst);
        });
    }
    guard.on_lost(|| panic!("on purpose"));
    conn.force_release_all(single_slot()).expect("a count");
    let next = acquire::<B>(&mut conn, &single_slot());
    lost.recv_timeout(LONG).expect("it is noticed");
    assert!(!guard.is_held());
    let lost = guard.ensure_held().expect_err("lost");
    assert!(lost.is_slot_lost(), "{lost:?}");
    assert_eq!(guard.remaining(), Duration::ZERO);
    let started = Instant::now();
    while called.load(Ordering::SeqCst) < 2 {
        assert!(started.elapsed() < LONG, "callbacks are called");
        std::thread::yield_now();
    }
    // A callback of a guard that is lost is called at once.
    assert_eq!(loss_of(&guard).try_recv(), Ok(()));
    drop(guard);
    assert_eq!(called.load(Ordering::SeqCst), 2, "once each");
    conn.release_slot(next)
        .expect("the next holder is not touched");
}

/// A pool that is empty delays the renewal, and nothing else.
pub(crate) fn guard_that_is_not_renewed_in_time_stays_lost<B: Backend>() {
    let database = B::new();
    let pool = database.pool(1);
    let renewer = SlotRenewer::new(pool.clone());
    let guard = guarded::<B>(&renewer, &single_slot(), &short());
    let started = Instant::now();
    // A callback may drop another guard of the same renewer.
    let other = guarded::<B>(&renewer, &Semaphore::new("other", 1), &short());
    guard.on_lost(move || drop(other));
    let busy = pool.get().expect("the only connection");
    loss_of(&guard).recv_timeout(LONG).expect("it is noticed");
    // Not before: the first lease counts from before it was sent.
    assert!(started.elapsed() < LONG && !guard.is_held());
    drop(busy);
    let mut conn = pool.get().expect("free");
    // Longer than the lease: a renewer that still renewed would prevent the grant.
    let waited = Wait::AtMost(LONG);
    let next = conn
        .acquire_slot(&single_slot(), one_hour(), waited)
        .expect("the lease ends");
    assert!(!guard.is_held());
    assert!(next.fence() > guard.fence());
    drop(conn);
    let started = Instant::now();
    drop(guard);
    assert!(started.elapsed() < Duration::from_secs(5), "no long block");
    pool.get()
        .expect("free")
        .release_slot(next)
        .expect("the next holder is not touched");
}

/// The callback runs until the test ends it.
pub(crate) fn callback_of_a_lost_guard_delays_no_renewal<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let guard = guarded::<B>(&renewer, &single_slot(), &renewed());
    let other = Semaphore::new("other", 1);
    let lost = guarded::<B>(&renewer, &other, &renewed());
    let (called, is_called) = channel();
    let (end, ended) = channel::<()>();
    lost.on_lost(move || {
        called.send(()).expect("the test waits");
        let _ = ended.recv();
    });
    conn.force_release_all(&other).expect("a count");
    is_called.recv_timeout(LONG).expect("it is lost");
    let (before, _) = times::<B>(&mut conn).expect("held");
    let started = Instant::now();
    while times::<B>(&mut conn).is_none_or(|(lasts, _)| lasts <= before) {
        assert!(started.elapsed() < LONG, "it is not renewed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(guard.is_held());
    drop(end);
}

/// The database is out of reach: the only connection is in use. A thread that drops a guard elsewhere waits for 200 ms.
pub(crate) fn guards_dropped_in_their_callbacks_delay_no_other_callback<B: Backend>() {
    const GUARDS: u32 = 40;
    let database = B::new();
    let pool = database.pool(1);
    let renewer = SlotRenewer::new(pool.clone());
    let many = Semaphore::new("many", GUARDS);
    let lease = LeaseOptions::new(LEASE * 4);
    let others = Semaphore::new("others", GUARDS);
    let (called, calls) = channel();
    for _ in 0..GUARDS {
        let guard = Arc::new(Mutex::new(None));
        let (own, called) = (Arc::clone(&guard), called.clone());
        // It is held, so that its drop waits elsewhere.
        let other = guarded::<B>(&renewer, &others, &one_hour());
        let held = guarded::<B>(&renewer, &many, &lease);
        held.on_lost(move || {
            drop(own.lock().expect("no panic").take());
            drop(other);
            called.send(Instant::now()).expect("the test waits");
        });
        *guard.lock().expect("no panic") = Some(held);
    }
    let busy = pool.get().expect("the only connection");
    let next = || calls.recv_timeout(LONG).expect("each is called");
    let first = next();
    let mut last = first;
    for _ in 1..GUARDS {
        last = next();
    }
    let waits = Duration::from_millis(200) * GUARDS;
    assert!(last - first < waits * 3 / 4, "{:?}", last - first);
    drop(busy);
}

pub(crate) fn guard_survives_a_cut_connection<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 3);
    let guard = guarded::<B>(&renewer, &single_slot(), &renewed());
    for _ in 0..2 {
        database.disconnect_sessions();
        let mut conn = database.connect();
        let (before, _) = times::<B>(&mut conn).expect("held");
        let started = Instant::now();
        while times::<B>(&mut conn).expect("held").0 <= before {
            assert!(started.elapsed() < LONG, "it is not renewed");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(guard.is_held());
    }
    guard.release().expect("ours");
}

/// A use of a pool, with a number that none of its uses had before.
type Use<'a> = &'a mut dyn FnMut(usize) -> Result<(), Error>;

/// Each connection that is lost fails once: it is not lent again.
pub(crate) fn pool_without_checks_recovers_from_cut_connections<B: Backend>() {
    const CONNECTIONS: u32 = 3;
    let database = B::new();
    let pool = database.unchecked_pool(CONNECTIONS);
    let renewer = SlotRenewer::new(pool.clone());
    let locks = LockPool::new(pool);
    let mut held = Vec::new();
    let acquire = |held: &mut Vec<SlotGuard>, round: usize| {
        let semaphore = Semaphore::new(format!("round {round}"), 1);
        let guard = renewer.try_acquire(&semaphore, one_hour())?;
        held.push(guard.expect("a free slot"));
        Ok(())
    };
    let lock = || locks.with_object_lock("a", |_| Ok(()));
    let uses: [(&str, Use<'_>); 3] = [
        ("slot", &mut |round| acquire(&mut held, round)),
        ("lock", &mut |_| lock()),
        ("slot of a transaction", &mut |_| {
            locks.with_slot(&single_slot(), Wait::No, |_| Ok(()))
        }),
    ];
    for (name, attempt) in uses {
        attempt(0).expect(name);
        database.disconnect_sessions();
        let outcomes: Vec<_> = (1..=CONNECTIONS as usize + 1).map(attempt).collect();
        let last = outcomes.last().expect("attempts");
        assert!(last.is_ok(), "{name}: {outcomes:?}");
    }
    for guard in held {
        guard.release().expect("ours");
    }
}

/// The drop does not wait for the transaction that has locked the slot's row; the release is done later.
pub(crate) fn dropped_guard_is_released_when_its_row_is_unlocked<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let guard = guarded::<B>(&renewer, &single_slot(), &one_hour());
    let mut other = database.connect();
    begin(&mut other);
    B::sql(&mut other, "UPDATE diesel_locks_slots SET token = token");
    drop(guard);
    assert_eq!(
        conn.held_slots(&slots_of(single_slot()))
            .expect("rows")
            .len(),
        1
    );
    roll_back(&mut other);
    await_release::<B>(&mut conn);
    assert!(!is_full::<B>(&mut conn, &single_slot()));
}

/// Counts the statements of this connection in which one of these texts is.
pub(crate) fn count_statements<C: Connection>(
    conn: &mut C,
    signs: &'static [&'static str],
    count: &Arc<AtomicUsize>,
) {
    let count = Arc::clone(count);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let query = query.to_string();
            if signs.iter().any(|sign| query.contains(sign)) {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
}

/// Which statements renew, on each engine.
pub(crate) const RENEWS: &[&str] = &["unnest", "JSON_TABLE", "json_each"];

pub(crate) fn many_guards_are_renewed_by_one_statement<B: Backend>() {
    const GUARDS: usize = 150;
    let database = B::new();
    let renewals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&renewals);
    let pool = B::pool_of(&database.url(), 2, move |conn| {
        count_statements(conn, RENEWS, &counted);
    });
    let renewer = SlotRenewer::new(pool);
    let many = Semaphore::new("many", 200);
    // All are renewed by the lease of the last one: that acquiring takes long costs no lease.
    let mut guards: Vec<_> = (1..GUARDS)
        .map(|_| guarded::<B>(&renewer, &many, &one_hour()))
        .collect();
    guards.push(guarded::<B>(&renewer, &many, &renewed()));
    let mut conn = database.connect();
    let mut ends = || -> Vec<_> {
        let held = conn.held_slots(&slots_of(&many)).expect("rows");
        assert_eq!(held.len(), GUARDS);
        held.iter().map(|held| held.expires_at).collect()
    };
    let (started, before) = (Instant::now(), renewals.load(Ordering::SeqCst));
    let first = ends();
    while ends().iter().zip(&first).any(|(now, first)| now <= first) {
        assert!(started.elapsed() < LONG, "all are renewed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ticks = started.elapsed().as_millis() / (RENEWED_LEASE / 3).as_millis();
    let statements = (renewals.load(Ordering::SeqCst) - before) as u128;
    assert!(
        (1..=ticks + 3).contains(&statements),
        "{statements} statements in {ticks} ticks"
    );
    assert!(guards.iter().all(SlotGuard::is_held));
    drop(guards);
    await_release::<B>(&mut conn);
    assert_eq!(conn.held_slots(&slots_of(&many)).expect("rows"), []);
}

/// Threads are counted where the system lists them by name: on Linux.
pub(crate) fn many_guards_are_renewed_by_one_thread<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut process = Subprocess::with_many_guards::<B>(&database.url(), "many");
    let many = Semaphore::new("many", SUBPROCESS_GUARDS);
    let mut ends = || -> Vec<_> {
        let held = conn.held_slots(&slots_of(&many)).expect("rows");
        assert_eq!(held.len(), SUBPROCESS_GUARDS as usize);
        held.iter().map(|held| held.expires_at).collect()
    };
    let first = ends();
    let started = Instant::now();
    // Then every thread that renews has had its turn.
    while ends().iter().zip(&first).any(|(now, first)| now <= first) {
        assert!(started.elapsed() < LONG, "all are renewed");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(process.next_line(), "1");
    process.kill();
}

pub(crate) fn try_run_releases_the_slot_after_success_error_and_panic<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let held = acquire::<B>(&mut conn, &single_slot());
    let ran: Result<Option<()>, Error> =
        renewer.try_run(&single_slot(), one_hour(), |_| panic!("it is full"));
    assert_eq!(ran.expect("an answer"), None);
    conn.release_slot(held).expect("ours");

    let ran = renewer.try_run(&single_slot(), one_hour(), |guard| {
        assert!(guard.is_held());
        assert!(is_full::<B>(&mut conn, &single_slot()));
        Ok::<_, Error>(guard.slot().number())
    });
    assert_eq!(ran.expect("an answer"), Some(1));
    assert!(!is_full::<B>(&mut conn, &single_slot()));

    let panicked = catch_unwind(AssertUnwindSafe(|| {
        renewer.try_run(&single_slot(), one_hour(), |_| -> Result<(), Error> {
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err(), "the panic goes on");
    await_release::<B>(&mut conn);
    assert!(!is_full::<B>(&mut conn, &single_slot()));

    let failed = renewer.try_run(&single_slot(), one_hour(), |_| -> Result<(), Error> {
        Err(diesel::result::Error::NotFound.into())
    });
    assert!(failed.is_err());
    assert!(!is_full::<B>(&mut conn, &single_slot()));
}

/// SIGSTOP, and SIGCONT when another has got the slot.
pub(crate) fn paused_process_notices_the_lost_lease<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let mut process = Subprocess::with_guard::<B>(&database.url(), "one");
    assert!(is_full::<B>(&mut conn, &single_slot()));
    process.stop();
    let slot = conn
        .acquire_slot(&single_slot(), one_hour(), Wait::AtMost(LONG))
        .expect("the lease ends");
    process.resume();
    assert_eq!(process.next_line(), "false true", "lost, and told so");
    let mut slot = slot;
    conn.renew_slot(&mut slot, HOUR)
        .expect("the new holder is not touched");
    conn.release_slot(slot)
        .expect("the new holder is not touched");
    assert_eq!(process.next_line(), "false true", "once lost for ever lost");
    assert!(is_full::<B>(&mut conn, &single_slot()));
    // At a shutdown all guards that hold one: the lost one held none.
    assert_eq!(process.next_line(), "1 false true");
    assert!(!is_full::<B>(&mut conn, &single_slot()));
    process.kill();
}

/// Its holder hangs. The other guard of the renewer is renewed.
pub(crate) fn lease_without_progress_ends<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let other = Semaphore::new("other", 1);
    let kept = guarded::<B>(&renewer, &other, &renewed());
    let lease = short().progress_within(LEASE);
    let hangs = guarded::<B>(&renewer, &single_slot(), &lease);
    let lost = loss_of(&hangs);
    lost.recv_timeout(LONG).expect("without progress");
    assert!(hangs.progress().expect_err("lost").is_slot_lost());
    let next = conn.acquire_slot(&single_slot(), one_hour(), Wait::AtMost(LONG));
    assert!(next.expect("free").fence() > hangs.fence());
    await_renewal::<B>(&mut conn, &kept);
}

pub(crate) fn progress_has_the_lease_renewed<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let events = Collector::global();
    let semaphore = Semaphore::new(fresh_name(), 1);
    let lease = renewed().progress_within(Duration::from_millis(100));
    let guard = guarded::<B>(&renewer, &semaphore, &lease);
    // The first renewal, after a third of the lease, leaves the slot out.
    until(|| events.events_with(semaphore.name()).contains("stalled"));
    await_renewal::<B>(&mut conn, &guard);
}

pub(crate) fn lease_ends_after_the_longest_hold<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let longest = RENEWED_LEASE + Duration::from_secs(1);
    let started = Instant::now();
    let guard = guarded::<B>(&renewer, &single_slot(), &renewed().max_hold(longest));
    let lost = loss_of(&guard);
    lost.recv_timeout(LONG).expect("after the longest hold");
    let held = started.elapsed();
    assert!(held + Duration::from_millis(100) > longest, "{held:?}");
    let next = conn.acquire_slot(&single_slot(), one_hour(), Wait::AtMost(LONG));
    assert!(next.expect("free").fence() > guard.fence());
}

pub(crate) fn limits_of_renewals_are_checked<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let unusable = |result: Result<(), Error>, why: &str| {
        let error = result.expect_err("unusable");
        assert!(matches!(error, Error::InvalidLease { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    };
    for (lease, why) in [
        (short().max_hold(LEASE / 2), "max_hold"),
        (short().max_hold(Duration::MAX), "36,525 days"),
        (short().progress_within(Duration::ZERO), "1 ms"),
    ] {
        unusable(renewer.try_acquire(&single_slot(), &lease).map(drop), why);
        let acquired = renewer.acquire(&single_slot(), &lease, Wait::Forever);
        unusable(acquired.map(drop), why);
    }
    for lease in [short().progress_within(LEASE), short().max_hold(LEASE)] {
        let acquired = conn.try_acquire_slot(&single_slot(), lease.clone());
        unusable(acquired.map(drop), "SlotRenewer");
        let acquired = conn.acquire_slot(&single_slot(), lease, Wait::Forever);
        unusable(acquired.map(drop), "SlotRenewer");
    }
    assert!(!is_full::<B>(&mut conn, &single_slot()));
}

pub(crate) fn requests_of_a_renewer_are_listed<B: Backend>() {
    let database = B::new();
    let renewer = renewer(&database, 3);
    let semaphore = Semaphore::new(fresh_name(), 1);
    let slot = |is_inside| {
        let subject = format!("a slot of the semaphore {:?} (1 permit)", semaphore.name());
        (subject, is_inside)
    };
    let guard = guarded::<B>(&renewer, &semaphore, &one_hour());
    let waiter = {
        let (renewer, semaphore) = (renewer.clone(), semaphore.clone());
        spawn(move || renewer.acquire(&semaphore, one_hour(), Wait::AtMost(LONG)))
    };
    until(|| shown(renewer.requests()) == [slot(true), slot(false)]);
    guard.release().expect("ours");
    let guard = result_of(&waiter).expect("it comes free");
    assert_eq!(shown(renewer.requests()), [slot(true)]);
    guard.release().expect("ours");
    assert_eq!(shown(renewer.requests()), []);
}
