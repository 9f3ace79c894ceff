//! Databases of another backend, reached in another way: as an unprivileged user, through a pooler.

use std::collections::BTreeSet;

use diesel_locks::Error;

use super::Backend;
use super::tables::{Slots, Tables};

/// A way to the databases of `To`.
pub(crate) trait Way: Sized + Send + Sync + 'static {
    type To: Backend;

    /// As the peer process knows it.
    const NAME: &'static str;

    /// Makes the way, when the database has been migrated by its owner.
    fn open(database: &Self::To) -> Self;

    fn url(&self) -> String;

    /// How many sessions can wait in the server at the same time: others wait on the way.
    const SESSIONS: i64 = i64::MAX;

    /// Ends all sessions of the database's.
    fn cut(&self, database: &Self::To) {
        database.cut();
    }

    /// What an application does to each of its connections.
    fn prepare(conn: &mut <Self::To as Backend>::Conn) {
        let _ = conn;
    }
}

/// A [`Backend`] that is another one for all but the way to it.
pub(crate) struct Via<W: Way> {
    /// The first to be dropped: a role can't be before the database in which it has rights.
    pub(crate) database: W::To,
    pub(crate) way: W,
}

impl<W: Way> Backend for Via<W> {
    type Conn = <W::To as Backend>::Conn;

    const NAME: &'static str = W::NAME;
    const ENGINE: &'static str = W::To::ENGINE;
    const ONE_WRITER: bool = W::To::ONE_WRITER;
    const SAVEPOINT_FREES_TRANSIENT: Option<bool> = W::To::SAVEPOINT_FREES_TRANSIENT;
    const SAVEPOINT_FREES_KEPT: Option<bool> = W::To::SAVEPOINT_FREES_KEPT;
    const SHARED: &'static str = W::To::SHARED;
    const NOW_US: &'static str = W::To::NOW_US;
    const LAST_INSERTED_ID: &'static str = W::To::LAST_INSERTED_ID;
    const NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID: bool =
        W::To::NEW_KEPT_ROW_CHANGES_LAST_INSERTED_ID;
    const COUNTING_LOCKS_FREE_SLOTS: bool = W::To::COUNTING_LOCKS_FREE_SLOTS;
    const LOST_SLOTS_STAY_LOCKED: bool = W::To::LOST_SLOTS_STAY_LOCKED;

    fn own_ids(first: i64) -> String {
        W::To::own_ids(first)
    }

    fn empty() -> Self {
        let database = W::To::empty();
        let way = W::open(&database);
        Self { database, way }
    }

    fn new() -> Self {
        let database = W::To::new();
        let way = W::open(&database);
        Self { database, way }
    }

    fn url(&self) -> String {
        self.way.url()
    }

    fn connect_to(url: &str) -> Self::Conn {
        let mut conn = W::To::connect_to(url);
        W::prepare(&mut conn);
        conn
    }

    fn prepare(conn: &mut Self::Conn) {
        W::To::prepare(conn);
        W::prepare(conn);
    }

    fn sql(conn: &mut Self::Conn, sql: &str) {
        W::To::sql(conn, sql);
    }

    fn try_sql(conn: &mut Self::Conn, sql: &str) -> Result<(), Error> {
        W::To::try_sql(conn, sql)
    }

    fn try_number(conn: &mut Self::Conn, sql: &str) -> Result<i64, Error> {
        W::To::try_number(conn, sql)
    }

    fn counter_for_update(conn: &mut Self::Conn, id: i32) -> Result<i64, Error> {
        W::To::counter_for_update(conn, id)
    }

    fn refuses_old_snapshots(conn: &mut Self::Conn) -> bool {
        W::To::refuses_old_snapshots(conn)
    }

    fn cut(&self) {
        self.way.cut(&self.database);
    }

    fn waiting(&self) -> Option<i64> {
        self.database.waiting()
    }

    fn await_waiting(&self, sessions: i64) {
        self.database.await_waiting(sessions.min(W::SESSIONS));
    }

    fn unlocked_slots(conn: &mut Self::Conn, share: bool) -> Option<BTreeSet<(String, i32)>> {
        W::To::unlocked_slots(conn, share)
    }

    fn slots(conn: &mut Self::Conn) -> Slots {
        W::To::slots(conn)
    }

    fn tables(conn: &mut Self::Conn) -> Tables {
        W::To::tables(conn)
    }

    fn in_transaction<T>(
        conn: &mut Self::Conn,
        work: impl FnOnce(&mut Self::Conn) -> Result<T, Error>,
    ) -> Result<T, Error> {
        W::To::in_transaction(conn, work)
    }

    fn give_up(conn: &mut Self::Conn, other: Self::Conn) {
        W::To::give_up(conn, other);
    }

    fn read_only_to(url: &str) -> Self::Conn {
        let mut conn = W::To::read_only_to(url);
        W::prepare(&mut conn);
        conn
    }

    fn keep_to_snapshots(conn: &mut Self::Conn) {
        W::To::keep_to_snapshots(conn);
    }

    fn limits(conn: &mut Self::Conn) -> String {
        W::To::limits(conn)
    }

    fn session(conn: &mut Self::Conn) -> String {
        W::To::session(conn)
    }

    fn wait_shortly(conn: &mut Self::Conn) {
        W::To::wait_shortly(conn);
    }

    fn set_limits(conn: &mut Self::Conn) {
        W::To::set_limits(conn);
    }

    fn writes(conn: &mut Self::Conn) -> i64 {
        W::To::writes(conn)
    }

    fn serializable(conn: &mut Self::Conn) {
        W::To::serializable(conn);
    }

    fn revert(conn: &mut Self::Conn) {
        W::To::revert(conn);
    }
}
