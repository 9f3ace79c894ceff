//! Databases of another backend, to which an application connects by a wrapper of its own.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use diesel::r2d2::R2D2Connection;
use diesel_locks::Error;
use diesel_locks::prelude::*;

use super::Backend;
use super::backend::LockView;
use super::tables::{Slots, Tables};

pub(crate) mod connections;

use connections::Wraps;

/// The database of `B`, to which an application connects by `W`.
pub(crate) struct WithConnection<B, W> {
    database: B,
    wrapper: PhantomData<fn() -> W>,
}

impl<B: Backend, W> WithConnection<B, W> {
    fn of(database: B) -> Self {
        Self {
            database,
            wrapper: PhantomData,
        }
    }
}

impl<B, W> Backend for WithConnection<B, W>
where
    B: Backend,
    W: Wraps<B::Conn> + ObjectLockExt + SemaphoreExt + SequenceExt + TransactionExt,
    W: R2D2Connection + 'static,
{
    type Conn = W;

    const NAME: &'static str = B::NAME;
    const ONE_WRITER: bool = B::ONE_WRITER;
    const METHODS_NOTICE_ENDS: bool = B::METHODS_NOTICE_ENDS;
    const UNTRACKED: &'static [&'static str] = B::UNTRACKED;
    const UNTRACKED_SURVIVES: bool = B::UNTRACKED_SURVIVES;
    const SAVEPOINT_FREES_TRANSIENT: Option<bool> = B::SAVEPOINT_FREES_TRANSIENT;
    const SAVEPOINT_FREES_KEPT: Option<bool> = B::SAVEPOINT_FREES_KEPT;
    const SHARED: &'static str = B::SHARED;
    const NOW_US: &'static str = B::NOW_US;
    const LAST_INSERTED_ID: &'static str = B::LAST_INSERTED_ID;
    const NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID: bool = B::NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID;
    const COUNTING_LOCKS_FREE_SLOTS: bool = B::COUNTING_LOCKS_FREE_SLOTS;
    const LOST_SLOTS_STAY_LOCKED: bool = B::LOST_SLOTS_STAY_LOCKED;

    fn own_ids(first: i64) -> String {
        B::own_ids(first)
    }

    fn empty() -> Self {
        Self::of(B::empty())
    }

    fn url(&self) -> String {
        self.database.url()
    }

    fn connect_to(url: &str) -> W {
        W::wrap(B::connect_to(url))
    }

    fn prepare(conn: &mut W) {
        B::prepare(conn.inner());
    }

    fn sql(conn: &mut W, sql: &str) {
        B::sql(conn.inner(), sql);
    }

    fn try_sql(conn: &mut W, sql: &str) -> Result<(), Error> {
        B::try_sql(conn.inner(), sql)
    }

    fn end_untracked(conn: &mut W) {
        B::end_untracked(conn.inner());
    }

    fn sees_untracked_leases(conn: &mut W) -> bool {
        B::sees_untracked_leases(conn.inner())
    }

    fn try_number(conn: &mut W, sql: &str) -> Result<i64, Error> {
        B::try_number(conn.inner(), sql)
    }

    fn counter_for_update(conn: &mut W, id: i32) -> Result<i64, Error> {
        B::counter_for_update(conn.inner(), id)
    }

    fn refuses_old_snapshots(conn: &mut W) -> bool {
        B::refuses_old_snapshots(conn.inner())
    }

    fn disconnect_sessions(&self) {
        self.database.disconnect_sessions();
    }

    fn waiting(&self) -> Option<i64> {
        self.database.waiting()
    }

    fn lock_view(conn: &mut W) -> LockView {
        B::lock_view(conn.inner())
    }

    fn lock_objects_table(conn: &mut W) {
        B::lock_objects_table(conn.inner());
    }

    fn unlocked_slots(conn: &mut W, share: bool) -> Option<BTreeSet<(String, i32)>> {
        B::unlocked_slots(conn.inner(), share)
    }

    fn slots(conn: &mut W) -> Slots {
        B::slots(conn.inner())
    }

    fn tables(conn: &mut W) -> Tables {
        B::tables(conn.inner())
    }

    fn in_transaction<T>(
        conn: &mut W,
        work: impl FnOnce(&mut W) -> Result<T, Error>,
    ) -> Result<T, Error> {
        set_level::<B>(conn.inner(), "READ COMMITTED");
        let result = conn.transaction(work);
        set_level::<B>(conn.inner(), "REPEATABLE READ");
        result
    }

    fn abort_transaction(conn: &mut W, other: W) {
        B::abort_transaction(conn.inner(), other.into_inner());
    }

    fn read_only_to(url: &str) -> W {
        W::wrap(B::read_only_to(url))
    }

    fn set_repeatable_read(conn: &mut W) {
        B::set_repeatable_read(conn.inner());
    }

    fn session_limits(conn: &mut W) -> String {
        B::session_limits(conn.inner())
    }

    fn session(conn: &mut W) -> String {
        B::session(conn.inner())
    }

    fn set_short_lock_timeout(conn: &mut W) {
        B::set_short_lock_timeout(conn.inner());
    }

    fn set_session_limits(conn: &mut W) {
        B::set_session_limits(conn.inner());
    }

    fn writes(conn: &mut W) -> i64 {
        B::writes(conn.inner())
    }

    fn serializable(conn: &mut W) {
        B::serializable(conn.inner());
    }

    fn revert_last_migration(conn: &mut W) {
        B::revert_last_migration(conn.inner());
    }
}

/// Sets the level of the session on MySQL, where `lock_object` needs it.
fn set_level<B: Backend>(conn: &mut B::Conn, level: &str) {
    if B::ENGINE == "mysql" {
        B::sql(
            conn,
            &format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"),
        );
    }
}
