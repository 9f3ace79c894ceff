//! Leaders, and jobs on a timer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel_locks::chrono::{DateTime, Utc};
use diesel_locks::prelude::*;
use diesel_locks::{Error, SlotRenewer, StopToken, TimerJob};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Fixture, ONE, one_hour};
use crate::support::dropped::LONG;
use crate::support::engine::Engine;
use crate::support::pools::Kind;

/// How often a standby asks.
const POLL: Duration = Duration::from_millis(50);

/// A node that tells of each of its elections, and leads until its slot is lost or it is stopped.
fn node<E: Engine, K: Kind>(
    test: &Fixture<E, K>,
    name: &'static str,
    elected: &UnboundedSender<&'static str>,
    leaders: &Arc<AtomicUsize>,
    stop: &StopToken,
) -> JoinHandle<Result<(), Error>> {
    let renewer = test.renewer.poll_interval(POLL).stopped_by(stop);
    let (elected, leaders) = (elected.clone(), Arc::clone(leaders));
    tokio::spawn(async move {
        let (one, lease) = (ONE, one_hour());
        renewer
            .run_as_leader(&one, &lease, async |leader| -> Result<(), Error> {
                let others = leaders.fetch_add(1, Ordering::SeqCst);
                let _leads = Leads(Arc::clone(&leaders));
                assert_eq!(others, 0, "{name}");
                elected.send(name).expect("the test waits for it");
                leader.ended().await;
                assert!(!leader.is_active() && !leader.sleep(LONG).await);
                Ok(())
            })
            .await
    })
}

/// It leads while this lives.
struct Leads(Arc<AtomicUsize>);

impl Drop for Leads {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn next(elected: &mut UnboundedReceiver<&'static str>) -> &'static str {
    let name = timeout(LONG, elected.recv()).await;
    name.expect("an election").expect("a node")
}

async fn end_of<T>(task: JoinHandle<T>) -> T {
    let ended = timeout(LONG, task).await;
    ended.expect("it ends").expect("no panic")
}

/// It is stopped, or its task is aborted.
pub(crate) async fn standby_is_elected_when_the_leader_ends<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let (sender, mut elected) = unbounded_channel();
    let leaders = Arc::default();
    let stops: [StopToken; 3] = Default::default();
    let first = node(&test, "first", &sender, &leaders, &stops[0]);
    assert_eq!(next(&mut elected).await, "first");
    let second = node(&test, "second", &sender, &leaders, &stops[1]);
    stops[0].stop();
    end_of(first).await.expect("stopped");
    assert_eq!(next(&mut elected).await, "second");
    let third = node(&test, "third", &sender, &leaders, &stops[2]);
    second.abort();
    assert_eq!(next(&mut elected).await, "third");
    stops[2].stop();
    end_of(third).await.expect("stopped");
    test.until_released().await;
}

pub(crate) async fn lost_leader_ends_and_stands_again<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let (sender, mut elected) = unbounded_channel();
    let stop = StopToken::new();
    let renewer = test.renewer.poll_interval(POLL).stopped_by(&stop);
    let leader = tokio::spawn(async move {
        let (one, lease) = (ONE, LeaseOptions::new(super::LEASE));
        renewer
            .run_as_leader(&one, &lease, async |leader| -> Result<(), Error> {
                sender.send("elected").expect("the test waits for it");
                leader.ended().await;
                Ok(())
            })
            .await
    });
    for _ in 0..2 {
        next(&mut elected).await;
        let released = test.watch.with(|conn| conn.force_release_all(ONE));
        released.await.expect("a count");
    }
    next(&mut elected).await;
    stop.stop();
    end_of(leader).await.expect("stopped");
    test.until_released().await;
}

pub(crate) async fn leader_that_fails_or_panics_releases_its_slot<E: Engine, K: Kind>() {
    let test = Fixture::<E, K>::new().await;
    let (one, lease) = (&ONE, &one_hour());
    let led = test.renewer.run_as_leader(one, lease, async |leader| {
        assert!(leader.is_active() && leader.fence() == leader.slot().fence());
        Err(Error::Unavailable {
            resource: "on purpose".to_owned(),
        })
    });
    assert!(led.await.expect_err("its error").is_unavailable());
    assert!(test.held(&ONE).await.is_empty());
    let renewer = test.renewer.clone();
    let panicked = tokio::spawn(async move {
        let (one, lease) = (ONE, one_hour());
        let led = renewer.run_as_leader(&one, &lease, async |_| -> Result<(), Error> {
            panic!("on purpose")
        });
        led.await
    });
    assert!(panicked.await.is_err_and(|error| error.is_panic()));
    test.until_released().await;
    let too_many = Semaphore::new("too many", u32::MAX);
    let led = test
        .renewer
        .run_as_leader(&too_many, lease, async |_| Ok::<_, Error>(()));
    assert!(matches!(led.await, Err(Error::InvalidPermits { .. })));
}

pub(crate) async fn each_tick_is_run_by_one_node<E: Engine, K: Kind>() {
    const TICKS: usize = 5;
    let test = Fixture::<E, K>::new().await;
    let others = SlotRenewer::new(K::pool(&test.database, 2).await);
    let stop = StopToken::new();
    let run = Arc::new(Mutex::new(BTreeSet::new()));
    let nodes = [test.renewer.clone(), test.renewer.clone(), others].map(|renewer| {
        let (stop, run) = (stop.clone(), Arc::clone(&run));
        tokio::spawn(async move {
            let job = TimerJob::new("job", Duration::from_millis(200));
            let lease = one_hour();
            let renewer = renewer.stopped_by(&stop);
            renewer
                .run_on_timer(&job, &lease, async |tick| -> Result<(), Error> {
                    assert!(tick.is_active());
                    let mut run = run.lock().expect("no panic");
                    assert!(run.insert(tick.due_at()), "a tick is run twice");
                    if run.len() >= TICKS {
                        stop.stop();
                    }
                    Ok(())
                })
                .await
        })
    });
    for node in nodes {
        end_of(node).await.expect("stopped");
    }
    let run = run.lock().expect("no panic");
    assert!((TICKS..TICKS + 3).contains(&run.len()), "{run:?}");
    let is_due = |due: &DateTime<Utc>| due.timestamp_micros() % 200_000 == 0;
    assert!(run.iter().all(is_due), "{run:?}");
}
