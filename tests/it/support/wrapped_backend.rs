//! Databases of another backend, reached in another way: as an unprivileged user, through a pooler.

use std::collections::BTreeSet;

use diesel_locks::Error;

use super::Backend;
use super::backend::LockView;
use super::tables::{Slots, Tables};

/// A way to the databases of `To`.
pub(crate) trait Wrapper: Sized + Send + Sync + 'static {
    type Inner: Backend;

    /// As the subprocess knows it.
    const NAME: &'static str;

    /// Makes the way, when the database has been migrated by its owner.
    fn open(database: &Self::Inner) -> Self;

    fn url(&self) -> String;

    /// How many sessions can wait in the server at the same time: others wait on the way.
    const SESSIONS: i64 = i64::MAX;

    /// Ends all sessions of the database.
    fn disconnect_sessions(&self, database: &Self::Inner) {
        database.disconnect_sessions();
    }

    /// Establishes a connection.
    fn connect(url: &str) -> <Self::Inner as Backend>::Conn {
        Self::Inner::connect_to(url)
    }

    /// As [`Backend::try_number`].
    fn try_number(conn: &mut <Self::Inner as Backend>::Conn, sql: &str) -> Result<i64, Error> {
        Self::Inner::try_number(conn, sql)
    }

    /// What an application does to each of its connections.
    fn prepare(conn: &mut <Self::Inner as Backend>::Conn) {
        let _ = conn;
    }
}

/// A [`Backend`] that is another one for all but the way to it.
pub(crate) struct WrappedBackend<W: Wrapper> {
    /// The first to be dropped: a role can't be dropped before the database in which it has privileges.
    pub(crate) database: W::Inner,
    pub(crate) wrapper: W,
}

impl<W: Wrapper> Backend for WrappedBackend<W> {
    type Conn = <W::Inner as Backend>::Conn;

    const NAME: &'static str = W::NAME;
    const ENGINE: &'static str = W::Inner::ENGINE;
    const ONE_WRITER: bool = W::Inner::ONE_WRITER;
    const METHODS_NOTICE_ENDS: bool = W::Inner::METHODS_NOTICE_ENDS;
    const UNTRACKED: &'static [&'static str] = W::Inner::UNTRACKED;
    const UNTRACKED_SURVIVES: bool = W::Inner::UNTRACKED_SURVIVES;
    const SAVEPOINT_FREES_TRANSIENT: Option<bool> = W::Inner::SAVEPOINT_FREES_TRANSIENT;
    const SAVEPOINT_FREES_KEPT: Option<bool> = W::Inner::SAVEPOINT_FREES_KEPT;
    const SHARED: &'static str = W::Inner::SHARED;
    const NOW_US: &'static str = W::Inner::NOW_US;
    const LAST_INSERTED_ID: &'static str = W::Inner::LAST_INSERTED_ID;
    const NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID: bool =
        W::Inner::NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID;
    const COUNTING_LOCKS_FREE_SLOTS: bool = W::Inner::COUNTING_LOCKS_FREE_SLOTS;
    const LOST_SLOTS_STAY_LOCKED: bool = W::Inner::LOST_SLOTS_STAY_LOCKED;
    const STATEMENTS_PER_LOOK: u32 = W::Inner::STATEMENTS_PER_LOOK;

    fn own_ids(first: i64) -> String {
        W::Inner::own_ids(first)
    }

    fn empty() -> Self {
        let database = W::Inner::empty();
        let wrapper = W::open(&database);
        Self { database, wrapper }
    }

    fn new() -> Self {
        let database = W::Inner::new();
        let wrapper = W::open(&database);
        Self { database, wrapper }
    }

    fn url(&self) -> String {
        self.wrapper.url()
    }

    fn connect_to(url: &str) -> Self::Conn {
        let mut conn = W::connect(url);
        W::prepare(&mut conn);
        conn
    }

    fn prepare(conn: &mut Self::Conn) {
        W::Inner::prepare(conn);
        W::prepare(conn);
    }

    fn sql(conn: &mut Self::Conn, sql: &str) {
        W::Inner::sql(conn, sql);
    }

    fn try_sql(conn: &mut Self::Conn, sql: &str) -> Result<(), Error> {
        W::Inner::try_sql(conn, sql)
    }

    fn end_untracked(conn: &mut Self::Conn) {
        W::Inner::end_untracked(conn);
    }

    fn sees_untracked_leases(conn: &mut Self::Conn) -> bool {
        W::Inner::sees_untracked_leases(conn)
    }

    fn try_number(conn: &mut Self::Conn, sql: &str) -> Result<i64, Error> {
        W::try_number(conn, sql)
    }

    fn counter_for_update(conn: &mut Self::Conn, id: i32) -> Result<i64, Error> {
        W::Inner::counter_for_update(conn, id)
    }

    fn refuses_old_snapshots(conn: &mut Self::Conn) -> bool {
        W::Inner::refuses_old_snapshots(conn)
    }

    fn disconnect_sessions(&self) {
        self.wrapper.disconnect_sessions(&self.database);
    }

    fn waiting(&self) -> Option<i64> {
        self.database.waiting()
    }

    fn await_waiting(&self, sessions: i64) {
        self.database.await_waiting(sessions.min(W::SESSIONS));
    }

    fn unlocked_slots(conn: &mut Self::Conn, share: bool) -> Option<BTreeSet<(String, i32)>> {
        W::Inner::unlocked_slots(conn, share)
    }

    fn slots(conn: &mut Self::Conn) -> Slots {
        W::Inner::slots(conn)
    }

    fn tables(conn: &mut Self::Conn) -> Tables {
        W::Inner::tables(conn)
    }

    fn in_transaction<T>(
        conn: &mut Self::Conn,
        work: impl FnOnce(&mut Self::Conn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        W::Inner::in_transaction(conn, work)
    }

    fn lock_view(conn: &mut Self::Conn) -> LockView {
        W::Inner::lock_view(conn)
    }

    fn lock_objects_table(conn: &mut Self::Conn) {
        W::Inner::lock_objects_table(conn);
    }

    fn abort_transaction(conn: &mut Self::Conn, other: Self::Conn) {
        W::Inner::abort_transaction(conn, other);
    }

    fn read_only_to(url: &str) -> Self::Conn {
        let mut conn = W::Inner::read_only_to(url);
        W::prepare(&mut conn);
        conn
    }

    fn set_repeatable_read(conn: &mut Self::Conn) {
        W::Inner::set_repeatable_read(conn);
    }

    fn session_limits(conn: &mut Self::Conn) -> String {
        W::Inner::session_limits(conn)
    }

    fn session(conn: &mut Self::Conn) -> String {
        W::Inner::session(conn)
    }

    fn set_short_lock_timeout(conn: &mut Self::Conn) {
        W::Inner::set_short_lock_timeout(conn);
    }

    fn set_session_limits(conn: &mut Self::Conn) {
        W::Inner::set_session_limits(conn);
    }

    fn writes(conn: &mut Self::Conn) -> i64 {
        W::Inner::writes(conn)
    }

    fn serializable(conn: &mut Self::Conn) {
        W::Inner::serializable(conn);
    }

    fn revert_last_migration(conn: &mut Self::Conn) {
        W::Inner::revert_last_migration(conn);
    }
}
