//! Runs in which nothing is wrong.

use std::time::{Duration, Instant};

use torture_history::{ErrorKind, FaultKind, Outcome, Release, Task, WaitLimit, workload_spec};

use crate::history_builder::{HistoryBuilder, failed, leasing, locking};

/// Three processes do everything there is to do, beside each other and one after the other, until millisecond 1000.
pub(crate) fn valid_history() -> HistoryBuilder {
    let mut builder = HistoryBuilder::new();
    builder.lock(1, &[0], [10, 11, 20, 21]);
    builder.lock(2, &[1, 0], [10, 22, 30, 31]);
    builder.lock(3, &[0, 2], [15, 32, 40, 41]);
    builder.lock(1, &[5], [25, 26, 60, 61]);
    builder.lease(2, "leader", (1, 100), [50, 51, 60, 65]);
    builder.lease(1, "leader", (1, 101), [62, 66, 70, 71]);
    for (process, slot) in [(1, (1, 200)), (2, (2, 201)), (3, (3, 202))] {
        builder.lease(process, "collate", slot, [80, 82, 90, 95]);
        builder.pinned(process, slot, [100, 101, 110, 112]);
        builder.pinned(process, (slot.0, slot.1 + 10), [112, 113, 120, 122]);
    }
    let renewed = Task::Lease {
        permits: 1,
        semaphore: "leader".to_owned(),
        renewed: true,
        lease_ms: 1000,
        wait: WaitLimit::Forever,
    };
    let renewed = builder.begin(1, renewed, 122);
    builder.enter(renewed, Some((1, 102)), 123);
    builder.release(renewed, true, Release::InTime, 128);
    builder.end(renewed, Outcome::Done, Some(127), 129);
    builder.write(renewed, "leader", (1, 102));
    builder.slot(1, [130, 131, 140, 141]);
    builder.slot(2, [130, 132, 150, 151]);
    builder.slot(3, [130, 141, 150, 151]);
    for process in [1, 2, 3] {
        builder.pass(process, 0, 160, 170);
        builder.pass(process, 1, 180, 190);
    }
    builder.transfer(1, 100, 101, [200, 201, 209, 210]);
    builder.transfer(2, 101, 102, [200, 201, 209, 210]);
    builder.survives(3, 200);
    builder.panics(3, 210);
    let purge = builder.begin(1, Task::Purge, 215);
    builder.end(purge, Outcome::Done, None, 216);
    builder.set_permits(4, [217, 218], Outcome::Done);
    builder.revoked(1, [220, 221, 222], Some(230));
    builder.stuck(1, [240, 241, 242], Some(2200));
    builder.hand_over(2, [220, 221, 222], Some(223));
    builder.tick(1, (100, 70), [1, 71, 75, 76]);
    builder.tick(2, (101, 570), [60, 571, 800, 801]);
    builder.tick(3, (102, 1070), [60, 821, 830, 831]);
    let refused = builder.begin(2, leasing("leader"), 220);
    builder.end(refused, Outcome::Refused, None, 221);
    let late = Task::Slot {
        permits: 1,
        wait: WaitLimit::AtMost(5),
    };
    let late = builder.begin(3, late, 220);
    builder.end(late, failed(ErrorKind::TimedOut), None, 226);
    builder.share(2, &[], &[3, 4], [245, 246, 260, 261]);
    builder.share(3, &[2], &[3], [245, 250, 255, 256]);
    builder
}

#[test]
fn a_history_of_all_tasks_has_no_violations() {
    let builder = valid_history();
    builder.assert_no_violations();
    let verdict = builder.verdict().unwrap();
    assert_eq!(verdict.operations, 41);
    assert_eq!(verdict.shared, 1);
    assert_eq!(verdict.total(), 0);
}

#[test]
fn nothing_was_done() {
    HistoryBuilder::new().assert_no_violations();
}

#[test]
fn holders_follow_each_other_without_a_pause() {
    let mut builder = valid_history();
    builder.lock(1, &[3], [1000, 1001, 1010, 1012]);
    builder.lock(2, &[3], [1000, 1010, 1020, 1021]);
    builder.lease(1, "leader", (1, 300), [1000, 1001, 1010, 1012]);
    builder.lease(2, "leader", (1, 301), [1000, 1010, 1020, 1021]);
    builder.pinned(1, (4, 300), [1030, 1031, 1040, 1041]);
    builder.pinned(2, (4, 301), [1030, 1040, 1050, 1051]);
    for process in [1, 2, 3] {
        let from = 1060 + 10 * u64::from(process);
        builder.slot(process, [1060, from, from + 20, from + 21]);
    }
    builder.assert_no_violations();
}

#[test]
fn last_attempt_counts() {
    let mut builder = valid_history();
    let twice = builder.begin(1, locking(&[4]), 1000);
    builder.enter(twice, None, 1001);
    // Its connection is lost, another comes in between.
    builder.lock(2, &[4], [1000, 1005, 1010, 1011]);
    builder.enter(twice, None, 1012);
    builder.end(twice, Outcome::Done, Some(1020), 1021);
    builder.count(twice, &[4]);

    // An attempt at the transaction, not at the slot.
    let pinned = builder.begin(1, Task::Pinned { lease_ms: 1000 }, 1030);
    builder.enter(pinned, Some((1, 500)), 1031);
    builder.enter(pinned, Some((1, 500)), 1035);
    builder.end(pinned, Outcome::Done, Some(1040), 1041);
    builder.count(pinned, &[workload_spec::PINNED_COUNTERS.start]);
    builder.assert_no_violations();
}

#[test]
fn rows_decide_about_operations_of_killed_processes() {
    let mut builder = valid_history();
    for (counter, happened) in [(3, true), (4, false)] {
        let killed = 10 + counter;
        let locked = builder.begin(killed, locking(&[counter]), 1000);
        builder.enter(locked, None, 1001);
        let drawn = builder.begin(killed, Task::Pass { sequence: 2 }, 1000);
        if happened {
            builder.count(locked, &[counter]);
            builder.draw(drawn, 2);
        }
        builder.kill(killed);
        builder.fault(FaultKind::Kill, Some(counter), 1002, 1100);
        builder.lock(counter, &[counter], [1110, 1111, 1115, 1116]);
        builder.pass(counter, 2, 1120, 1130);
    }
    builder.assert_no_violations();
}

#[test]
fn rows_decide_about_commits_whose_outcome_is_unknown() {
    let mut builder = valid_history();
    builder.fault(FaultKind::Reset, None, 1000, 2000);
    for (counter, happened) in [(3, true), (4, false)] {
        let lost = failed(ErrorKind::OutcomeUnknown);
        let op = builder.whole(
            1,
            locking(&[counter]),
            None,
            lost.clone(),
            [1000, 1001, 1010, 1020],
        );
        let pass = builder.begin(1, Task::Pass { sequence: 2 }, 1030);
        builder.end(pass, lost, None, 1040);
        if happened {
            builder.count(op, &[counter]);
            builder.draw(pass, 2);
        }
        builder.lock(2, &[counter], [1110, 1111, 1115, 1116]);
    }
    builder.assert_no_violations();
}

#[test]
fn a_commit_whose_outcome_is_unknown_may_come_after_its_operation_has_ended() {
    let mut builder = valid_history();
    builder.fault(FaultKind::BlackHole, None, 1000, 1500);
    // Begun after the other had given up, and yet before it at the server.
    let lost = builder.begin(1, Task::Pass { sequence: 2 }, 1000);
    builder.end(lost, failed(ErrorKind::OutcomeUnknown), None, 1040);
    builder.pass(2, 2, 1050, 1060);
    builder.draw(lost, 2);
    builder.assert_no_violations();
}

#[test]
fn stale_writer_is_reported_stale() {
    let mut builder = valid_history();
    let stale = failed(ErrorKind::Fenced);
    builder.whole(
        1,
        leasing("leader"),
        Some((1, 300)),
        stale,
        [1000, 1001, 1010, 2500],
    );
    builder.lease(2, "leader", (1, 301), [2100, 2101, 2110, 2111]);
    let lost = failed(ErrorKind::SlotLost);
    let pinned = Task::Pinned { lease_ms: 1000 };
    builder.whole(1, pinned, Some((1, 302)), lost, [1600, 1601, 1900, 2910]);
    builder.pinned(2, (1, 303), [2700, 2701, 2710, 2711]);
    builder.assert_no_violations();
}

/// All locks are of one object and all leases of one slot, one after the other.
fn sequential_operations(count: u64) -> HistoryBuilder {
    let mut builder = HistoryBuilder::new();
    for number in 1..=count {
        let process = u32::try_from(number % 3).unwrap() + 1;
        // Less than ten seconds, after which other kinds of tasks would be missed.
        let begin = 1 + number / 4;
        builder.lock(process, &[0], [begin; 4]);
        let fence = i64::try_from(number).unwrap();
        builder.lease(process, "leader", (1, fence), [begin; 4]);
    }
    builder
}

fn time(builder: &HistoryBuilder) -> Duration {
    let begun = Instant::now();
    builder.assert_no_violations();
    begun.elapsed()
}

#[test]
fn thirty_times_as_many_operations_take_about_thirty_times_as_long() {
    let (few, many) = (sequential_operations(1000), sequential_operations(30_000));
    // The machine may be busy with something else for a moment.
    let few = (0..3).map(|_| time(&few)).max().unwrap();
    let many = time(&many);
    // Comparing each with each other takes 900 times as long.
    assert!(many < few * 90, "{few:?}, {many:?}");
}
