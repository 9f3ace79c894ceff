//! Shows the held object locks on PostgreSQL, by the server's table of locks.
//!
//! A kept lock is an advisory lock, whose key is in the row of its id. A transient lock is an uncommitted row, which other
//! sessions can't read: its transaction has a lock on the table and a number, for whose end the waiters wait. The query of
//! a waiter, and the name of the holder's session, may contain the id.

use std::collections::{HashMap, HashSet};

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

use crate::Error;
use crate::engine::dialect::Dialect;
use crate::engine::ending::autocommit_retry;
use crate::engine::literal::{push_for_postgres, read_from_postgres};
use crate::engine::postgres::slots::{begin_nowait, end_nowait};
use crate::engine::postgres::sql;
use crate::engine::tables::diesel_locks_objects::{self, dsl};
use crate::link::raw_sql::statement;
use crate::link::{Link, depth};
use crate::values::held_object_lock::{HeldObjectLock, LockWaiter, SessionRow, SqlSession};

/// In the query of each session that waits for an object lock.
const FUNCTIONS: &str = "diesel_locks_";

/// In the query of a session that waits for one lock, or for several or a shared one, before the id.
const ACQUIRE_ONE: &str = "diesel_locks_acquire_one(";
const ACQUIRE_SEVERAL: &str = "diesel_locks_acquire(ARRAY[";

/// In an open transaction the server reads the sessions once, until this is called, which needs no privilege.
const FORGET_SESSIONS: &str = "SELECT pg_stat_clear_snapshot()";

/// In place of the query of another user's session.
const HIDDEN: &str = "<insufficient privilege>";

statement! {
    Pg;
    /// The advisory locks of kept objects; and the numbers of the transactions that have written to the table of objects,
    /// with the sessions that wait for them. Raw, because the DSL does not know the server's own tables. It locks nothing:
    /// `regclass` only reads the name.
    ServerLocks {} -> (
        Text, Nullable<BigInt>, Nullable<BigInt>, Bool, Bool, SqlSession<Text>, Nullable<Text>,
    ),
    |self| {
        "WITH locks AS MATERIALIZED (SELECT * FROM pg_locks), \
         ours AS MATERIALIZED (SELECT oid AS database, 'diesel_locks_objects'::regclass::oid AS relation \
         FROM pg_database WHERE datname = current_database()) \
         SELECT locks.virtualtransaction, \
         CASE locks.locktype WHEN 'advisory' THEN locks.objid::bigint END, locks.transactionid::text::bigint, \
         locks.granted, locks.mode = 'ShareLock', session.pid::bigint, session.usename::text, \
         coalesce(session.client_hostname, host(session.client_addr)), session.application_name, \
         (extract(epoch FROM session.xact_start) * 1000000)::bigint, \
         (extract(epoch FROM locks.waitstart) * 1000000)::bigint, "; {Pg::NOW};
        ", session.query FROM ours JOIN locks ON \
         locks.locktype = 'advisory' AND locks.database = ours.database AND locks.classid = ours.relation \
         AND locks.objsubid = 2 \
         OR locks.locktype = 'transactionid' AND locks.virtualtransaction IN (SELECT writer.virtualtransaction \
         FROM locks AS writer, ours AS written WHERE writer.locktype = 'relation' \
         AND writer.database = written.database AND writer.relation = written.relation \
         AND writer.mode = 'RowExclusiveLock' AND writer.granted) \
         LEFT JOIN pg_stat_activity AS session ON session.pid = locks.pid"
    }

    InRecovery {} -> Bool,
    |self| { "SELECT pg_is_in_recovery()" }
}

#[derive(Queryable)]
struct ServerLock {
    /// Identifies the transaction, also one that is prepared and has no session.
    transaction: String,
    key: Option<i64>,
    /// The number of a transaction: its own if granted, otherwise that for which it waits.
    number: Option<i64>,
    granted: bool,
    /// For transaction numbers, each waiter's.
    shared: bool,
    #[diesel(deserialize_as = SessionRow)]
    waiter: LockWaiter,
    query: Option<String>,
}

impl ServerLock {
    /// Whether the session may wait for an object lock, and not for a row of the application. Without `track_activities` the query
    /// is empty.
    fn may_wait_for_object(&self) -> bool {
        self.query
            .as_deref()
            .is_none_or(|query| query.is_empty() || query == HIDDEN || query.contains(FUNCTIONS))
    }

    fn requested(&self) -> Option<String> {
        let query = self.query.as_deref()?;
        if let Some((_, arguments)) = query.split_once(ACQUIRE_ONE) {
            return read_from_postgres(arguments);
        }
        let (ids, _) = query.split_once(ACQUIRE_SEVERAL)?.1.split_once(']')?;
        let id = read_from_postgres(ids)?;
        // Of several it is not known for which one it waits.
        let mut alone = String::new();
        push_for_postgres(&mut alone, &id);
        (alone == ids).then_some(id)
    }
}

pub(crate) async fn held_locks(
    conn: &mut impl Link<Db = Pg>,
) -> Result<Vec<HeldObjectLock>, Error> {
    if depth::depth(conn.status())? > 0 {
        conn.batch(FORGET_SESSIONS).await?;
    }
    let rows: Vec<ServerLock> = autocommit_retry!(conn, conn.load(ServerLocks {}).await)?;
    if rows.is_empty() && conn.get_result(InRecovery {}).await? {
        return Err(Error::LocksNotShown {
            engine: "PostgreSQL",
            reason: "this server is a hot standby, which has no object locks, and slots as of its last replay: ask the primary",
        });
    }
    // The server shows the keys as numbers without a sign.
    let keys: HashSet<i32> = rows.iter().filter_map(key).collect();
    let ids = if keys.is_empty() {
        Some(HashMap::new())
    } else {
        ids(conn, &keys.into_iter().collect::<Vec<_>>()).await?
    };
    Ok(combine(&rows, ids.as_ref()))
}

fn key(lock: &ServerLock) -> Option<i32> {
    let key = u32::try_from(lock.key?).ok()?;
    Some(i32::from_ne_bytes(key.to_ne_bytes()))
}

/// The ids of keys that are committed. Returns `None` while another session has locked the whole table. The savepoint is rolled
/// back, so that an open transaction keeps its `lock_timeout` and no lock on the table.
async fn ids(
    conn: &mut impl Link<Db = Pg>,
    keys: &[i32],
) -> Result<Option<HashMap<i32, String>>, Error> {
    let begun = begin_nowait(conn).await?;
    let of_keys = diesel_locks_objects::table
        .filter(dsl::kept)
        .filter(dsl::advisory_key.eq_any(keys))
        .select((dsl::advisory_key, dsl::id));
    let read = conn.load(of_keys).await;
    let ids: Option<Vec<(i32, String)>> = end_nowait(conn, begun, read).await?;
    Ok(ids.map(|ids| ids.into_iter().collect()))
}

fn combine(rows: &[ServerLock], ids: Option<&HashMap<i32, String>>) -> Vec<HeldObjectLock> {
    let mut locks = Locks::default();
    let mut of_key = HashMap::new();
    let (granted, waiting): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.granted);
    for row in &granted {
        if let Some(key) = key(row) {
            let id = ids.and_then(|ids| ids.get(&key)).cloned();
            if id.is_none() && ids.is_some() {
                let transaction = row.transaction.clone();
                *locks.uncommitted.entry(transaction).or_default() += 1;
            }
            let holders: &mut Vec<usize> = of_key.entry(key).or_default();
            holders.push(locks.lock(row, id));
        }
    }
    for row in &waiting {
        for position in key(row)
            .and_then(|key| of_key.get(&key))
            .into_iter()
            .flatten()
        {
            locks.held[*position].waiters.push(row.waiter.clone());
        }
    }
    // Those for which a session waits that inserts the same row.
    let numbered = granted.iter().filter_map(|row| Some((row.number?, *row)));
    let of_number: HashMap<i64, &ServerLock> = numbered.collect();
    for row in &waiting {
        if row.may_wait_for_object()
            && let Some(holder) = row.number.and_then(|number| of_number.get(&number))
        {
            let position = locks.waited_for(holder, row.requested());
            locks.held[position].waiters.push(row.waiter.clone());
        }
    }
    // The other transactions that have written to the table, unless they wait for an object: they may have found the row
    // of another one before they could insert theirs.
    let waiting: HashSet<&str> = waiting
        .iter()
        .filter(|row| row.may_wait_for_object())
        .map(|row| row.transaction.as_str())
        .collect();
    for row in of_number.values() {
        let transaction = row.transaction.as_str();
        if waiting.contains(transaction) {
            continue;
        }
        let name = row.waiter.session.application.iter();
        for id in name.flat_map(|name| sql::named_ids(name)) {
            locks.lock(row, Some(id.to_owned()));
        }
        if !locks.of_id.keys().any(|(holder, _)| holder == transaction) {
            locks.lock(row, None);
        }
    }
    locks.held
}

#[derive(Default)]
struct Locks {
    held: Vec<HeldObjectLock>,
    of_id: HashMap<(String, Option<String>), usize>,
    /// How many kept locks a transaction has whose rows are not committed.
    uncommitted: HashMap<String, usize>,
}

impl Locks {
    /// [`lock`](Self::lock) for a session that waits until the transaction has inserted or deleted the row of this id. It
    /// may be the row of the transaction's only kept lock without an id.
    fn waited_for(&mut self, holder: &ServerLock, id: Option<String>) -> usize {
        let transaction = holder.transaction.clone();
        let (unnamed, named) = ((transaction.clone(), None), (transaction, id));
        if named.1.is_some()
            && self.uncommitted.get(&named.0) == Some(&1)
            && !self.of_id.contains_key(&named)
            && let Some(position) = self.of_id.remove(&unnamed)
        {
            self.held[position].id.clone_from(&named.1);
            self.of_id.insert(named, position);
            return position;
        }
        self.lock(holder, named.1)
    }

    fn lock(&mut self, holder: &ServerLock, id: Option<String>) -> usize {
        let transaction = holder.transaction.clone();
        let is_shared = holder.key.is_some() && holder.shared;
        let held = &mut self.held;
        let position = *self
            .of_id
            .entry((transaction, id.clone()))
            .or_insert_with(|| {
                held.push(HeldObjectLock {
                    id,
                    is_shared,
                    holder: holder.waiter.session.clone(),
                    waiters: Vec::new(),
                });
                held.len() - 1
            });
        // A session may hold both.
        self.held[position].is_shared &= is_shared;
        position
    }
}
