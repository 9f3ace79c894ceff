//! The trait `AsyncInspectExt`: lists of what is held, on a connection of diesel-async.

use crate::cancel::unless_dropped;
use crate::engine::HasAsyncEngine;
use crate::inspect::list_options::{self, ListOptions};
use crate::inspect::lists;
use crate::inspect::object_lock::{HeldObjectLock, most_urgent};
use crate::object_lock::backend::ObjectLockBackend;
use crate::{Error, SemaphoreInfo, SequenceInfo, SlotInfo};

/// The methods of [`InspectExt`](crate::InspectExt) on connections of diesel-async.
///
/// What the methods do, what they return and their errors are those of the blocking methods of the same names. Each returns
/// a future that is `Send`. A future may be dropped at every `.await`: see
/// [Dropped futures](crate::operation::dropped_futures).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_async::AsyncConnection;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
/// use diesel_locks::{AsyncInspectExt, ListOptions};
///
/// let mut conn = SyncConnectionWrapper::<SqliteConnection>::establish(":memory:").await?;
/// diesel_locks::migrate_async(&mut conn).await?;
/// for sequence in conn.sequences(&ListOptions::new()).await? {
///     println!("{} {:?} {}", sequence.name, sequence.key, sequence.last_number);
/// }
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no asynchronous engine for `{Self}`",
    label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the engine's \
             feature is off",
    note = "pass `&mut *conn` for a pooled connection",
    note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
)]
#[doc(alias("admin", "monitor", "dashboard", "pg_locks", "operator"))]
pub trait AsyncInspectExt: HasAsyncEngine {
    /// Lists the object locks that transactions hold, with those that wait for them. Behaves as
    /// [`InspectExt::held_object_locks`](crate::InspectExt::held_object_locks).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn held_object_locks(
        &mut self,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<HeldObjectLock>, Error>> + Send + '_ {
        async move {
            list_options::validate_limit(limit)?;
            let held = unless_dropped!(self, |conn| Self::LockEngine::held_locks(conn));
            Ok(most_urgent(
                held?,
                usize::try_from(limit).unwrap_or(usize::MAX),
            ))
        }
    }

    /// Lists the semaphores. Behaves as [`InspectExt::semaphores`](crate::InspectExt::semaphores).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn semaphores<'c>(
        &'c mut self,
        options: &'c ListOptions,
    ) -> impl Future<Output = Result<Vec<SemaphoreInfo>, Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| lists::semaphores(conn, options)) }
    }

    /// Lists the held slots. Behaves as [`InspectExt::held_slots`](crate::InspectExt::held_slots).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn held_slots<'c>(
        &'c mut self,
        options: &'c ListOptions,
    ) -> impl Future<Output = Result<Vec<SlotInfo>, Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| lists::held_slots(conn, options)) }
    }

    /// Lists the sequences. Behaves as [`InspectExt::sequences`](crate::InspectExt::sequences).
    ///
    /// # Errors
    ///
    /// As the blocking method.
    fn sequences<'c>(
        &'c mut self,
        options: &'c ListOptions,
    ) -> impl Future<Output = Result<Vec<SequenceInfo>, Error>> + Send + 'c {
        async move { unless_dropped!(self, |conn| lists::sequences(conn, options)) }
    }
}

#[diagnostic::do_not_recommend]
impl<C: HasAsyncEngine> AsyncInspectExt for C {}
