//! Renewers: which guards they renew, and how they end.

use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, SlotGuard, SlotRenewer};

use super::guards::{guarded, renewed, renewer};
use super::{acquire, one_hour, single_slot, slots_of};
use crate::subprocess::{SUBPROCESS_GUARDS, Subprocess};
use crate::support::Backend;
use crate::support::stalling_proxy::StallingProxy;
use crate::support::threads::{LONG, loss_of};

/// Returns when the lease of each slot has been extended.
pub(crate) fn await_renewal<B: Backend>(conn: &mut B::Conn, semaphore: &Semaphore) {
    let mut ends = || -> Vec<_> {
        let held = conn.held_slots(&slots_of(semaphore)).expect("rows");
        held.iter().map(|held| held.expires_at).collect()
    };
    let first = ends();
    assert!(!first.is_empty());
    let started = Instant::now();
    while ends().iter().zip(&first).any(|(now, first)| now <= first) {
        assert!(started.elapsed() < LONG, "not renewed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ends().len(), first.len());
}

pub(crate) fn guards_of_two_databases_are_renewed<B: Backend>() {
    let databases = [B::new(), B::new()];
    let renewers = [
        renewer::<B>(&databases[0], 2),
        renewer::<B>(&databases[1], 1),
    ];
    let guards: Vec<_> = renewers
        .iter()
        .map(|renewer| guarded::<B>(renewer, &single_slot(), &renewed()))
        .collect();
    for _ in 0..2 {
        for database in &databases {
            await_renewal::<B>(&mut database.connect(), &single_slot());
        }
    }
    assert!(guards.iter().all(SlotGuard::is_held));
    for guard in guards {
        guard.release().expect("ours");
    }
}

pub(crate) fn release_guards_releases_those_of_one_renewer<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let many = Semaphore::new("many", 5);
    let [ours, others] = [(); 2].map(|()| renewer::<B>(&database, 2));
    let other = guarded::<B>(&others, &many, &one_hour());
    assert_eq!(ours.release_guards(), 0);
    let clone = ours.clone();
    let guards = [&ours, &clone, &ours].map(|renewer| guarded::<B>(renewer, &many, &one_hour()));
    let lost = loss_of(&guards[0]);
    assert_eq!(ours.release_guards(), 3);
    assert!(!guards.iter().any(SlotGuard::is_held));
    assert!(lost.recv().is_err(), "released is not lost");
    assert!(other.is_held());
    let held = conn.held_slots(&slots_of(&many)).expect("rows");
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].number, other.slot().number());
    assert_eq!(ours.release_guards(), 0);
    for guard in guards {
        assert!(guard.release().expect_err("released").is_slot_lost());
    }
    // The renewer continues to work.
    let next = guarded::<B>(&ours, &many, &one_hour());
    assert!(next.is_held());
    next.release().expect("ours");
    other.release().expect("theirs");
}

/// Threads are counted where the system lists them by name: on Linux.
pub(crate) fn renewer_stops_when_it_and_its_guards_are_dropped<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let many = Semaphore::new("many", SUBPROCESS_GUARDS);
    let mut process = Subprocess::with_many_guards::<B>(&database.url(), "many");
    assert_eq!(process.next_line(), "1");
    assert_eq!(process.next_line(), "renewer dropped");
    await_renewal::<B>(&mut conn, &many);
    assert_eq!(process.next_line(), "0");
    assert_eq!(conn.held_slots(&slots_of(&many)).expect("rows"), []);
    process.kill();
}

/// Returns when this number of connections of the pool is idle.
fn await_idle<C: R2D2Connection + 'static>(pool: &Pool<ConnectionManager<C>>, idle: u32) {
    let started = Instant::now();
    while pool.state().idle_connections != idle {
        assert!(started.elapsed() < LONG, "not {idle}: {:?}", pool.state());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// And a renewal that is answered later does not bring the guard back.
pub(crate) fn guard_is_lost_in_time_while_its_renewal_hangs<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let (server, url) = StallingProxy::url(&database.url());
    let pool = B::pool_to(&url, 2);
    let renewer = SlotRenewer::new(pool.clone());
    let guard = guarded::<B>(&renewer, &single_slot(), &renewed());
    let lost = loss_of(&guard);
    server.stall();
    await_idle(&pool, 1);
    assert!(guard.is_held(), "the lease has not ended");
    lost.recv_timeout(LONG).expect("the guard is lost");
    let next = conn
        .acquire_slot(&single_slot(), one_hour(), Wait::AtMost(LONG))
        .expect("the lease ends");
    assert!(pool.state().idle_connections < 2, "the renewals hang");
    server.resume();
    await_idle(&pool, 2);
    assert!(!guard.is_held());
    drop(guard);
    conn.release_slot(next)
        .expect("the next holder is not touched");
}

/// `conn` and `pool` are to the same database. Between the two calls no renewal of the pool reaches it, so one of them comes
/// after the end of the lease.
pub(crate) fn late_renewal_does_not_extend_the_lease_of_a_lost_guard<B: Backend>(
    conn: &mut B::Conn,
    pool: &Pool<ConnectionManager<B::Conn>>,
    hold_back: impl FnOnce(),
    let_through: impl FnOnce(),
) {
    let renewer = SlotRenewer::new(pool.clone());
    let guard = guarded::<B>(&renewer, &single_slot(), &renewed());
    let lost = loss_of(&guard);
    hold_back();
    await_idle(pool, 1);
    lost.recv_timeout(LONG).expect("the guard is lost");
    let started = Instant::now();
    while !conn
        .held_slots(&slots_of(single_slot()))
        .expect("rows")
        .is_empty()
    {
        assert!(started.elapsed() < LONG, "the lease does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(pool.state().idle_connections < 2, "none is held back");
    let before = B::slots(conn);
    let_through();
    await_idle(pool, 2);
    assert_eq!(B::slots(conn), before);
    let error = guard.ensure_held().expect_err("it stays lost");
    assert!(error.is_slot_lost(), "{error:?}");
    let next = acquire::<B>(conn, &single_slot());
    drop(guard);
    conn.release_slot(next)
        .expect("the next holder is not touched");
}

/// A server that stops to answer holds the renewal back.
pub(crate) fn renewal_through_a_stalled_network_extends_no_ended_lease<B: Backend>() {
    let database = B::new();
    let (server, url) = StallingProxy::url(&database.url());
    late_renewal_does_not_extend_the_lease_of_a_lost_guard::<B>(
        &mut database.connect(),
        &B::pool_to(&url, 2),
        || server.stall(),
        || server.resume(),
    );
}

/// As after a fail-over, when the old server is stopped and its machine is not. The thread of the first renewal waits for the
/// pool's check of the connection, or for the renewal.
pub(crate) fn guard_outlives_the_server_that_has_granted_it<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    for checks in [true, false] {
        let (server, url) = StallingProxy::url(&database.url());
        let pool = Pool::builder()
            .max_size(4)
            .min_idle(Some(0))
            .test_on_check_out(checks)
            .build(ConnectionManager::<B::Conn>::new(url))
            .expect("a pool");
        let renewer = SlotRenewer::new(pool.clone());
        let [kept, dropped] = ["kept", "dropped"].map(|name| Semaphore::new(name, 1));
        let lease = LeaseOptions::new(Duration::from_secs(12));
        let guard = guarded::<B>(&renewer, &kept, &lease);
        let to_drop = guarded::<B>(&renewer, &dropped, &lease);
        server.stall_open();
        await_idle(&pool, 0);
        drop(to_drop);
        await_renewal::<B>(&mut conn, &kept);
        let released = conn.acquire_slot(&dropped, one_hour(), Wait::AtMost(LONG));
        let next = released.expect("by another thread");
        assert!(guard.is_held());
        // The late answers change nothing.
        server.resume();
        await_idle(&pool, pool.state().connections);
        await_renewal::<B>(&mut conn, &kept);
        guard.release().expect("ours");
        conn.release_slot(next).expect("not touched");
    }
}

/// Several threads wait for answers, which come at the same moment. Each of them has a renewal and a release to send.
pub(crate) fn renewals_go_on_after_a_silence<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let (server, url) = StallingProxy::url(&database.url());
    let pool = B::pool_to(&url, 4);
    let renewer = SlotRenewer::new(pool.clone());
    let [kept, dropped] = ["kept", "dropped"].map(|name| Semaphore::new(name, 1));
    let lease = LeaseOptions::new(Duration::from_secs(12));
    let guard = guarded::<B>(&renewer, &kept, &lease);
    let to_drop = guarded::<B>(&renewer, &dropped, &lease);
    server.stall();
    await_idle(&pool, 3);
    drop(to_drop);
    // One connection is left to others.
    await_idle(&pool, 1);
    server.resume();
    await_idle(&pool, 4);
    for _ in 0..2 {
        await_renewal::<B>(&mut conn, &kept);
    }
    assert!(guard.is_held());
    conn.acquire_slot(&dropped, one_hour(), Wait::AtMost(LONG))
        .map(drop)
        .expect("released");
    // Silences are noticed as before.
    server.stall();
    await_idle(&pool, 2);
    server.resume();
    await_renewal::<B>(&mut conn, &kept);
    guard.release().expect("ours");
}

pub(crate) fn unresponsive_database_does_not_delay_other_renewers<B: Backend>() {
    let databases = [B::new(), B::new()];
    let (server, url) = StallingProxy::url(&databases[0].url());
    let stalled_pool = B::pool_to(&url, 2);
    let stalled = SlotRenewer::new(stalled_pool.clone());
    let theirs = guarded::<B>(&stalled, &single_slot(), &renewed());
    server.stall();
    await_idle(&stalled_pool, 1);
    let renewer = renewer::<B>(&databases[1], 2);
    let ours = guarded::<B>(&renewer, &single_slot(), &renewed());
    await_renewal::<B>(&mut databases[1].connect(), &single_slot());
    ours.release().expect("ours");
    loss_of(&theirs)
        .recv_timeout(LONG)
        .expect("it is not renewed");
    server.resume();
}
