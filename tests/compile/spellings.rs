//! Spellings that a new user tries, and that compile.

use std::time::Duration;

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool, PoolError, PooledConnection};
use diesel_locks::migrations::POSTGRES;
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions, SlotRenewer, TransactionError};

type PgPool = Pool<ConnectionManager<PgConnection>>;

/// An application's error, which `?` makes from four types.
#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error("out of stock")]
    OutOfStock,
    #[error("database")]
    Diesel(#[from] diesel::result::Error),
    #[error("lock")]
    Locks(#[from] diesel_locks::Error),
    #[error("pool")]
    Pool(#[from] PoolError),
}

impl TransactionError for AppError {
    fn database_error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Diesel(error) => Some(error),
            Self::Locks(error) => Some(error),
            Self::OutOfStock | Self::Pool(_) => None,
        }
    }
}

type AppResult<T> = Result<T, AppError>;

/// Every way to say which error the closure returns, where `?` follows the call.
fn errors_of_closures(conn: &mut PgConnection) -> AppResult<()> {
    conn.with_object_lock("a", |conn| -> diesel_locks::Result<_> {
        diesel::sql_query("SELECT 1").execute(conn)?;
        Ok(())
    })?;
    conn.with_object_lock("a", |_| -> diesel_locks::Result<()> { Ok(()) })?;
    conn.with_object_lock("a", |_| -> diesel_locks::Result<_, AppError> {
        Err::<(), _>(AppError::OutOfStock)
    })?;
    conn.with_object_lock("a", |_| -> QueryResult<_> { Ok(()) })?;
    conn.with_object_lock("a", |_| -> AppResult<_> { Ok(()) })?;
    conn.with_object_lock("a", |_| Ok::<_, diesel_locks::Error>(()))?;
    conn.with_object_lock("a", |_| QueryResult::Ok(()))?;
    conn.with_object_lock::<_, diesel_locks::Error, _>("a", |_| Ok(()))?;
    conn.with_object_lock("a", |_| Ok(()))
        .map_err(AppError::Locks)?;
    let _: Result<(), diesel_locks::Error> = conn.with_object_lock("a", |_| Ok(()));
    // The type of another call.
    conn.with_object_lock("a", |conn| conn.lock_object("b"))?;
    conn.with_object_lock("a", |conn| diesel::sql_query("SELECT 1").execute(conn))?;
    Ok(())
}

/// The last expression of a function.
fn inferred(conn: &mut PgConnection, stock: u32) -> AppResult<u32> {
    conn.with_object_lock("a", |conn| {
        if stock == 0 {
            return Err(AppError::OutOfStock);
        }
        diesel::sql_query("SELECT 1").execute(conn)?;
        conn.lock_object("b")?;
        Ok(stock)
    })
}

fn boxed(conn: &mut PgConnection) -> Result<(), Box<dyn std::error::Error>> {
    conn.with_object_lock("a", |_| Ok(()))
}

fn anyhows(conn: &mut PgConnection) -> anyhow::Result<()> {
    conn.with_object_lock("a", |_| anyhow::Ok(()))?;
    conn.run_transaction(TransactionOptions::new(), |_| Ok(()))
}

fn other_closures(conn: &mut PgConnection) -> AppResult<()> {
    let timer = Semaphore::new("timer", 1);
    conn.try_with_object_lock("a", |_| -> diesel_locks::Result<_> { Ok(()) })?;
    conn.with_slot(&timer, Wait::No, |_| -> diesel_locks::Result<_> { Ok(()) })?;
    conn.try_with_slot(&timer, |_| -> diesel_locks::Result<_> { Ok(()) })?;
    let options = TransactionOptions::new();
    conn.run_transaction(options, |_| -> diesel_locks::Result<_> { Ok(()) })?;
    conn.run_transaction(options, |_| -> AppResult<_> { Ok(()) })?;
    conn.transaction(|conn| -> diesel_locks::Result<_> {
        conn.next_number(&Sequence::new("invoice"))?;
        Ok(())
    })?;
    Ok(())
}

fn ids(conn: &mut PgConnection, name: String) -> diesel_locks::Result<()> {
    let id = ObjectId::new("Bond", 7);
    conn.with_object_lock(&id, |_| QueryResult::Ok(()))?;
    conn.with_object_lock(id.clone(), |_| QueryResult::Ok(()))?;
    conn.with_object_lock(&name, |_| QueryResult::Ok(()))?;
    conn.with_object_lock(name.as_str(), |_| QueryResult::Ok(()))?;
    conn.with_object_lock(format!("Bond:{}", 7), |_| QueryResult::Ok(()))?;
    conn.with_object_lock(
        LockRequest::new(&id).wait(Wait::No),
        |_| QueryResult::Ok(()),
    )?;
    conn.with_object_lock([&id, &id], |_| QueryResult::Ok(()))?;
    conn.with_object_lock([id.clone(), id.clone()], |_| QueryResult::Ok(()))?;
    conn.with_object_lock(["a", "b"], |_| QueryResult::Ok(()))?;
    conn.with_object_lock(vec!["a", "b"], |_| QueryResult::Ok(()))?;
    conn.with_object_lock(vec![name, "b".to_owned()], |_| QueryResult::Ok(()))?;
    let several: Vec<_> = (1..9).map(|n| ObjectId::new("Bond", n)).collect();
    conn.with_object_lock(&several, |_| QueryResult::Ok(()))?;
    conn.with_object_lock(&several[1..], |_| QueryResult::Ok(()))?;
    conn.with_object_lock(several, |_| QueryResult::Ok(()))?;
    conn.with_object_lock(&[id.clone(), id], |_| QueryResult::Ok(()))?;
    let iterator = (1..9).map(|n| ObjectId::new("Bond", n));
    conn.with_object_lock(LockRequest::all(iterator).wait(Wait::No), |_| {
        QueryResult::Ok(())
    })?;
    conn.try_with_object_lock(["a", "b"], |_| QueryResult::Ok(()))?;
    conn.lock_object(["a", "b"])?;
    conn.try_lock_object(["a", "b"]).map(drop)
}

fn slots(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    let timer = Semaphore::new("timer", 1);
    let lease = LeaseOptions::new(Duration::from_secs(9));
    let mut slot = conn.acquire_slot(&timer, lease.clone(), Wait::Forever)?;
    conn.renew_slot(&mut slot, Duration::from_secs(9))?;
    conn.release_slot(&slot)?;
    conn.release_slot(slot)?;
    conn.register_semaphores([&timer])?;
    conn.register_semaphores([timer])
}

fn inspect(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    let options = ListOptions::new().name_prefix("a".to_owned()).limit(9);
    conn.semaphores(&options)?;
    conn.semaphores(&options.clone().name("timer"))?;
    conn.held_slots(&ListOptions::default())?;
    conn.held_slots(&ListOptions::new().name(Semaphore::new("timer", 1)))?;
    conn.sequences(&options.key_prefix("4"))?;
    conn.held_object_locks(9).map(drop)
}

/// With the name of the type that the function gets.
fn generic<C>(conn: &mut C) -> diesel_locks::Result<()>
where
    C: ObjectLockExt + SemaphoreExt + SequenceExt + TransactionExt,
{
    diesel_locks::migrate(conn)?;
    diesel_locks::run_migrations(conn, POSTGRES)?;
    conn.transaction(|conn| conn.lock_object("a"))
}

fn plain(conn: &mut PgConnection) -> diesel_locks::Result<()> {
    diesel_locks::migrate(conn)?;
    generic(conn)
}

/// A pooled connection is passed on as `&mut *conn`, or as `&mut conn` where the type is known.
fn pooled(pool: &PgPool) -> AppResult<()> {
    diesel_locks::migrate(&mut pool.get()?)?;
    diesel_locks::migrate(&mut *pool.get()?)?;
    diesel_locks::run_migrations(&mut pool.get()?, POSTGRES)?;
    diesel_locks::run_migrations(&mut *pool.get()?, POSTGRES)?;
    let mut conn: PooledConnection<ConnectionManager<PgConnection>> = pool.get()?;
    diesel_locks::assume_single_writer(&mut *conn)?;
    conn.with_object_lock("a", |conn: &mut PgConnection| inferred(conn, 1))?;
    plain(&mut conn)?;
    generic(&mut *conn)?;
    conn.transaction(|conn| conn.lock_object("a"))?;
    Ok(())
}

fn boxed_connection(connect: fn() -> Box<PgConnection>) -> diesel_locks::Result<()> {
    let mut conn = connect();
    conn.with_object_lock("a", |_| QueryResult::Ok(()))?;
    generic(&mut *conn)
}

fn renewer(pool: PgPool) -> AppResult<()> {
    let renewer = SlotRenewer::new(pool);
    let lease = LeaseOptions::new(Duration::from_secs(9));
    renewer.try_run(
        &Semaphore::new("timer", 1),
        &lease,
        |_| -> diesel_locks::Result<_> { Ok(()) },
    )?;
    Ok(())
}

/// Every engine has every method.
#[test]
fn spellings_compile() {
    let _: [fn(&mut PgConnection) -> diesel_locks::Result<()>; 4] =
        [plain, slots, inspect, generic];
    let _: [fn(&mut PgConnection) -> AppResult<()>; 2] = [errors_of_closures, other_closures];
    let _: fn(&mut MysqlConnection) -> diesel_locks::Result<()> = generic;
    let _: fn(&mut SqliteConnection) -> diesel_locks::Result<()> = generic;
    let _: fn(&mut PgConnection, String) -> diesel_locks::Result<()> = ids;
    let _ = (inferred, boxed, anyhows, pooled, boxed_connection, renewer);
}
