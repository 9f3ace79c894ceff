//! Runs in which nothing is wrong.

use std::time::{Duration, Instant};

use torture_history::{ErrorKind, FaultKind, Outcome, Release, Task, Waiting, scene};

use crate::play::{Play, failed, leasing, locking};

/// Three processes do everything there is to do, beside each other and one after the other, until millisecond 1000.
pub(crate) fn right() -> Play {
    let mut play = Play::new();
    play.lock(1, &[0], [10, 11, 20, 21]);
    play.lock(2, &[1, 0], [10, 22, 30, 31]);
    play.lock(3, &[0, 2], [15, 32, 40, 41]);
    play.lock(1, &[5], [25, 26, 60, 61]);
    play.lease(2, "leader", (1, 100), [50, 51, 60, 65]);
    play.lease(1, "leader", (1, 101), [62, 66, 70, 71]);
    for (process, slot) in [(1, (1, 200)), (2, (2, 201)), (3, (3, 202))] {
        play.lease(process, "collate", slot, [80, 82, 90, 95]);
        play.ensured(process, slot, [100, 101, 110, 112]);
        play.ensured(process, (slot.0, slot.1 + 10), [112, 113, 120, 122]);
    }
    let renewed = Task::Lease {
        semaphore: "leader".to_owned(),
        renewed: true,
        lease_ms: 1000,
        wait: Waiting::Forever,
    };
    let renewed = play.begin(1, renewed, 122);
    play.enter(renewed, Some((1, 102)), 123);
    play.release(renewed, true, Release::InTime, 128);
    play.end(renewed, Outcome::Done, Some(127), 129);
    play.write(renewed, "leader", (1, 102));
    play.slot(1, [130, 131, 140, 141]);
    play.slot(2, [130, 132, 150, 151]);
    play.slot(3, [130, 141, 150, 151]);
    for process in [1, 2, 3] {
        play.pass(process, 0, 160, 170);
        play.pass(process, 1, 180, 190);
    }
    play.transfer(1, 100, 101, [200, 201, 209, 210]);
    play.transfer(2, 101, 102, [200, 201, 209, 210]);
    play.survives(3, 200);
    play.panics(3, 210);
    let purge = play.begin(1, Task::Purge, 215);
    play.end(purge, Outcome::Done, None, 216);
    let refused = play.begin(2, leasing("leader"), 220);
    play.end(refused, Outcome::Refused, None, 221);
    let late = Task::Slot {
        wait: Waiting::AtMost(5),
    };
    let late = play.begin(3, late, 220);
    play.end(late, failed(ErrorKind::TimedOut), None, 226);
    play
}

#[test]
fn everything_is_right() {
    let play = right();
    play.is_right();
    let verdict = play.verdict().unwrap();
    assert_eq!(verdict.operations, 32);
    assert_eq!(verdict.total(), 0);
}

#[test]
fn nothing_was_done() {
    Play::new().is_right();
}

#[test]
fn holders_follow_each_other_without_a_pause() {
    let mut play = right();
    play.lock(1, &[3], [1000, 1001, 1010, 1012]);
    play.lock(2, &[3], [1000, 1010, 1020, 1021]);
    play.lease(1, "leader", (1, 300), [1000, 1001, 1010, 1012]);
    play.lease(2, "leader", (1, 301), [1000, 1010, 1020, 1021]);
    play.ensured(1, (4, 300), [1030, 1031, 1040, 1041]);
    play.ensured(2, (4, 301), [1030, 1040, 1050, 1051]);
    for process in [1, 2, 3] {
        let from = 1060 + 10 * u64::from(process);
        play.slot(process, [1060, from, from + 20, from + 21]);
    }
    play.is_right();
}

#[test]
fn last_attempt_counts() {
    let mut play = right();
    let twice = play.begin(1, locking(&[4]), 1000);
    play.enter(twice, None, 1001);
    // Its connection is lost, another comes in between.
    play.lock(2, &[4], [1000, 1005, 1010, 1011]);
    play.enter(twice, None, 1012);
    play.end(twice, Outcome::Done, Some(1020), 1021);
    play.count(twice, &[4]);

    // An attempt at the transaction, not at the slot.
    let ensured = play.begin(1, Task::Ensured { lease_ms: 1000 }, 1030);
    play.enter(ensured, Some((1, 500)), 1031);
    play.enter(ensured, Some((1, 500)), 1035);
    play.end(ensured, Outcome::Done, Some(1040), 1041);
    play.count(ensured, &[scene::ENSURED_COUNTERS.start]);
    play.is_right();
}

#[test]
fn whether_an_operation_took_place_whose_process_was_killed_the_database_tells() {
    let mut play = right();
    for (counter, happened) in [(3, true), (4, false)] {
        let killed = 10 + counter;
        let locked = play.begin(killed, locking(&[counter]), 1000);
        play.enter(locked, None, 1001);
        let drawn = play.begin(killed, Task::Pass { sequence: 2 }, 1000);
        if happened {
            play.count(locked, &[counter]);
            play.draw(drawn, 2);
        }
        play.kill(killed);
        play.fault(FaultKind::Kill, Some(counter), 1002, 1100);
        play.lock(counter, &[counter], [1110, 1111, 1115, 1116]);
        play.pass(counter, 2, 1120, 1130);
    }
    play.is_right();
}

#[test]
fn whether_a_commit_took_place_whose_connection_was_lost_the_database_tells() {
    let mut play = right();
    play.fault(FaultKind::Reset, None, 1000, 2000);
    for (counter, happened) in [(3, true), (4, false)] {
        let lost = failed(ErrorKind::Connection);
        let op = play.whole(
            1,
            locking(&[counter]),
            None,
            lost.clone(),
            [1000, 1001, 1010, 1020],
        );
        let pass = play.begin(1, Task::Pass { sequence: 2 }, 1030);
        play.end(pass, lost, None, 1040);
        if happened {
            play.count(op, &[counter]);
            play.draw(pass, 2);
        }
        play.lock(2, &[counter], [1110, 1111, 1115, 1116]);
    }
    play.is_right();
}

#[test]
fn a_commit_of_a_lost_connection_may_come_after_its_operation_has_ended() {
    let mut play = right();
    play.fault(FaultKind::BlackHole, None, 1000, 1500);
    // Begun after the other had given up, and yet before it at the server.
    let lost = play.begin(1, Task::Pass { sequence: 2 }, 1000);
    play.end(lost, failed(ErrorKind::Connection), None, 1040);
    play.pass(2, 2, 1050, 1060);
    play.draw(lost, 2);
    play.is_right();
}

#[test]
fn stale_writer_is_reported_stale() {
    let mut play = right();
    let stale = failed(ErrorKind::Fenced);
    play.whole(
        1,
        leasing("leader"),
        Some((1, 300)),
        stale,
        [1000, 1001, 1010, 2500],
    );
    play.lease(2, "leader", (1, 301), [2100, 2101, 2110, 2111]);
    let lost = failed(ErrorKind::SlotLost);
    let ensured = Task::Ensured { lease_ms: 1000 };
    play.whole(1, ensured, Some((1, 302)), lost, [1600, 1601, 1900, 2910]);
    play.ensured(2, (1, 303), [2700, 2701, 2710, 2711]);
    play.is_right();
}

/// All locks are of one object and all leases of one slot, one after the other.
fn one_after_the_other(count: u64) -> Play {
    let mut play = Play::new();
    for number in 1..=count {
        let process = u32::try_from(number % 3).unwrap() + 1;
        // Less than ten seconds, after which other kinds of tasks would be missed.
        let begin = 1 + number / 4;
        play.lock(process, &[0], [begin; 4]);
        let fence = i64::try_from(number).unwrap();
        play.lease(process, "leader", (1, fence), [begin; 4]);
    }
    play
}

fn time(play: &Play) -> Duration {
    let begun = Instant::now();
    play.is_right();
    begun.elapsed()
}

#[test]
fn thirty_times_as_many_operations_take_about_thirty_times_as_long() {
    let (few, many) = (one_after_the_other(1000), one_after_the_other(30_000));
    // The machine may be busy with something else for a moment.
    let few = (0..3).map(|_| time(&few)).max().unwrap();
    let many = time(&many);
    // Comparing each with each other takes 900 times as long.
    assert!(many < few * 90, "{few:?}, {many:?}");
}
