//! Guards: renewed, lost, released.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, LeaseState, SlotGuard, SlotRenewer};
use tokio::time::timeout;

use super::{Fixture, LEASE, ONE, RENEWED_LEASE, lock_rows, one_hour, renewed, until};
use crate::support::dropped::LONG;
use crate::support::engine::Engine;
use crate::support::pools::Kind;
use crate::support::watch::HOUR;

pub(crate) async fn guard_is_renewed_until_it_is_dropped<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let guard = test.guard(&ONE, &renewed()).await;
    // Several renewals: each comes after a third of the lease, and extends it by as much.
    until("it is renewed", async || {
        assert!(guard.is_held());
        guard.ensure_held().expect("held");
        let held = test.held(&ONE).await;
        let lasts = (held[0].expires_at - held[0].acquired_at).to_std();
        lasts.expect("later") > RENEWED_LEASE * 8 / 5
    })
    .await;
    assert!(guard.fence() > 0 && guard.remaining() <= RENEWED_LEASE);
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    guard.on_lost(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    drop(guard);
    test.until_released().await;
    let guard = test.guard(&ONE, &one_hour()).await;
    assert_eq!(guard.release().await.expect("ours"), LeaseState::Unexpired);
    assert!(test.held(&ONE).await.is_empty());
    assert_eq!(called.load(Ordering::SeqCst), 0, "released is not lost");
}

/// The callback runs until the test ends it.
pub(crate) async fn callback_of_a_lost_guard_delays_no_renewal<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let other = Semaphore::new("other", 2);
    let guard = test.guard(&ONE, &renewed()).await;
    let lost = [
        test.guard(&other, &renewed()).await,
        test.guard(&other, &renewed()).await,
    ];
    let (end, ended) = std::sync::mpsc::channel::<()>();
    lost[0].on_lost(move || {
        let _ = ended.recv();
    });
    let released = other.clone();
    let released = test
        .watch
        .with(move |conn| conn.force_release_all(&released));
    assert_eq!(released.await.expect("a count"), 2);
    for guard in &lost {
        timeout(LONG, guard.lost()).await.expect("it is noticed");
    }
    test.until_renewed(&ONE).await;
    test.until_renewed(&ONE).await;
    assert!(guard.is_held());
    drop(end);
}

pub(crate) async fn guard_is_lost_when_its_slot_is_released_by_force<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let guard = test.guard(&ONE, &LeaseOptions::new(LEASE)).await;
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    guard.on_lost(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    guard.on_lost(|| panic!("on purpose"));
    let next = test.watch.with(|conn| {
        conn.force_release_all(ONE).expect("a count");
        let next = conn.try_acquire_slot(&ONE, LeaseOptions::new(HOUR));
        next.expect("an answer").expect("a free slot")
    });
    let next = next.await;
    timeout(LONG, guard.lost()).await.expect("it is noticed");
    assert!(!guard.is_held());
    let error = guard.ensure_held().expect_err("lost");
    assert!(error.is_slot_lost(), "{error:?}");
    assert_eq!(guard.remaining(), Duration::ZERO);
    until("the callback is called", async || {
        called.load(Ordering::SeqCst) == 1
    })
    .await;
    // At once, as often as one likes.
    for _ in 0..2 {
        timeout(LONG, guard.lost()).await.expect("it is lost");
    }
    let error = guard.release().await.expect_err("another's");
    assert!(error.is_slot_lost(), "{error:?}");
    let released = test.watch.with(move |conn| conn.release_slot(next));
    released.await.expect("the next holder is not touched");
}

/// The guard shows it, and a leader ends. Then the slot is handed on.
pub(crate) async fn holder_is_asked_to_release<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let guard = test.guard(&ONE, &renewed()).await;
    let request = async |semaphore: &Semaphore| {
        let held = test.held(semaphore).await.remove(0);
        let requested = test.watch.with(move |conn| conn.request_release(&held));
        assert_eq!(requested.await.expect("held"), LeaseState::Unexpired);
    };
    assert!(!guard.release_requested());
    request(&ONE).await;
    until("the request is seen", async || guard.release_requested()).await;
    let mut slot = guard.into_slot().expect("held");
    assert!(slot.remaining() > RENEWED_LEASE / 3, "by the last renewal");
    let state = test.watch.with(move |conn| {
        conn.renew_slot(&mut slot, HOUR).expect("not released");
        conn.release_slot(slot).expect("not released")
    });
    assert_eq!(state.await, LeaseState::Unexpired);

    let (one, lease) = (ONE, renewed());
    let leads = test
        .renewer
        .run_as_leader(&one, &lease, async |leader| -> Result<(), Error> {
            request(&ONE).await;
            timeout(LONG, leader.ended()).await.expect("it is noticed");
            assert!(!leader.is_active() && leader.guard().is_held());
            Err(diesel::result::Error::NotFound.into())
        });
    leads.await.expect_err("on purpose");
    test.until_released().await;
}

/// Without a report of progress the lease ends; with reports it is renewed, also by the renewer of the former.
pub(crate) async fn leases_depend_on_progress<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let other = Semaphore::new("other", 1);
    let hangs = LeaseOptions::new(LEASE).progress_within(LEASE);
    let hangs = test.guard(&ONE, &hangs).await;
    let lease = renewed().progress_within(Duration::from_millis(100));
    let works = test.guard(&other, &lease).await;
    timeout(LONG, hangs.lost()).await.expect("without progress");
    assert!(hangs.progress().expect_err("lost").is_slot_lost());
    let wait = Wait::AtMost(LONG);
    let next = test.renewer.acquire(&ONE, &one_hour(), wait).await;
    assert!(next.expect("free").fence() > hangs.fence());
    until("it is renewed", async || {
        works.progress().expect("held");
        let held = test.held(&other).await;
        let lasts = (held[0].expires_at - held[0].acquired_at).to_std();
        lasts.expect("later") > RENEWED_LEASE * 5 / 4
    })
    .await;
}

pub(crate) async fn many_guards_are_renewed_by_one_statement<E: Engine, K: Kind>() {
    const GUARDS: usize = 60;
    let test = Fixture::<E, K>::new().await;
    let many = Semaphore::new("many", 100);
    // All are renewed by the lease of the last one: that acquiring takes long costs no lease.
    let mut guards = Vec::new();
    for _ in 1..GUARDS {
        guards.push(test.guard(&many, &one_hour()).await);
    }
    guards.push(test.guard(&many, &renewed()).await);
    let (started, before) = (Instant::now(), test.statements.load(Ordering::SeqCst));
    test.until_renewed(&many).await;
    assert_eq!(test.held(&many).await.len(), GUARDS);
    let statements = test.statements.load(Ordering::SeqCst) - before;
    let ticks = started.elapsed().as_millis() / (RENEWED_LEASE / 3).as_millis();
    // With BEGIN, COMMIT and the look of a pool at its connection.
    assert!(
        (1..=(ticks + 2) * 5).contains(&(statements as u128)),
        "{statements} statements in {ticks} ticks"
    );
    assert!(guards.iter().all(SlotGuard::is_held));
    drop(guards);
    test.until_released().await;
}

/// One of two connections stays open, and does not answer any more.
pub(crate) async fn guard_outlives_a_connection_that_does_not_answer<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let many = Semaphore::new("many", 5);
    let lease = LeaseOptions::new(Duration::from_secs(18));
    let mut held = Vec::new();
    // In the pool's look at its connection, or in the renewal.
    for message in 1..=4 {
        let (proxy, renewer) = test.renewer_behind_a_proxy().await;
        let guard = renewer.try_acquire(&many, &lease).await;
        proxy.stall_at(message);
        held.push((guard.expect("an answer").expect("a free slot"), proxy));
    }
    until("one connection of each has stalled", async || {
        held.iter().all(|(_, proxy)| proxy.has_stalled())
    })
    .await;
    test.until_renewed(&many).await;
    assert!(held.iter().all(|(guard, _)| guard.is_held()));
}

/// Also of one with a short lease that is added while a release of another waits for its answer.
pub(crate) async fn guard_added_during_a_silent_statement_is_renewed<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let short = Semaphore::new("short", 5);
    let lease = LeaseOptions::new(Duration::from_secs(4));
    let mut held = Vec::new();
    // In the pool's look at its connection, or in the release.
    for message in 1..=4 {
        let (proxy, renewer) = test.renewer_behind_a_proxy().await;
        let released = Semaphore::new(format!("released {message}"), 1);
        let guard = renewer.try_acquire(&released, &one_hour()).await;
        proxy.stall_at(message);
        drop(guard.expect("an answer").expect("a free slot"));
        until(
            "the release has stalled, or had no such message",
            async || proxy.has_stalled() || test.held(&released).await.is_empty(),
        )
        .await;
        if !proxy.has_stalled() {
            continue;
        }
        let guard = renewer.try_acquire(&short, &lease).await;
        held.push((guard.expect("an answer").expect("a free slot"), proxy));
    }
    test.until_renewed(&short).await;
    assert!(held.iter().all(|(guard, _)| guard.is_held()));
}

pub(crate) async fn release_guards_releases_those_of_one_renewer<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let many = Semaphore::new("many", 5);
    let others = SlotRenewer::new(K::pool(&test.database, 2).await);
    let other = others.try_acquire(&many, &one_hour()).await;
    let other = other.expect("an answer").expect("a free slot");
    assert_eq!(test.renewer.release_guards().await, 0);
    let clone = test.renewer.clone();
    let mut guards = Vec::new();
    for renewer in [&test.renewer, &clone, &test.renewer] {
        let guard = renewer.try_acquire(&many, &one_hour()).await;
        guards.push(guard.expect("an answer").expect("a free slot"));
    }
    guards[0].on_lost(|| panic!("released is not lost"));
    assert_eq!(test.renewer.release_guards().await, 3);
    for guard in &guards {
        assert!(!guard.is_held());
        timeout(LONG, guard.lost()).await.expect("it is not held");
    }
    assert!(other.is_held());
    let held = test.held(&many).await;
    let numbers: Vec<u32> = held.iter().map(|slot| slot.number).collect();
    assert_eq!(numbers, [other.slot().number()]);
    for guard in guards {
        let error = guard.release().await.expect_err("released");
        assert!(error.is_slot_lost(), "{error:?}");
    }
    // The renewer continues to work.
    let next = test.guard(&many, &one_hour()).await;
    next.release().await.expect("ours");
    other.release().await.expect("theirs");
}

/// One that can't be released at once is released in the background.
pub(crate) async fn release_guards_releases_locked_slots_later<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let guard = test.guard(&ONE, &one_hour()).await;
    let other = lock_rows(&test.database, ONE.name()).await;
    assert_eq!(test.renewer.release_guards().await, 0);
    assert!(!guard.is_held());
    drop(other);
    test.until_released().await;
}

pub(crate) async fn try_run_releases_the_slot_after_success_error_and_panic<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let (renewer, one, lease) = (&test.renewer, &ONE, &one_hour());
    let held = test.guard(&ONE, &one_hour()).await;
    let ran: Result<Option<()>, Error> = renewer
        .try_run(one, lease, async |_| panic!("it is full"))
        .await;
    assert_eq!(ran.expect("an answer"), None);
    held.release().await.expect("ours");

    let ran = renewer.try_run(one, lease, async |guard| {
        assert!(guard.is_held());
        Ok::<_, Error>((guard.slot().number(), test.held(&ONE).await.len()))
    });
    assert_eq!(ran.await.expect("an answer"), Some((1, 1)));
    assert!(test.held(&ONE).await.is_empty());

    let ran = renewer.try_run(one, lease, async |_| -> Result<(), Error> {
        Err(diesel::result::Error::NotFound.into())
    });
    assert!(ran.await.is_err());
    assert!(test.held(&ONE).await.is_empty());

    let clone = renewer.clone();
    let panicked = tokio::spawn(async move {
        let (one, lease) = (ONE, one_hour());
        let ran = clone.try_run(&one, &lease, async |_| -> Result<(), Error> {
            panic!("on purpose")
        });
        ran.await
    });
    assert!(panicked.await.is_err_and(|error| error.is_panic()));
    test.until_released().await;
}
