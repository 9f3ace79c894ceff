//! A holder is asked to release its slot, or hands it on; what others read of it.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel_locks::limits::MAX_NAME_CHARS;
use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, LeaseState, Slot, SlotInfo, SlotRenewer};

use super::guards::{RENEWS, await_renewal, count_statements, guarded, renewed, renewer};
use super::{HOUR, acquire, expire_lease, one_hour, single_slot, slots_of};
use crate::subprocess::RENEWED_LEASE;
use crate::support::Backend;
use crate::support::threads::{LONG, loss_of, until};

/// The row of the only held slot.
fn held_slot<B: Backend>(conn: &mut B::Conn, semaphore: &Semaphore) -> SlotInfo {
    let held = conn.held_slots(&slots_of(semaphore)).expect("rows");
    assert_eq!(held.len(), 1, "{held:?}");
    held.into_iter().next().expect("one")
}

pub(crate) fn request_is_for_one_holder<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let two = Semaphore::new("two", 2);
    let (slot, other) = (acquire::<B>(&mut conn, &two), acquire::<B>(&mut conn, &two));
    let requested = |conn: &mut B::Conn, slot: &Slot| {
        let held = conn.held_slots(&slots_of(&two)).expect("rows");
        let mut held = held.into_iter();
        held.find(|held| held.token == Some(slot.token()))
            .expect("held")
            .release_requested_at
    };
    assert_eq!(requested(&mut conn, &slot), None);
    let held = conn.held_slots(&slots_of(&two)).expect("rows");
    let held = held.into_iter().find(|it| it.number == slot.number());
    let held = held.expect("held");
    // Also twice in a microsecond, or a millisecond.
    for _ in 0..20 {
        let state = conn.request_release(&held).expect("held");
        assert_eq!(state, LeaseState::Unexpired);
    }
    let at = requested(&mut conn, &slot).expect("requested");
    assert!(at >= held.acquired_at && at < held.expires_at, "{at}");
    assert_eq!(requested(&mut conn, &other), None);
    // It changes nothing else.
    let mut slot = slot;
    let renewed = conn.renew_slot(&mut slot, HOUR).expect("held");
    assert_eq!(renewed, LeaseState::Unexpired);
    assert_eq!(requested(&mut conn, &slot), Some(at));
    // An expired lease that was granted to no other may be renewed, and the request is still there.
    expire_lease::<B>(&mut conn, &slot);
    let state = conn.request_release(&held).expect("nobody else's");
    assert_eq!(state, LeaseState::Expired);
    // The next holder is not asked, nor by a request to the former one.
    let next = acquire::<B>(&mut conn, &two);
    assert_eq!(next.number(), slot.number());
    assert_eq!(requested(&mut conn, &next), None);
    assert!(
        conn.request_release(&held)
            .expect_err("lost")
            .is_slot_lost()
    );
    assert_eq!(requested(&mut conn, &next), None);
    for slot in [next, other] {
        conn.release_slot(slot).expect("held");
    }
    assert!(
        conn.request_release(&held)
            .expect_err("lost")
            .is_slot_lost()
    );
}

pub(crate) fn data_is_of_one_holder<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let one = single_slot();
    let lease = one_hour().holder("node 1");
    let slot = conn.acquire_slot(&one, lease, Wait::No).expect("free");
    let before = held_slot::<B>(&mut conn, &one);
    assert_eq!(before.data, None);
    let longest = "\u{1f512}".repeat(MAX_NAME_CHARS);
    // Also the same again, and what SQL would have to escape.
    for data in ["17 of 40", "17 of 40", "", r"'\%\' \\ é", &longest, "last"] {
        let state = conn.set_slot_data(&slot, data).expect("held");
        assert_eq!(state, LeaseState::Unexpired);
        let held = held_slot::<B>(&mut conn, &one);
        assert_eq!(held.data.as_deref(), Some(data));
        // It changes nothing else, but on MySQL a microsecond of the lease.
        assert_eq!(
            (held.holder, held.token, held.fence),
            (before.holder.clone(), before.token, before.fence)
        );
        let later = (held.expires_at - before.expires_at).num_microseconds();
        assert!((0..=1).contains(&later.expect("an hour")), "{later:?}");
    }
    for refused in [format!("{longest}!"), "\0".to_owned()] {
        let error = conn.set_slot_data(&slot, &refused).expect_err("refused");
        assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
        assert!(
            error.to_string().contains("the data of a holder"),
            "{error}"
        );
    }
    assert_eq!(
        held_slot::<B>(&mut conn, &one).data.as_deref(),
        Some("last")
    );
    // Another statement keeps it.
    let mut slot = slot;
    conn.renew_slot(&mut slot, HOUR).expect("held");
    conn.request_release(&before).expect("held");
    assert_eq!(
        held_slot::<B>(&mut conn, &one).data.as_deref(),
        Some("last")
    );
    // Nobody else has the slot.
    expire_lease::<B>(&mut conn, &slot);
    let state = conn.set_slot_data(&slot, "late").expect("nobody else's");
    assert_eq!(state, LeaseState::Expired);
    let next = acquire::<B>(&mut conn, &one);
    assert_eq!(held_slot::<B>(&mut conn, &one).data, None);
    let lost = conn.set_slot_data(&slot, "stale").expect_err("another's");
    assert!(lost.is_slot_lost());
    assert_eq!(held_slot::<B>(&mut conn, &one).data, None);
    conn.set_slot_data(&next, "next").expect("held");
    conn.release_slot(&next).expect("held");
    let lost = conn.set_slot_data(&next, "released").expect_err("released");
    assert!(lost.is_slot_lost());
    // A slot that is kept by its minimum hold time is nobody's.
    let lease = one_hour().hold_at_least(HOUR);
    let slot = conn.acquire_slot(&one, lease, Wait::No).expect("free");
    conn.set_slot_data(&slot, "done").expect("held");
    conn.release_slot(slot).expect("held");
    assert_eq!(held_slot::<B>(&mut conn, &one).data, None);
}

/// A slot that was released before the end of its minimum hold time has no holder that could be asked.
pub(crate) fn released_slot_shows_no_request<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let lease = one_hour().hold_at_least(HOUR);
    let slot = conn.acquire_slot(&single_slot(), lease, Wait::No);
    let held = held_slot::<B>(&mut conn, &single_slot());
    conn.request_release(&held).expect("held");
    conn.release_slot(slot.expect("free")).expect("held");
    let kept = held_slot::<B>(&mut conn, &single_slot());
    assert_eq!((kept.token, kept.release_requested_at), (None, None));
    let error = conn.request_release(&kept).expect_err("released");
    assert!(error.is_slot_lost(), "{error:?}");
}

/// By a renewal that renews its lease as any other does. The other guard of the renewer is not asked.
pub(crate) fn guard_is_asked_to_release<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let statements = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&statements);
    let pool = B::pool_of(&database.url(), 2, move |conn| {
        count_statements(conn, RENEWS, &counted);
    });
    let renewer = SlotRenewer::new(pool);
    let guard = guarded::<B>(&renewer, &single_slot(), &renewed());
    let other = guarded::<B>(&renewer, &Semaphore::new("other", 1), &renewed());
    assert!(!guard.release_requested());
    let lost = loss_of(&guard);
    let held = held_slot::<B>(&mut conn, &single_slot());
    conn.request_release(&held).expect("held");
    until(|| guard.release_requested());
    let seen = held_slot::<B>(&mut conn, &single_slot());
    assert!(seen.expires_at > held.expires_at, "it was renewed at once");
    assert!(guard.is_held() && !other.release_requested());
    // From then on a renewal is one statement again.
    let before = statements.load(Ordering::SeqCst);
    until(|| held_slot::<B>(&mut conn, &single_slot()).expires_at > seen.expires_at);
    assert_eq!(statements.load(Ordering::SeqCst) - before, 1);
    assert!(guard.release_requested() && guard.is_held());
    guard.release().expect("held");
    assert!(lost.recv().is_err(), "released is not lost");

    let next = guarded::<B>(&renewer, &single_slot(), &renewed());
    await_renewal::<B>(&mut conn, &next);
    assert!(!next.release_requested() && !other.release_requested());
    other.release().expect("held");
}

/// It is neither renewed nor released any more, and another process continues with its parts.
pub(crate) fn slot_of_a_guard_is_handed_on<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let renewer = renewer::<B>(&database, 2);
    let other = Semaphore::new("other", 1);
    let kept = guarded::<B>(&renewer, &other, &renewed());
    let guard = guarded::<B>(&renewer, &single_slot(), &renewed());
    let lost = loss_of(&guard);
    until(|| guard.remaining() > guard.slot().remaining() + RENEWED_LEASE / 4);
    let first = guard.slot().remaining();
    let slot = guard.into_slot().expect("held");
    assert!(lost.recv_timeout(LONG).is_err(), "it is not lost");
    assert!(slot.remaining() > first, "by the last renewal");
    let held = held_slot::<B>(&mut conn, &single_slot());
    assert_eq!(held.token, Some(slot.token()));
    let before = held_slot::<B>(&mut conn, &other).expires_at;
    until(|| held_slot::<B>(&mut conn, &other).expires_at > before);
    let now = held_slot::<B>(&mut conn, &single_slot());
    assert_eq!((now.token, now.expires_at), (held.token, held.expires_at));
    assert_eq!(renewer.release_guards(), 1, "the other one");
    let mut slot = Slot::from_parts("one", slot.number(), slot.token(), slot.fence());
    conn.renew_slot(&mut slot, HOUR).expect("ours");
    conn.release_slot(slot).expect("ours");
    assert!(kept.into_slot().expect_err("released").is_slot_lost());

    let guard = guarded::<B>(&renewer, &single_slot(), &one_hour());
    renewer.release_guards();
    assert!(guard.into_slot().expect_err("released").is_slot_lost());
}

pub(crate) fn holder_is_host_and_process_by_default<B: Backend>() {
    let database = B::new();
    let mut conn = database.connect();
    let _slot = acquire::<B>(&mut conn, &single_slot());
    let holder = held_slot::<B>(&mut conn, &single_slot()).holder;
    let holder = holder.expect("a text");
    let of_process = holder.rsplit('/').next();
    assert_eq!(
        of_process,
        Some(process::id().to_string().as_str()),
        "{holder}"
    );
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    if let Ok(host) = host {
        assert_eq!(holder, format!("{}/{}", host.trim(), process::id()));
    }
}
