//! A database that is out of reach for a while, and a pool that is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::{Connection, ConnectionError, SqliteConnection};
use diesel_async::AsyncConnection;
use diesel_async::pooled_connection::deadpool::{Hook, Pool};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig};
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::error::AsyncPoolError;
use crate::{Error, LockPool, Semaphore, Wait};

type Conn = SyncConnectionWrapper<SqliteConnection>;

const QUEUES: usize = 50;
const LIMIT: Duration = Duration::from_secs(60);

/// A database that another connection writes, and a pool for it.
struct Database {
    pool: Pool<Conn>,
    /// Whether no connection can be opened.
    down: Arc<AtomicBool>,
    /// How often one was opened or could not be.
    opened: Arc<AtomicUsize>,
    /// How often one was lent again.
    lent_again: Arc<AtomicUsize>,
    writer: SqliteConnection,
    _directory: TempDir,
}

impl Database {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = directory.path().join("app.db").display().to_string();
        let mut writer = SqliteConnection::establish(&url).expect("a connection");
        writer
            .batch_execute("PRAGMA journal_mode = WAL")
            .expect("WAL");
        crate::migrate(&mut writer).expect("no tables yet");
        writer
            .batch_execute("BEGIN IMMEDIATE")
            .expect("no other writer");
        let (down, opened) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (is_down, count) = (Arc::clone(&down), Arc::clone(&opened));
        let mut config = ManagerConfig::default();
        config.custom_setup = Box::new(move |url| {
            count.fetch_add(1, Ordering::SeqCst);
            let is_down = is_down.load(Ordering::SeqCst);
            Box::pin(async move {
                if is_down {
                    return Err(ConnectionError::BadConnection("refused".to_owned()));
                }
                Conn::establish(url).await
            })
        });
        let lent_again = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&lent_again);
        let counts = Hook::sync_fn(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let manager = AsyncDieselConnectionManager::new_with_config(url, config);
        let pool = Pool::builder(manager)
            .max_size(4)
            .post_recycle(counts)
            .build();
        Self {
            pool: pool.expect("a pool"),
            down,
            opened,
            lent_again,
            writer,
            _directory: directory,
        }
    }

    /// Tasks that wait for slots of so many semaphores. Returns when each queue has asked the database: the pool lends its
    /// connections to those first that have not had one.
    async fn waiters(&self, name: &str, locks: &LockPool<Pool<Conn>>) -> Vec<Waiter> {
        let tasks = (0..QUEUES)
            .flat_map(|number| [number, number])
            .map(|number| {
                let (locks, semaphore) =
                    (locks.clone(), Semaphore::new(format!("{name} {number}"), 1));
                tokio::spawn(async move {
                    let nothing = async |_: &mut Conn| Ok::<(), Error>(());
                    locks
                        .with_slot(&semaphore, Wait::AtMost(LIMIT), nothing)
                        .await
                })
            });
        let tasks = tasks.collect();
        until(|| self.lent_again.load(Ordering::SeqCst) > 4 * QUEUES).await;
        tasks
    }
}

type Waiter = JoinHandle<Result<(), Error>>;

async fn until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "it does not become true");
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn many_queues_open_few_connections_while_the_database_is_out_of_reach() {
    let mut database = Database::new();
    let locks = LockPool::new(database.pool.clone());
    let waiters = database.waiters("out of reach", &locks).await;
    database.down.store(true, Ordering::SeqCst);
    until(|| {
        let _ = database.pool.retain(|_, _| false);
        database.pool.status().size == 0
    })
    .await;
    let (before, started) = (database.opened.load(Ordering::SeqCst), Instant::now());
    sleep(Duration::from_secs(3)).await;
    let opened = database.opened.load(Ordering::SeqCst) - before;
    let elapsed = started.elapsed();
    println!("{opened} attempts for {QUEUES} queues in {elapsed:?}");
    // Pauses of 50, 100, 200, 400, 800 and 1600 ms at least.
    let rounds = usize::try_from(elapsed.as_secs()).expect("a short test") + 4;
    assert!(opened >= QUEUES, "they try again");
    assert!(opened <= rounds * QUEUES, "{opened} attempts");
    database.down.store(false, Ordering::SeqCst);
    database.writer.batch_execute("ROLLBACK").expect("its own");
    for waiter in waiters {
        let outcome = waiter.await.expect("no panic");
        outcome.expect("it comes free");
    }
}

/// Requests a slot, and returns how long that took.
async fn slot(locks: &LockPool<Pool<Conn>>, semaphore: &Semaphore) -> Duration {
    let started = Instant::now();
    let nothing = async |_: &mut Conn| Ok::<(), Error>(());
    let done = locks.with_slot(semaphore, Wait::AtMost(LIMIT), nothing);
    done.await.expect("it comes free");
    started.elapsed()
}

/// The shortest pause of a request that did not reach the database seven times.
const PAUSE: Duration = Duration::from_millis(2500);

/// A request that waits, and pauses so long.
async fn waiter_in_an_outage(
    database: &Database,
    locks: &LockPool<Pool<Conn>>,
    semaphore: &Semaphore,
) -> JoinHandle<Duration> {
    let waiter = {
        let (locks, semaphore) = (locks.clone(), semaphore.clone());
        tokio::spawn(async move { slot(&locks, &semaphore).await })
    };
    until(|| database.lent_again.load(Ordering::SeqCst) > 2).await;
    database.down.store(true, Ordering::SeqCst);
    let before = database.opened.load(Ordering::SeqCst);
    until(|| {
        let _ = database.pool.retain(|_, _| false);
        database.opened.load(Ordering::SeqCst) >= before + 7
    })
    .await;
    waiter
}

#[tokio::test]
async fn new_request_does_not_wait_for_the_pause_of_those_that_outlasted_an_outage() {
    let mut database = Database::new();
    let locks = LockPool::new(database.pool.clone());
    let semaphore = Semaphore::new("after an outage", 1);
    let waiter = waiter_in_an_outage(&database, &locks, &semaphore).await;
    database.writer.batch_execute("ROLLBACK").expect("its own");
    database.down.store(false, Ordering::SeqCst);
    let answer = slot(&locks, &semaphore).await;
    assert!(answer < PAUSE * 9 / 10, "{answer:?}");
    waiter.await.expect("no panic");
}

#[tokio::test]
async fn outage_of_a_database_delays_no_request_to_another_one() {
    let (mut down, mut other) = (Database::new(), Database::new());
    let semaphore = Semaphore::new("in two databases", 1);
    let locks = LockPool::new(down.pool.clone());
    let waiter = waiter_in_an_outage(&down, &locks, &semaphore).await;
    other.writer.batch_execute("ROLLBACK").expect("its own");
    let others = LockPool::new(other.pool.clone());
    let mut fastest = PAUSE;
    for _ in 0..5 {
        fastest = fastest.min(slot(&others, &semaphore).await);
    }
    // A request that is delayed waits for 50 ms at least.
    assert!(fastest < Duration::from_millis(40), "{fastest:?}");
    down.writer.batch_execute("ROLLBACK").expect("its own");
    down.down.store(false, Ordering::SeqCst);
    waiter.await.expect("no panic");
}

#[tokio::test]
async fn all_waiters_learn_that_the_pool_is_closed() {
    let database = Database::new();
    let locks = LockPool::new(database.pool.clone());
    let waiters = database.waiters("closed", &locks).await;
    database.pool.close();
    for waiter in waiters {
        let error = waiter.await.expect("no panic").expect_err("closed");
        let closed = matches!(error, Error::AsyncPool(AsyncPoolError::Closed));
        assert!(closed, "{error:?}");
    }
}
