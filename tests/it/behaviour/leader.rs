//! A leader with automatic fail-over.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, InspectExt, SlotRenewer, StopToken};

use super::events::Collector;
use super::slots::guards::{guarded, renewed, renewer};
use super::slots::{HOUR, one_hour, single_slot, slots_of};
use crate::subprocess::Subprocess;
use crate::support::Backend;
use crate::support::R2d2;
use crate::support::threads::LONG;

/// A node that was elected, with its fence.
pub(super) type Election = (&'static str, i64);

/// A node of its own: a thread with a renewer of its own, which leads until it is lost or stopped.
pub(super) struct Node {
    stop: StopToken,
    thread: JoinHandle<Result<(), Error>>,
}

impl Node {
    fn start<B: Backend>(database: &B, name: &'static str, elected: &Sender<Election>) -> Self {
        Self::with_renewer::<B>(&renewer::<B>(database, 2), &single_slot(), name, elected)
    }

    pub(super) fn with_renewer<B: Backend>(
        renewer: &SlotRenewer<R2d2<B::Conn>>,
        semaphore: &Semaphore,
        name: &'static str,
        elected: &Sender<Election>,
    ) -> Self {
        let (stop, elected) = (StopToken::new(), elected.clone());
        let (token, renewer, semaphore) = (stop.clone(), renewer.clone(), semaphore.clone());
        let thread = std::thread::spawn(move || {
            renewer
                .stopped_by(&token)
                .run_as_leader(&semaphore, renewed().holder(name), |leader| {
                    // The test may have ended.
                    let _ = elected.send((name, leader.fence()));
                    while leader.sleep(HOUR) {}
                    assert!(!leader.is_active());
                    assert!(leader.stop_token().is_stopped());
                    Ok(())
                })
        });
        Self { stop, thread }
    }

    pub(super) fn stop(self) {
        self.stop.stop();
        self.thread.join().expect("no panic").expect("no error");
    }
}

pub(super) fn next(elections: &Receiver<Election>) -> Election {
    elections.recv_timeout(LONG).expect("an election")
}

pub(crate) fn standby_is_elected_when_the_leader_stops<B: Backend>() {
    let database = B::new();
    let (elected, elections) = channel();
    let mut nodes: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| (name, Node::start(&database, name, &elected)))
        .collect();
    let mut conn = database.connect();
    let mut last = 0;
    while !nodes.is_empty() {
        let (name, fence) = next(&elections);
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        let held = conn.held_slots(&slots_of(single_slot())).expect("rows");
        assert_eq!(held.len(), 1, "one leader: {held:?}");
        assert_eq!(held[0].holder.as_deref(), Some(name));
        assert!(elections.try_recv().is_err(), "one leader");
        let position = nodes.iter().position(|(node, _)| *node == name);
        nodes.remove(position.expect("it ran")).1.stop();
    }
    assert_eq!(conn.held_slots(&slots_of(single_slot())).expect("rows"), []);
}

pub(crate) fn standby_is_elected_when_the_leaders_process_is_killed<B: Backend>() {
    let database = B::new();
    let leader = Subprocess::leading::<B>(&database.url(), single_slot().name());
    let (elected, elections) = channel();
    // It does not find out by polling: it asks when the lease ends.
    let patient = renewer::<B>(&database, 2).poll_interval(HOUR);
    let standby = Node::with_renewer::<B>(&patient, &single_slot(), "standby", &elected);
    let mut conn = database.connect();
    let leads = |conn: &mut B::Conn| {
        let held = conn.held_slots(&slots_of(single_slot())).expect("rows");
        held.len() == 1 && held[0].holder.as_deref() == Some("subprocess")
    };
    assert!(leads(&mut conn));
    assert!(elections.try_recv().is_err(), "one leader");
    leader.kill();
    assert_eq!(next(&elections).0, "standby");
    standby.stop();
}

pub(crate) fn lost_leader_ends_and_stands_again<B: Backend>() {
    let database = B::new();
    let (elected, elections) = channel();
    let node = Node::start(&database, "a", &elected);
    let (_, first) = next(&elections);
    let mut conn = database.connect();
    // Its renewal notices it.
    assert_eq!(conn.force_release_all(single_slot()).expect("rows"), 1);
    let (_, second) = next(&elections);
    assert!(second > first);
    node.stop();
}

/// The standby of another process is elected, and the former leader stands again.
pub(crate) fn leader_that_is_asked_to_release_resigns<B: Backend>() {
    let database = B::new();
    let (elected, elections) = channel();
    let nodes = ["a", "b"].map(|name| Node::start(&database, name, &elected));
    let mut conn = database.connect();
    let (mut leader, mut last) = next(&elections);
    for _ in 0..2 {
        let held = conn.held_slots(&slots_of(single_slot())).expect("rows");
        conn.request_release(&held[0]).expect("it leads");
        let (name, fence) = next(&elections);
        assert!(name != leader && fence > last, "{name} after {leader}");
        (leader, last) = (name, fence);
    }
    nodes.into_iter().for_each(Node::stop);
}

pub(crate) fn as_many_leaders_as_permits<B: Backend>() {
    let database = B::new();
    let two = Semaphore::new("two", 2);
    let (elected, elections) = channel();
    let mut nodes: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| {
            let renewer = renewer::<B>(&database, 2);
            (
                name,
                Node::with_renewer::<B>(&renewer, &two, name, &elected),
            )
        })
        .collect();
    let leaders = [next(&elections).0, next(&elections).0];
    assert_ne!(leaders[0], leaders[1]);
    assert!(elections.try_recv().is_err(), "two leaders");
    let held = database
        .connect()
        .held_slots(&slots_of(&two))
        .expect("rows");
    assert_eq!(held.len(), 2);
    let position = nodes.iter().position(|(node, _)| *node == leaders[0]);
    nodes.remove(position.expect("it ran")).1.stop();
    let third = next(&elections).0;
    assert!(!leaders.contains(&third), "{third}");
    for (_, node) in nodes {
        node.stop();
    }
}

pub(crate) fn leader_that_fails_or_panics_releases_its_slot<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2);
    let mut conn = database.connect();
    let stop = StopToken::new();
    let failed = renewer
        .stopped_by(&stop)
        .run_as_leader(&single_slot(), one_hour(), |leader| {
            assert!(leader.is_active());
            Err(Error::from(diesel::result::Error::NotFound))
        });
    assert!(failed.is_err());
    assert_eq!(conn.held_slots(&slots_of(single_slot())).expect("rows"), []);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        renewer.stopped_by(&stop).run_as_leader(
            &single_slot(),
            one_hour(),
            |_| -> Result<(), Error> { panic!("on purpose") },
        )
    }));
    assert!(panicked.is_err());
    super::slots::guards::await_release::<B>(&mut conn);
    stop.stop();
    let run = renewer.stopped_by(&stop).run_as_leader(
        &single_slot(),
        one_hour(),
        |_| -> Result<(), Error> { panic!("stopped before it began") },
    );
    run.expect("no error");
}

/// A leader that returns without a reason resigns: the standby of another process is elected before it is elected again.
pub(crate) fn leader_that_returns_resigns<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2).poll_interval(Duration::from_millis(50));
    let stop = StopToken::new();
    let mut elections = Vec::new();
    let (token, mut conn) = (stop.clone(), database.connect());
    let run = renewer
        .stopped_by(&stop)
        .run_as_leader(&single_slot(), renewed(), |leader| {
            elections.push(leader.fence());
            if elections.len() == 3 {
                token.stop();
            }
            Ok::<_, Error>(())
        });
    run.expect("no error");
    assert_eq!(elections.len(), 3);
    assert_eq!(elections.iter().collect::<HashSet<_>>().len(), 3);
    assert_eq!(conn.held_slots(&slots_of(single_slot())).expect("rows"), []);
}

pub(crate) fn standby_survives_errors_of_the_database_and_the_pool<B: Backend>() {
    let database = B::new();
    let collector = Collector::global();
    let ours = renewer::<B>(&database, 2);
    // Behind waiters of other tests it would go on waiting in their queue.
    let semaphore = name_of_its_own::<B>("survives errors");
    let held = guarded::<B>(&ours, &semaphore, &renewed());
    let pool = B::pool_with(&database.url(), 1, Duration::from_millis(100), |_| ());
    let borrowed = pool.get_timeout(LONG).expect("a connection");
    let (elected, elections) = channel();
    let renewer = SlotRenewer::new(pool);
    let node = Node::with_renewer::<B>(&renewer, &semaphore, "a", &elected);
    let standby = node.thread.thread().id();
    let started = Instant::now();
    while !collector.events_of(standby).contains("retrying") {
        assert!(started.elapsed() < LONG, "{}", collector.events_of(standby));
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(borrowed);
    database.disconnect_sessions();
    held.release().ok();
    database
        .connect()
        .force_release_all(&semaphore)
        .expect("rows");
    assert_eq!(next(&elections).0, "a");
    node.stop();
}

pub(crate) fn leader_with_unusable_arguments_or_without_tables_is_an_error<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2);
    let stop = StopToken::new();
    let run =
        |renewer: &SlotRenewer<R2d2<B::Conn>>, semaphore: &Semaphore, lease: &LeaseOptions| {
            let run = renewer.stopped_by(&stop).run_as_leader(
                semaphore,
                lease,
                |_| -> Result<(), Error> { panic!("not elected") },
            );
            run.expect_err("unusable")
        };
    let error = run(&renewer, &Semaphore::new("", 1), &one_hour());
    assert!(matches!(error, Error::InvalidName(_)), "{error:?}");
    let error = run(&renewer, &Semaphore::new("none", 0), &one_hour());
    assert!(matches!(error, Error::InvalidPermits { .. }), "{error:?}");
    let error = run(&renewer, &single_slot(), &LeaseOptions::new(Duration::ZERO));
    assert!(matches!(error, Error::InvalidLease { .. }), "{error:?}");
    for (interval, requested) in [(Duration::ZERO, "0 s"), (48 * HOUR, "2 days")] {
        let error = run(
            &renewer.poll_interval(interval),
            &single_slot(),
            &one_hour(),
        );
        assert!(matches!(error, Error::InvalidInterval { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(requested) && text.contains("10 ms to 1 day"),
            "{text}"
        );
        let error =
            renewer
                .poll_interval(interval)
                .acquire(&single_slot(), one_hour(), Wait::Forever);
        assert!(
            matches!(error, Err(Error::InvalidInterval { .. })),
            "{error:?}"
        );
    }
    B::revert_all_migrations(&mut database.connect());
    let error = run(&renewer, &single_slot(), &one_hour());
    assert!(error.is_missing_tables(), "{error:?}");
}

/// The waiters of a process are woken when a slot of the same name is released in it, also in another test.
pub(super) fn name_of_its_own<B: Backend>(name: &str) -> Semaphore {
    Semaphore::new(format!("{name} on {}", B::NAME), 1)
}

/// It stops the token of its slot, and not the caller's.
pub(crate) fn leader_that_stops_its_own_token_resigns<B: Backend>() {
    let database = B::new();
    let renewer = renewer::<B>(&database, 2).poll_interval(HOUR);
    let semaphore = name_of_its_own::<B>("own token");
    let (stop, (elected, elections)) = (StopToken::new(), channel());
    let token = stop.clone();
    let node = std::thread::spawn(move || {
        renewer
            .stopped_by(&token)
            .run_as_leader(&semaphore, one_hour(), |leader| {
                leader.stop_token().stop();
                elected.send(leader.fence()).expect("the test waits");
                Ok::<_, Error>(())
            })
    });
    elections.recv_timeout(LONG).expect("an election");
    let again = elections.recv_timeout(Duration::from_millis(300));
    assert!(again.is_err(), "it stands again after the poll interval");
    stop.stop();
    node.join().expect("no panic").expect("no error");
}
