//! Servers that do not answer: requests with a time limit end, and what the server has begun for them ends with the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diesel_locks::prelude::*;
use diesel_locks::{Error, Retention};
use tokio::time::{sleep, timeout};

use crate::support::dropped::LONG;
use crate::support::engine::{BoxFuture, Engine, Source};
use crate::support::proxy::Proxy;
use crate::support::watch::{HOUR, Watch};

const LIMIT: Duration = Duration::from_secs(2);
/// So many messages are looked at side by side.
const BATCH: usize = 8;

/// The connection of a request, which does not answer one of its messages, nor any later one.
struct Stall {
    proxy: Proxy,
    message: i64,
    /// Of what the request locks.
    name: String,
    has_run: AtomicBool,
}

impl Stall {
    fn begin(&self) {
        self.proxy.stall_at(self.message);
    }

    /// The closure of the request, whose COMMIT has no limit.
    #[expect(clippy::unnecessary_wraps, reason = "closures return it")]
    fn run(&self) -> Result<(), Error> {
        self.has_run.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Returns when the closure has run and what follows it is not answered.
    async fn after_the_closure(&self) {
        while !(self.has_run.load(Ordering::SeqCst) && self.proxy.has_stalled()) {
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn lock(&self) -> LockRequest {
        LockRequest::new(&self.name).wait(Wait::AtMost(LIMIT))
    }

    /// The lock of the transaction in which the request is made.
    fn outer(&self) -> String {
        format!("outer:{}", self.name)
    }

    fn semaphore(&self) -> Semaphore {
        Semaphore::new(&self.name, 1)
    }
}

type Request<C> = for<'c> fn(&'c mut C, Arc<Stall>) -> BoxFuture<'c, Result<(), Error>>;

/// The first request of a connection, which finds out more than later ones.
const NEW: &str = "with_object_lock, on a new connection";

fn requests<E: Engine>() -> [(&'static str, Request<E::Conn>); 8] {
    let with_object_lock: Request<E::Conn> = |conn, stall| {
        Box::pin(async move {
            stall.begin();
            conn.with_object_lock(stall.lock(), async |_| stall.run())
                .await
        })
    };
    [
        (NEW, with_object_lock),
        ("with_object_lock", with_object_lock),
        ("with_object_lock, kept", |conn, stall| {
            Box::pin(async move {
                stall.begin();
                let request = stall.lock().retention(Retention::Kept);
                conn.with_object_lock(request, async |_| stall.run()).await
            })
        }),
        ("with_object_lock, in a transaction", |conn, stall| {
            Box::pin(async move {
                conn.with_object_lock(stall.outer(), async |conn| {
                    stall.begin();
                    conn.with_object_lock(stall.lock(), async |_| stall.run())
                        .await
                })
                .await
            })
        }),
        ("lock_object", |conn, stall| {
            Box::pin(async move {
                conn.with_object_lock(stall.outer(), async |conn| {
                    stall.begin();
                    conn.lock_object(stall.lock()).await?;
                    stall.run()
                })
                .await
            })
        }),
        ("acquire_slot", |conn, stall| {
            Box::pin(async move {
                stall.begin();
                let (semaphore, lease) = (stall.semaphore(), LeaseOptions::new(HOUR));
                let slot = conn.acquire_slot(&semaphore, lease, Wait::AtMost(LIMIT));
                let _slot = slot.await?;
                stall.run()
            })
        }),
        ("with_slot", |conn, stall| {
            Box::pin(async move {
                stall.begin();
                conn.with_slot(&stall.semaphore(), Wait::AtMost(LIMIT), async |_| {
                    stall.run()
                })
                .await
            })
        }),
        ("with_slot, in a transaction", |conn, stall| {
            Box::pin(async move {
                conn.with_object_lock(stall.outer(), async |conn| {
                    stall.begin();
                    conn.with_slot(&stall.semaphore(), Wait::AtMost(LIMIT), async |_| {
                        stall.run()
                    })
                    .await
                })
                .await
            })
        }),
    ]
}

pub(crate) async fn request_with_a_limit_ends<E: Engine>() {
    let database = Arc::new(E::new());
    let mut stalled = Vec::new();
    for (name, request) in requests::<E>() {
        let mut outcomes = Vec::new();
        for first in (1..).step_by(BATCH) {
            let attempts = (first..).take(BATCH).map(|message| {
                let database = Arc::clone(&database);
                tokio::spawn(async move { ends::<E>(&database, name, request, message).await })
            });
            let attempts: Vec<_> = attempts.collect();
            for attempt in attempts {
                let (outcome, stall) = attempt.await.expect("no panic");
                if outcome == Outcome::TimedOut {
                    stalled.push(stall);
                }
                outcomes.push(outcome);
            }
            // It has sent fewer messages.
            if outcomes.ends_with(&[Outcome::Granted]) {
                break;
            }
        }
        println!("{}, {name}: {outcomes:?}", E::NAME);
        assert!(outcomes.contains(&Outcome::TimedOut), "{name}");
    }
    // What was begun for them ends: their connections are closed when the server has not answered for a minute.
    let started = Instant::now();
    let watch = Watch::new(&*database);
    for stall in stalled {
        loop {
            let looked_at = Arc::clone(&stall);
            if watch.with(move |conn| is_free::<E>(conn, &looked_at)).await {
                break;
            }
            let held = started.elapsed();
            let name = &stall.name;
            assert!(held < 3 * LONG, "{name} is held for {held:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing stalled.
    Granted,
    TimedOut,
    StalledAfterTheClosure,
}

/// Returns how the request ends whose connection does not answer this message.
async fn ends<E: Engine>(
    database: &E,
    name: &str,
    request: Request<E::Conn>,
    message: i64,
) -> (Outcome, Arc<Stall>) {
    let server = database.address().expect("a server");
    let stall = Arc::new(Stall {
        proxy: Proxy::to(&server),
        message,
        name: format!("{name}:{message}"),
        has_run: AtomicBool::new(false),
    });
    let stalling = database.by_way_of(stall.proxy.port).expect("a server");
    let mut conn = stalling.connections(Source::Bare).await.take().await;
    if name != NEW {
        let locked = conn.with_object_lock("first", async |_| Ok::<_, Error>(()));
        locked.await.expect("it is free");
        // Else those that stall while they add slots would hold up the others.
        let registered = conn.register_semaphores([&stall.semaphore()]).await;
        registered.expect("slots");
    }
    let request = timeout(LONG, request(&mut conn, Arc::clone(&stall)));
    let ended = tokio::select! {
        ended = request => ended.unwrap_or_else(|_| panic!("{name}, message {message}: no end")),
        () = stall.after_the_closure() => return (Outcome::StalledAfterTheClosure, stall),
    };
    let outcome = match ended {
        Ok(()) => Outcome::Granted,
        Err(Error::LockTimeout { waited, limit, .. }) => {
            assert!(waited >= LIMIT && limit == Some(LIMIT), "{waited:?}");
            assert!(!stall.has_run.load(Ordering::SeqCst) && stall.proxy.has_stalled());
            Outcome::TimedOut
        }
        Err(error) => panic!("{name}, message {message}: {error:?}"),
    };
    (outcome, stall)
}

fn is_free<E: Engine>(conn: &mut E::Blocking, stall: &Stall) -> bool {
    let outer = conn.try_with_object_lock(stall.outer(), |_| Ok::<_, Error>(()));
    let locked = conn.try_with_object_lock(&stall.name, |_| Ok::<_, Error>(()));
    let held = conn.try_with_slot(&stall.semaphore(), |_| Ok::<_, Error>(()));
    outer.expect("an answer").is_some()
        && locked.expect("an answer").is_some()
        && held.expect("an answer").is_some()
}
