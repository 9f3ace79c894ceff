//! A web service on axum, whose clients hang up wherever their requests are.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, put};
use diesel_async::SimpleAsyncConnection;
use diesel_locks::prelude::*;
use diesel_locks::{Async, Error, LockPool, Shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::locked::{Locked, WAIT, Work, await_waiters, result_of};
use crate::support::blocker::Blocker;
use crate::support::dropped::LONG;
use crate::support::engine::{BoxFuture, Connections, Engine};
use crate::support::pools::{Kind, Locks};
use crate::support::urls::fresh_name;

const CLIENTS: usize = 30;

/// How long the clients send requests.
const LOAD: Duration = Duration::from_secs(2);

/// What a request does while it holds the lock or the slot.
const WORK: Duration = Duration::from_millis(2);

const REVISE: &str = "PUT /document";

/// Counts the closures that run at the same time, and those that do not run to their end.
struct Witness {
    most: usize,
    inside: AtomicUsize,
    too_many: AtomicUsize,
    cut_off: AtomicUsize,
    begun: watch::Sender<usize>,
}

impl Witness {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            inside: AtomicUsize::new(0),
            too_many: AtomicUsize::new(0),
            cut_off: AtomicUsize::new(0),
            begun: watch::Sender::new(0),
        })
    }

    /// Does what a closure does.
    async fn watch<T>(&self, work: impl Future<Output = T>) -> T {
        if self.inside.fetch_add(1, Ordering::SeqCst) >= self.most {
            self.too_many.fetch_add(1, Ordering::SeqCst);
        }
        self.begun.send_modify(|begun| *begun += 1);
        let mut inside = Inside(self, false);
        let done = work.await;
        inside.1 = true;
        done
    }

    fn cut_off(&self) -> usize {
        self.cut_off.load(Ordering::SeqCst)
    }
}

/// A closure that runs, and whether it has ended.
struct Inside<'a>(&'a Witness, bool);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.cut_off.fetch_add(1, Ordering::SeqCst);
        }
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

type Answer = BoxFuture<'static, Result<i64, Error>>;

/// The service: axum drops the future of a handler when the client hangs up.
struct Service {
    revise: Arc<dyn Fn() -> Answer + Send + Sync>,
    report: Arc<dyn Fn() -> Answer + Send + Sync>,
    health: Arc<dyn Fn() -> Answer + Send + Sync>,
    revising: Arc<Witness>,
    reporting: Arc<Witness>,
}

impl Service {
    fn new<E: Engine, K: Kind>(locks: &Locks<E, K>) -> Self {
        let [revising, reporting] = [Witness::new(1), Witness::new(2)];
        let reports = Semaphore::new(fresh_name(), 2);
        let (for_revise, for_report, for_health) = (locks.clone(), locks.clone(), locks.clone());
        let (revises, reporter) = (Arc::clone(&revising), Arc::clone(&reporting));
        Self {
            revise: Arc::new(move || revise::<E, K>(&for_revise, &revises)),
            report: Arc::new(move || report::<E, K>(&for_report, &reporter, reports.clone())),
            health: Arc::new(move || {
                let locks = for_health.clone();
                Box::pin(async move {
                    let mut conn = locks.pool().take().await;
                    Ok(E::number(&mut conn, "1".to_owned()).await?)
                })
            }),
            revising,
            reporting,
        }
    }

    /// Listens, and answers each request.
    async fn start(&self) -> SocketAddr {
        let handler = |work: &Arc<dyn Fn() -> Answer + Send + Sync>| {
            let work = Arc::clone(work);
            async move || match work().await {
                Ok(number) => (StatusCode::OK, number.to_string()),
                Err(error) if error.is_busy() => {
                    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
                }
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        };
        let router = Router::new()
            .route("/document", put(handler(&self.revise)))
            .route("/report", get(handler(&self.report)))
            .route("/health", get(handler(&self.health)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async { axum::serve(listener, router).await });
        address
    }
}

/// Stores the next revision under the object lock, and returns it.
fn revise<E: Engine, K: Kind>(locks: &Locks<E, K>, witness: &Arc<Witness>) -> Answer {
    let (sender, revision) = oneshot::channel();
    let witness = Arc::clone(witness);
    let work: Work<E::Conn> = Box::new(move |conn| {
        Box::pin(async move {
            let revise = async {
                let last = "COALESCE((SELECT MAX(attempt) FROM written), 0)";
                let next = E::number(conn, last.to_owned()).await? + 1;
                sleep(WORK).await;
                let insert = format!("INSERT INTO written VALUES ({next}, 1)");
                conn.batch_execute(&insert).await?;
                sender.send(next).expect("the request waits");
                Ok(())
            };
            witness.watch(revise).await
        })
    });
    let done = Locked::Object.with(locks, WAIT, work);
    Box::pin(async move {
        done.await?;
        Ok(revision.await.expect("it is sent before COMMIT"))
    })
}

/// Works with a slot.
fn report<E: Engine, K: Kind>(
    locks: &Locks<E, K>,
    witness: &Arc<Witness>,
    reports: Semaphore,
) -> Answer {
    let (locks, witness) = (locks.clone(), Arc::clone(witness));
    let work: Work<E::Conn> = Box::new(move |_| {
        Box::pin(async move {
            witness.watch(sleep(WORK)).await;
            Ok(())
        })
    });
    Box::pin(async move {
        let work = async move |conn: &mut E::Conn| work(conn).await;
        locks.with_slot(&reports, WAIT, work).await?;
        Ok(0)
    })
}

/// Sends a request on a connection of its own, which is closed with the future. Returns the status and the body.
async fn send(address: SocketAddr, line: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let head = "HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let request = format!("{line} {head}");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// The answers to requests for the document.
#[derive(Default)]
struct Seen {
    revisions: Vec<i64>,
    hung_up: usize,
}

impl Seen {
    /// `None`: the client has hung up.
    fn add(&mut self, answer: Option<(u16, String)>) {
        match answer {
            Some((200, revision)) => self.revisions.push(revision.parse().expect("a number")),
            Some(answer) => panic!("{answer:?}"),
            None => self.hung_up += 1,
        }
    }
}

/// Revises the document again and again. Three of ten times the client hangs up within 0.2 s.
async fn revise_by_turns(address: SocketAddr, end: Instant) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < end {
        let patience = match fastrand::u8(0..10) {
            0..3 => Duration::from_millis(fastrand::u64(0..200)),
            _ => LONG,
        };
        seen.add(timeout(patience, send(address, REVISE)).await.ok());
    }
    seen
}

/// One client after the other hangs up as soon as its closure has begun, and the next one wants the lock, until a closure
/// was cut off.
async fn cut_off(address: SocketAddr, witness: &Witness) -> Seen {
    let (mut seen, started) = (Seen::default(), Instant::now());
    while witness.cut_off() == 0 {
        assert!(started.elapsed() < LONG, "no closure was cut off");
        let mut begun = witness.begun.subscribe();
        let answer = tokio::select! {
            answer = send(address, REVISE) => Some(answer),
            _ = begun.changed() => None,
        };
        seen.add(answer);
        seen.add(Some(send(address, REVISE).await));
    }
    seen
}

/// What was answered is stored once, what was cut off is not, no closures overlap, and nothing is left locked or waiting.
pub(crate) async fn clients_that_hang_up_lose_and_leave_nothing<E: Engine, K: Kind>() {
    let database = E::new();
    let locks = LockPool::new(K::pool(&database, 8).await);
    let service = Service::new::<E, K>(&locks);
    let address = service.start().await;
    let mut seen = cut_off(address, &service.revising).await;

    let end = Instant::now() + LOAD;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(revise_by_turns(address, end));
    }
    let mut others = JoinSet::new();
    for path in ["GET /report", "GET /report", "GET /report", "GET /health"] {
        others.spawn(async move {
            let mut answers = 0;
            while Instant::now() < end {
                let (status, body) = send(address, path).await;
                assert_eq!(status, 200, "{path}: {body}");
                answers += 1;
            }
            assert!(answers > 0, "{path}");
        });
    }
    for client in clients.join_all().await {
        seen.revisions.extend(client.revisions);
        seen.hung_up += client.hung_up;
    }
    others.join_all().await;

    // Nobody asks any more: the lock is free.
    let revised = timeout(LONG, (service.revise)()).await;
    let last = revised.expect("the lock is free").expect("revised");
    seen.revisions.push(last);
    assert_eq!(locks.waiting(), 0);
    for witness in [&service.revising, &service.reporting] {
        assert_eq!(witness.too_many.load(Ordering::SeqCst), 0);
        assert_eq!(witness.inside.load(Ordering::SeqCst), 0);
    }
    // The revisions are 1 to the last one, each once.
    let mut conn = locks.pool().take().await;
    for stored in ["COUNT(*)", "COUNT(DISTINCT attempt)", "MAX(attempt)"] {
        let stored = format!("(SELECT {stored} FROM written)");
        assert_eq!(E::number(&mut conn, stored).await, Ok(last));
    }
    let answered: HashSet<i64> = seen.revisions.iter().copied().collect();
    assert_eq!(answered.len(), seen.revisions.len(), "answered once");
    assert!(
        answered
            .iter()
            .all(|revision| (1..=last).contains(revision))
    );
    // A revision that was not answered is that of a client that has hung up, and whose closure was not cut off.
    let unanswered = usize::try_from(last).expect("small") - answered.len();
    let cut_off = service.revising.cut_off();
    assert!(
        unanswered + cut_off <= seen.hung_up,
        "{unanswered} {cut_off} {}",
        seen.hung_up
    );
}

/// The lock is held for longer than the request would wait.
pub(crate) async fn request_that_waits_is_answered_when_the_service_ends<E: Engine, K: Kind>() {
    let database = Arc::new(E::new());
    let shutdown = Shutdown::<Async>::new();
    let locks = shutdown.add_lock_pool(&LockPool::new(K::pool(&*database, 2).await));
    let blocker = Blocker::acquire(&database, &Locked::Object.held()).await;
    let address = Service::new::<E, K>(&locks).start().await;
    let request = tokio::spawn(send(address, REVISE));
    await_waiters(&locks, 1).await;
    shutdown.stop_token().stop();
    let (status, text) = result_of(request).await;
    assert!(status == 503 && text.contains("stopped"), "{status} {text}");
    blocker.release().await;
    assert!(shutdown.shut_down(LONG).await.is_empty());
}
