//! Guards of several pools: who renews which.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent};
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_locks::prelude::*;

use super::guards::guarded;
use super::{hour, one};
use crate::peer::{GUARDS_OF_A_PEER, LEASE, Peer};
use crate::support::Backend;
use crate::support::stalling::Stalling;
use crate::support::threads::{LONG, meanwhile};

/// Settings that no other pool of this process has: keepers belong to the process, and the guards of other
/// tests, which are looked for through pools with the same settings, are neither counted nor held up.
struct Apart(Duration);

impl Apart {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let next = NEXT.fetch_add(1, Ordering::SeqCst);
        Self(Duration::from_secs(10) + Duration::from_micros(next))
    }

    fn pool<B: Backend>(&self, url: &str, size: u32) -> Pool<ConnectionManager<B::Conn>> {
        B::pool_with(url, size, self.0, |_| ())
    }

    /// With the number of statements about slots that are sent through it.
    fn counted<B: Backend>(
        &self,
        url: &str,
        size: u32,
    ) -> (Pool<ConnectionManager<B::Conn>>, Arc<AtomicUsize>) {
        let statements = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&statements);
        let pool = B::pool_with(url, size, self.0, move |conn| {
            let counted = Arc::clone(&counted);
            conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
                if let InstrumentationEvent::StartQuery { query, .. } = event
                    && query.to_string().contains("diesel_slots")
                {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        });
        (pool, statements)
    }
}

/// Through the pool that has guards already, and once: then it is known whose connection that is.
pub(crate) fn guards_of_a_second_pool_are_looked_for_once_per_connection<B: Backend>() {
    let database = B::new();
    let apart = Apart::new();
    let (first, statements) = apart.counted::<B>(&database.url(), 1);
    let second = apart.pool::<B>(&database.url(), 1);
    let many = Semaphore::new("many", 10);
    let mut guards = vec![guarded::<B>(&first, &many, hour())];
    let before = statements.load(Ordering::SeqCst);
    guards.push(guarded::<B>(&second, &many, hour()));
    assert_eq!(statements.load(Ordering::SeqCst) - before, 1, "one look");
    for _ in 0..5 {
        guards.push(guarded::<B>(&second, &many, hour()));
    }
    assert_eq!(statements.load(Ordering::SeqCst) - before, 1, "no other");
    // Nor when that pool has no connection left, for which they would wait.
    let busy = first.get().expect("a connection");
    let begun = Instant::now();
    guards.push(guarded::<B>(&second, &many, hour()));
    assert!(begun.elapsed() < Duration::from_secs(1), "it waits");
    drop(busy);
    for guard in guards {
        guard.release().expect("ours");
    }
}

/// They all look through the other pool, find nothing there, and then find each other.
///
/// Threads are counted where the system lists them by name.
pub(crate) fn first_guards_of_a_second_pool_share_a_thread<B: Backend>() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let databases = [B::new(), B::new()];
    let urls = [databases[0].url(), databases[1].url()];
    let mut peer = Peer::guarding_many_beside::<B>(&urls[0], &urls[1], "many");
    let mut conn = databases[0].connect();
    let held = conn.held_slots("many").expect("rows");
    assert_eq!(held.len(), GUARDS_OF_A_PEER as usize);
    assert_eq!(peer.ask(), "2", "one per pool");
    peer.kill();
}

/// While guards of two pools are told apart, the other's database may be out of reach.
pub(crate) fn a_database_that_does_not_answer_delays_no_guard_of_anothers<B: Backend>() {
    let databases = [B::new(), B::new()];
    let (server, url) = Stalling::url(&databases[0].url());
    let apart = Apart::new();
    let pools = [
        apart.pool::<B>(&url, 2),
        apart.pool::<B>(&databases[1].url(), 2),
    ];
    let theirs = guarded::<B>(&pools[0], &one(), hour());
    server.stall();
    let pool = pools[1].clone();
    let lease = Duration::from_secs(6);
    let ours = meanwhile(move || guarded::<B>(&pool, &one(), Lease::new(lease)));
    let ours = ours.recv_timeout(lease).expect("it waits for nobody");
    assert!(ours.is_held());
    // Nor is it kept from being renewed.
    let mut conn = databases[1].connect();
    let begun = Instant::now();
    loop {
        let held = conn.held_slots(one()).expect("rows");
        let held = held.first().expect("held");
        let lasts = (held.expires_at - held.acquired_at).to_std();
        if lasts.expect("later") > lease {
            break;
        }
        assert!(begun.elapsed() < LONG, "it is not renewed");
        std::thread::sleep(Duration::from_millis(20));
    }
    ours.release().expect("ours");
    server.go_on();
    theirs.release().expect("theirs");
}

/// However many guards of other pools are looked for, one connection of that database waits for an answer.
pub(crate) fn a_database_that_does_not_answer_is_asked_once_for_guards<B: Backend>() {
    let databases = [B::new(), B::new(), B::new()];
    let (server, url) = Stalling::url(&databases[0].url());
    let apart = Apart::new();
    let stalled = apart.pool::<B>(&url, 3);
    let theirs = guarded::<B>(&stalled, &one(), hour());
    server.stall();
    let mut guards = Vec::new();
    for database in &databases[1..] {
        let pool = apart.pool::<B>(&database.url(), 3);
        guards.push(guarded::<B>(&pool, &one(), hour()));
        assert_eq!(stalled.state().idle_connections, 2);
    }
    for guard in guards {
        guard.release().expect("ours");
    }
    server.go_on();
    theirs.release().expect("theirs");
}

/// A search that comes to its end when nobody waits for it any more gives nobody a lease.
pub(crate) fn a_late_search_renews_no_slots_of_lost_guards<B: Backend>() {
    let database = B::new();
    let (server, url) = Stalling::url(&database.url());
    let apart = Apart::new();
    let (stalled, statements) = apart.counted::<B>(&url, 1);
    let pool = apart.pool::<B>(&database.url(), 1);
    let theirs = guarded::<B>(&stalled, &Semaphore::new("other", 1), hour());
    server.stall();
    let before = statements.load(Ordering::SeqCst);
    // A tenth of it is enough for a search to begin.
    let ours = guarded::<B>(&pool, &one(), Lease::new(LEASE * 10));
    assert_eq!(stalled.state().idle_connections, 0, "the search has it");
    let busy = pool.get().expect("the only connection");
    ours.lost().recv_timeout(LONG).expect("it can't be renewed");
    let mut conn = database.connect();
    let begun = Instant::now();
    while !conn.held_slots(one()).expect("rows").is_empty() {
        assert!(begun.elapsed() < LONG, "the lease ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.go_on();
    while stalled.state().idle_connections == 0 {
        assert!(begun.elapsed() < LONG, "the search ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(conn.held_slots(one()).expect("rows"), []);
    assert_eq!(statements.load(Ordering::SeqCst), before);
    drop(busy);
    drop(ours);
    theirs.release().expect("theirs");
}
