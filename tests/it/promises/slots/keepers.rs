//! Guards of several pools: who renews which.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel::r2d2::{ConnectionManager, Pool, R2D2Connection};
use diesel_locks::prelude::*;

use super::guards::{count_statements, guarded};
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
            count_statements(conn, &["diesel_locks_slots"], &counted);
        });
        (pool, statements)
    }
}

/// Returns when so many connections of the pool are with nobody.
fn await_idle<C>(pool: &Pool<ConnectionManager<C>>, idle: u32)
where
    C: R2D2Connection + 'static,
{
    let begun = Instant::now();
    while pool.state().idle_connections != idle {
        assert!(begun.elapsed() < LONG, "not {idle}: {:?}", pool.state());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Through the pool that has guards already, and once: then it is known whose connection that is.
pub(crate) fn guards_of_a_second_pool_are_looked_for_once_per_connection<B: Backend>() {
    let database = B::new();
    let apart = Apart::new();
    let (first, statements) = apart.counted::<B>(&database.url(), 2);
    let second = apart.pool::<B>(&database.url(), 2);
    let many = Semaphore::new("many", 40);
    let mut guards = vec![guarded::<B>(&first, &many, hour())];
    let before = statements.load(Ordering::SeqCst);
    let looks = || statements.load(Ordering::SeqCst) - before;
    let mut guard_some = |count: usize| {
        for _ in 0..count {
            guards.push(guarded::<B>(&second, &many, hour()));
        }
    };
    // All through the connection that is left.
    let unknown = second.get().expect("a connection");
    guard_some(1);
    assert_eq!(looks(), 1, "one look");
    guard_some(5);
    assert_eq!(looks(), 1, "no other");
    let known = second.get().expect("the other connection");
    drop(unknown);
    guard_some(1);
    assert_eq!(looks(), 2, "one for each connection");
    guard_some(5);
    drop(known);
    guard_some(5);
    assert_eq!(looks(), 2, "no other");
    // Nor when the first pool has no connection left, for which they would wait.
    let busy = [(); 2].map(|()| first.get().expect("a connection"));
    let took = (0..8).map(|_| {
        let begun = Instant::now();
        guard_some(1);
        begun.elapsed()
    });
    // The best of eight: whoever waits does so each time.
    let shortest = took.min().expect("eight");
    assert!(shortest < Duration::from_secs(1), "it waits: {shortest:?}");
    drop(busy);
    for guard in guards {
        guard.release().expect("ours");
    }
}

/// They all look through the other pool, find nothing there, and then find each other.
///
/// Threads are counted where the system lists them by name: on Linux.
pub(crate) fn first_guards_of_a_second_pool_share_a_thread<B: Backend>() {
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
    let ours = meanwhile(move || guarded::<B>(&pool, &one(), LeaseOptions::new(lease)));
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
        // For the first of them; never returned, as nobody answers.
        await_idle(&stalled, 2);
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
    // A tenth of it is enough for a search to begin, on a busy machine too.
    let ours = guarded::<B>(&pool, &one(), LeaseOptions::new(LEASE * 25));
    await_idle(&stalled, 0);
    let busy = pool.get().expect("the only connection");
    ours.lost().recv_timeout(LONG).expect("it can't be renewed");
    let mut conn = database.connect();
    let begun = Instant::now();
    while !conn.held_slots(one()).expect("rows").is_empty() {
        assert!(begun.elapsed() < LONG, "the lease ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.go_on();
    await_idle(&stalled, 1);
    assert_eq!(conn.held_slots(one()).expect("rows"), []);
    assert_eq!(statements.load(Ordering::SeqCst), before);
    drop(busy);
    drop(ours);
    theirs.release().expect("theirs");
}
