//! A worker's connections.

use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use torture_history::workload_spec;

use super::failed_statement::Statements;
use crate::job::Job;
use crate::sabotage::Sabotage;
use crate::store::Store;

pub(crate) type Connections<C> = Pool<ConnectionManager<C>>;

/// Sets the session's limits, and observes its statements.
#[derive(Debug)]
struct Settings(String);

impl<C: Store> CustomizeConnection<C, diesel::r2d2::Error> for Settings {
    fn on_acquire(&self, conn: &mut C) -> Result<(), diesel::r2d2::Error> {
        conn.set_instrumentation(Statements::new());
        conn.batch_execute(&self.0)
            .map_err(diesel::r2d2::Error::QueryError)
    }
}

/// What each session begins with.
pub(super) fn settings<C: Store>(job: &Job) -> String {
    let mut settings = C::settings();
    settings.push_str(match job.sabotage {
        // What `assume_single_writer` does.
        Some(Sabotage::NoDetection) => "; SET @diesel_locks_one_writer = 1",
        Some(Sabotage::Asynchronous) => "; SET synchronous_commit = local",
        _ => "",
    });
    settings
}

/// One connection for each thread, one for the renewer of guards, and some to spare: for second sessions, and for
/// asynchronous threads that ask for a lock whose future was dropped.
pub(crate) fn pool<C: Store>(job: &Job) -> Connections<C> {
    Pool::builder()
        .max_size(job.threads + job.async_threads + 4)
        .test_on_check_out(true)
        .connection_timeout(workload_spec::POOL_TIMEOUT)
        .connection_customizer(Box::new(Settings(settings::<C>(job))))
        .build_unchecked(ConnectionManager::new(&job.url))
}
