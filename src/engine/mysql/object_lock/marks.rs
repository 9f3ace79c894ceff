//! Reads and sets the marks by which a waiting writer keeps later readers out.

use std::time::Instant;

use diesel::mysql::Mysql;

use super::{GRACE_MS, PROBE_BATCH, is_end_of};
use crate::Error;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::object_lock_sql as sql;
use crate::engine::mysql::session::untracked;
use crate::engine::mysql::sql::{BEGIN, ROLLBACK};
use crate::engine::tables::{Named, WANTED_US};
use crate::error::classify::ErrorClass;
use crate::link::{Link, depth};
use crate::rt::caught;
use crate::values::lock_request::Request;

/// The longest message that marks objects: the servers limit it (`max_allowed_packet`).
const LONGEST_WANT: usize = 1024 * 1024;

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    /// Begins a transaction, unless another session wants the exclusive lock of an object whose shared lock is requested, or
    /// has locked the table of marks.
    pub(super) async fn begin_unless_wanted(&mut self, request: &Request) -> Result<bool, Error> {
        if request.shared.is_empty() {
            self.begin_by(&BEGIN).await?;
            return Ok(true);
        }
        let message = sql::begin_unless_wanted(&request.shared);
        loop {
            let started = Instant::now();
            let begun = caught(self.0.begin(&message)).await;
            let Err(error) = depth::break_if_panicked(self.0.status(), begun) else {
                return Ok(true);
            };
            let failure = self.with_errno(untracked(error)?).await;
            self.restore_by_text(&ROLLBACK).await?;
            match failure.number {
                Some(sql::MANY_ROWS) => return Ok(false),
                _ if is_end_of(&failure, GRACE_MS, started.elapsed()) => return Ok(false),
                // Galera may answer with the end of the transaction before.
                _ if failure.is_retryable() => {}
                // A session with `max_error_count = 0` has no numbers.
                None if failure.class == ErrorClass::Other => {
                    let ids: Vec<_> = request.shared.iter().map(|id| Named(id.as_str())).collect();
                    let wanted: i64 = self.get_result(sql::count_wanted(&ids)).await?;
                    if wanted > 0 {
                        return Ok(false);
                    }
                    self.begin_by(&BEGIN).await?;
                    return Ok(true);
                }
                _ => return Err(failure.into()),
            }
        }
    }

    /// Has readers that come now wait until another attempt of this request, if readers alone hold what it wants. Has no effect
    /// after a deadlock and if another session has locked a table, as the next attempt repeats it.
    pub(crate) async fn want_on_server(&mut self, request: &Request) -> Result<(), Error> {
        let message = sql::want(request, WANTED_US);
        if request.ids.len() > PROBE_BATCH || message.len() > LONGEST_WANT {
            return Ok(());
        }
        let started = Instant::now();
        let marked = caught(self.0.batch(&message)).await;
        let Err(error) = depth::break_if_panicked(self.0.status(), marked) else {
            return Ok(());
        };
        let failure = self.with_errno(untracked(error)?).await;
        self.restore_by_text(&ROLLBACK).await?;
        if is_end_of(&failure, GRACE_MS, started.elapsed()) || failure.is_retryable() {
            return Ok(());
        }
        Err(failure.into())
    }
}
