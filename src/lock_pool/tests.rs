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
use crate::{AsyncLockPool, Error, Semaphore, Wait};

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
    async fn waiters(&self, name: &str, locks: &AsyncLockPool<Pool<Conn>>) -> Vec<Waiter> {
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
    let locks = AsyncLockPool::new(database.pool.clone());
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

#[tokio::test]
async fn all_waiters_learn_that_the_pool_is_closed() {
    let database = Database::new();
    let locks = AsyncLockPool::new(database.pool.clone());
    let waiters = database.waiters("closed", &locks).await;
    database.pool.close();
    for waiter in waiters {
        let error = waiter.await.expect("no panic").expect_err("closed");
        let closed = matches!(error, Error::AsyncPool(AsyncPoolError::Closed));
        assert!(closed, "{error:?}");
    }
}
