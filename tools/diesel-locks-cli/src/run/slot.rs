//! The slot of the command.

use std::time::Duration;

#[cfg(feature = "mysql")]
use diesel::MysqlConnection;
#[cfg(feature = "postgres")]
use diesel::PgConnection;
use diesel::SqliteConnection;
#[cfg(feature = "postgres")]
use diesel::r2d2::CustomizeConnection;
use diesel::r2d2::{Builder, ConnectionManager, Pool, R2D2Connection};
use diesel_locks::operation::sqlite::PrepareConnection;
use diesel_locks::{
    LeaseOptions, Semaphore, SemaphoreExt, SlotGuard, SlotRenewer, StopToken, Wait,
};

use crate::arguments::Run;
#[cfg(feature = "postgres")]
use crate::database::without_cache;
use crate::database::{AnyConnection, Database, Engine, LOCKED_TABLE};
use crate::failure::Failure;
use crate::operate::semaphore_named;

/// The semaphore with the number of permits that limits the command.
pub(super) fn semaphore(conn: &mut AnyConnection, options: &Run) -> Result<Semaphore, Failure> {
    let limit = if options.no_wait {
        LOCKED_TABLE
    } else {
        options.wait.unwrap_or(Duration::MAX)
    };
    let found = conn.within(limit, |conn| semaphore_named(conn, &options.semaphore))?;
    let registered = found.and_then(|it| it.permits);
    Ok(match (options.permits, registered) {
        (None, Some(_)) => Semaphore::registered(&options.semaphore),
        (permits, _) => Semaphore::new(&options.semaphore, permits.unwrap_or(1)),
    })
}

/// Acquires a slot, whose lease is renewed until the guard is dropped.
pub(super) fn acquire(
    database: &Database,
    semaphore: &Semaphore,
    options: &Run,
    stop: &StopToken,
) -> Result<SlotGuard, Failure> {
    match database.engine {
        #[cfg(feature = "postgres")]
        Engine::Postgres => {
            let prepared = Pool::builder().connection_customizer(Box::new(WithoutCache));
            acquire_on::<PgConnection>(prepared, database, semaphore, options, stop)
        }
        #[cfg(feature = "mysql")]
        Engine::Mysql => {
            acquire_on::<MysqlConnection>(Pool::builder(), database, semaphore, options, stop)
        }
        Engine::Sqlite => {
            let prepared = Pool::builder().connection_customizer(Box::new(PrepareConnection));
            acquire_on::<SqliteConnection>(prepared, database, semaphore, options, stop)
        }
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        _ => unreachable!("from_url has refused it"),
    }
}

#[cfg(feature = "postgres")]
#[derive(Debug)]
struct WithoutCache;

#[cfg(feature = "postgres")]
impl CustomizeConnection<PgConnection, diesel::r2d2::Error> for WithoutCache {
    fn on_acquire(&self, conn: &mut PgConnection) -> Result<(), diesel::r2d2::Error> {
        without_cache(conn);
        Ok(())
    }
}

fn acquire_on<C: SemaphoreExt + R2D2Connection + Send + 'static>(
    pool: Builder<ConnectionManager<C>>,
    database: &Database,
    semaphore: &Semaphore,
    options: &Run,
    stop: &StopToken,
) -> Result<SlotGuard, Failure> {
    // Two: a renewal that gets no answer is sent again on another one.
    let pool = pool
        .max_size(2)
        .min_idle(Some(0))
        .build_unchecked(ConnectionManager::new(&database.url));
    let mut lease = LeaseOptions::new(options.lease).hold_at_least(options.hold_at_least);
    if let Some(holder) = &options.holder {
        lease = lease.holder(holder);
    }
    let wait = match options.wait {
        _ if options.no_wait => Wait::No,
        None => Wait::Forever,
        Some(limit) => Wait::AtMost(limit),
    };
    Ok(SlotRenewer::new(pool)
        .stopped_by(stop)
        .acquire(semaphore, lease, wait)?)
}
