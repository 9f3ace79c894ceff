//! Leases that are kept, and those that are lost.

use torture_checker::Violation::LostLeases;
use torture_history::{ErrorKind, FaultKind, Op, Outcome, Release, Task, WaitLimit};

use crate::history_builder::{HistoryBuilder, failed, leasing};
use crate::valid_history::valid_history;

const PINNED: Task = Task::Pinned { lease_ms: 1000 };

fn renewed() -> Task {
    Task::Lease {
        permits: 1,
        semaphore: "leader".to_owned(),
        renewed: true,
        lease_ms: 1000,
        wait: WaitLimit::No,
    }
}

/// Worker 1 leases the leader's slot at 20 s, works for four leases, and has written when it releases the slot.
fn long(builder: &mut HistoryBuilder, is_held: bool, release: Release) -> Op {
    let op = builder.begin(1, renewed(), 20_000);
    builder.enter(op, Some((1, 900)), 20_001);
    builder.release(op, is_held, release, 24_000);
    builder.end(op, Outcome::Done, Some(23_999), 24_001);
    builder.write(op, "leader", (1, 900));
    op
}

/// Worker 1 asks for a lease of one second at 20 s, and learns of its loss at this moment.
fn lost_at(task: Task, kind: ErrorKind, ms: u64) -> HistoryBuilder {
    let mut builder = valid_history();
    let held_until = ms.min(20_500);
    builder.whole(
        1,
        task,
        Some((1, 900)),
        failed(kind),
        [20_000, 20_001, held_until, ms],
    );
    builder
}

#[test]
fn a_lease_that_is_renewed_is_held_to_the_end() {
    let mut builder = valid_history();
    long(&mut builder, true, Release::InTime);
    builder.assert_no_violations();
}

#[test]
fn a_renewed_lease_that_is_lost() {
    for (is_held, release) in [
        (false, Release::InTime),
        (true, Release::Expired),
        (true, Release::Lost),
        (false, Release::Lost),
    ] {
        let mut builder = valid_history();
        long(&mut builder, is_held, release.clone());
        builder.finds(&[(LostLeases, 1)]);
    }
    for kind in [ErrorKind::SlotLost, ErrorKind::Fenced] {
        lost_at(renewed(), kind, 20_600).finds(&[(LostLeases, 1)]);
        lost_at(renewed(), kind, 23_000).finds(&[(LostLeases, 1)]);
    }
}

/// Whether a fault from the first millisecond to the second explains that a renewed lease is lost.
fn explains(kind: FaultKind, worker: Option<u32>, from: u64, until: u64) -> bool {
    let mut builder = valid_history();
    builder.fault(kind, worker, from, until);
    long(&mut builder, false, Release::Lost);
    let found = builder.found();
    assert!(found.is_empty() || found == [(LostLeases, 1)], "{found:?}");
    found.is_empty()
}

#[test]
fn faults_that_explain_the_loss_of_a_renewed_lease() {
    for kind in FaultKind::ALL {
        let disturbs = !matches!(kind, FaultKind::Snapshot | FaultKind::Drop);
        for worker in [None, Some(1)] {
            assert_eq!(explains(kind, worker, 22_000, 22_100), disturbs, "{kind:?}");
        }
        assert!(!explains(kind, Some(2), 22_000, 22_100), "{kind:?}");
        assert!(!explains(kind, None, 24_100, 24_200), "{kind:?} later");
        assert!(!explains(kind, None, 6000, 6900), "{kind:?} before");
        let lasts = match kind {
            FaultKind::BlackHole | FaultKind::Freeze | FaultKind::Isolate | FaultKind::Promote => {
                13_000
            }
            FaultKind::Refuse | FaultKind::Exhaust | FaultKind::Crash => 6000,
            FaultKind::Reset | FaultKind::Delay | FaultKind::Terminate => 3000,
            FaultKind::Kill | FaultKind::Pause | FaultKind::Hog => 1000,
            // The tolerance of its moments.
            FaultKind::ClockAhead | FaultKind::ClockBack => 10,
            FaultKind::Snapshot | FaultKind::Drop => continue,
        };
        let (first, last) = (20_000 - lasts - 1, 20_000 - lasts);
        assert!(!explains(kind, None, first, first), "{kind:?} before");
        assert!(explains(kind, None, last, last), "{kind:?} before");
    }
}

#[test]
fn without_a_server_the_pause_of_another_holds_up_renewals() {
    for (kind, until, explained) in [
        (FaultKind::Pause, 22_000, true),
        (FaultKind::Pause, 18_999, false),
        (FaultKind::Kill, 22_000, false),
    ] {
        let mut builder = valid_history();
        builder.evidence.has_server = false;
        builder.fault(kind, Some(2), 18_000, until);
        long(&mut builder, false, Release::Lost);
        let found: &[_] = if explained { &[] } else { &[(LostLeases, 1)] };
        builder.finds(found);
    }
}

#[test]
fn a_lease_that_ends_is_lost_after_its_end() {
    for (task, kind) in [
        (leasing("leader"), ErrorKind::SlotLost),
        (leasing("leader"), ErrorKind::Fenced),
        (PINNED, ErrorKind::SlotLost),
    ] {
        lost_at(task.clone(), kind, 21_000).assert_no_violations();
        lost_at(task.clone(), kind, 20_999).finds(&[(LostLeases, 1)]);
        // SQLite's clock counts milliseconds.
        for (ms, found) in [(20_999, &[][..]), (20_998, &[(LostLeases, 1)])] {
            let mut builder = lost_at(task.clone(), kind, ms);
            builder.evidence.has_server = false;
            builder.finds(found);
        }
        // Only the clock lets it end sooner, and only ahead.
        let found_with = |fault, from, until| {
            let mut builder = lost_at(task.clone(), kind, 20_999);
            builder.fault(fault, None, from, until);
            builder.found()
        };
        assert_eq!(found_with(FaultKind::ClockAhead, 20_500, 29_000), []);
        assert_eq!(found_with(FaultKind::ClockBack, 19_000, 20_500), []);
        for (fault, from, until) in [
            (FaultKind::ClockBack, 20_500, 29_000),
            (FaultKind::ClockAhead, 19_000, 20_500),
            (FaultKind::ClockAhead, 21_100, 22_000),
            (FaultKind::Pause, 20_500, 20_600),
            (FaultKind::BlackHole, 20_500, 20_600),
        ] {
            let found = found_with(fault, from, until);
            assert_eq!(found, [(LostLeases, 1)], "{fault:?}");
        }
    }
}

#[test]
fn a_lease_that_had_expired_when_it_was_released_or_renewed() {
    for release in [Release::Expired, Release::Lost] {
        for (given_back, found) in [(21_000, &[][..]), (20_999, &[(LostLeases, 1)])] {
            let mut builder = valid_history();
            let op = builder.begin(1, leasing("leader"), 20_000);
            builder.enter(op, Some((1, 900)), 20_001);
            builder.release(op, true, release.clone(), given_back);
            builder.end(op, Outcome::Done, Some(20_500), 21_500);
            builder.write(op, "leader", (1, 900));
            builder.finds(found);
        }
    }
    for (renewed, found) in [(21_000, &[][..]), (20_999, &[(LostLeases, 1)])] {
        let mut builder = valid_history();
        let op = builder.begin(1, leasing("leader"), 20_000);
        builder.enter(op, Some((1, 900)), 20_001);
        builder.renew(op, true, [20_990, renewed]);
        builder.end(op, Outcome::Done, Some(21_400), 21_500);
        builder.write(op, "leader", (1, 900));
        builder.finds(found);
    }
}

/// Worker 1 asks for a lease of one second at 20 s and for another at 20.9 s, which it is given at 20.91 s.
fn after_renewal(expired: bool) -> (HistoryBuilder, Op) {
    let mut builder = valid_history();
    let op = builder.begin(1, leasing("leader"), 20_000);
    builder.enter(op, Some((1, 900)), 20_001);
    let (requested, told) = if expired {
        (21_900, 21_910)
    } else {
        (20_900, 20_910)
    };
    builder.renew(op, expired, [requested, told]);
    (builder, op)
}

#[test]
fn a_renewal_that_did_nothing() {
    for (expired, end) in [(false, 21_900), (true, 22_900)] {
        for (lost, found) in [(end, &[][..]), (end - 1, &[(LostLeases, 1)])] {
            for kind in [ErrorKind::SlotLost, ErrorKind::Fenced] {
                let (mut builder, op) = after_renewal(expired);
                builder.end(op, failed(kind), Some(20_500), lost);
                builder.finds(found);
            }
            for release in [Release::Expired, Release::Lost] {
                let (mut builder, op) = after_renewal(expired);
                builder.release(op, true, release, lost);
                builder.end(op, Outcome::Done, Some(20_500), lost + 1);
                builder.write(op, "leader", (1, 900));
                builder.finds(found);
            }
            let (mut builder, op) = after_renewal(expired);
            builder.renew(op, true, [lost - 1, lost]);
            builder.end(op, Outcome::Done, Some(20_500), lost + 1);
            builder.write(op, "leader", (1, 900));
            builder.finds(found);
        }
    }
}

#[test]
fn a_jump_before_a_renewal_does_not_end_what_it_gave() {
    for (jump, found) in [(20_800, &[(LostLeases, 1)][..]), (21_000, &[])] {
        let (mut builder, op) = after_renewal(false);
        builder.fault(FaultKind::ClockAhead, None, jump, 29_000);
        builder.end(op, failed(ErrorKind::SlotLost), Some(20_500), 21_899);
        builder.finds(found);
    }
}

#[test]
fn belief_in_an_expired_lease() {
    for (held_until, found) in [(21_100, &[][..]), (21_101, &[(LostLeases, 1)])] {
        let mut builder = valid_history();
        builder.lease(1, "leader", (1, 900), [20_000, 20_100, held_until, 21_200]);
        builder.finds(found);
    }
    for (held_until, found) in [(21_600, &[][..]), (21_601, &[(LostLeases, 1)])] {
        let mut builder = valid_history();
        let op = builder.begin(1, leasing("leader"), 20_000);
        builder.enter(op, Some((1, 900)), 20_100);
        builder.renew(op, false, [20_599, 20_600]);
        builder.end(op, Outcome::Done, Some(held_until), 22_000);
        builder.write(op, "leader", (1, 900));
        builder.finds(found);
    }
}
