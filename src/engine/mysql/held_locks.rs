//! Shows the held object locks on MySQL, by `performance_schema`, and on MariaDB, by `information_schema`.
//!
//! A lock is that of InnoDB on the index record of the id. MySQL shows all of them, MariaDB those for which a session
//! waits. Sessions that wait to insert the same row queue by a named lock, which MySQL shows too.

use std::collections::{HashMap, HashSet};

use diesel::mysql::Mysql;
use diesel::prelude::Queryable;
use diesel::sql_types::{BigInt, Binary, Nullable, Unsigned};

use crate::Error;
use crate::engine::dialect::Dialect;
use crate::engine::mysql::MysqlEngine;
use crate::engine::mysql::execute::{Bytes, MysqlError};
use crate::engine::mysql::object_lock_sql::{NAMED_LOCK, NAMED_LOCK_END};
use crate::engine::mysql::sql::{ANY_SIZE, ANY_SIZE_HINT, EVERY_ROW};
use crate::engine::tables::Name;
use crate::link::Link;
use crate::link::raw_sql::statement;
use crate::values::held_object_lock::{
    HeldObjectLock, LockSession, LockWaiter, SessionRow, SqlSession,
};

/// Stands before a time of `information_schema`, and [`SYSTEM_TIME_END`] after it. Both convert it from the time zone of the server's
/// system to microseconds since 1970 UTC, the unit of [`Dialect::NOW`].
const SYSTEM_TIME: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CONVERT_TZ(";
const SYSTEM_TIME_END: &str = ", 'SYSTEM', '+00:00'))";

/// On MySQL, the session of a thread, its open transaction and its statement. Not `INNODB_TRX`, which fails while a session
/// runs a statement with bound bytes that are not a text.
const SESSION_OF_THREAD: &str = " \
    LEFT JOIN performance_schema.events_transactions_current AS trx \
    ON trx.THREAD_ID = session.THREAD_ID AND trx.STATE = 'ACTIVE' \
    LEFT JOIN performance_schema.events_statements_current AS statement \
    ON statement.THREAD_ID = session.THREAD_ID AND statement.END_EVENT_ID IS NULL AND statement.NESTING_EVENT_LEVEL = 0 ";

const CLIENT: &str = "CAST(session.PROCESSLIST_USER AS BINARY) AS user, CAST(session.PROCESSLIST_HOST AS BINARY) AS host";
const OPEN_FOR: &str = "CAST(trx.TIMER_WAIT DIV 1000000 AS SIGNED)";
const WAITED: &str = "CAST(statement.TIMER_WAIT DIV 1000000 AS SIGNED)";

statement! {
    Mysql;
    /// The locks on rows of the table of objects. Raw, because the DSL does not know the server's own tables.
    ///
    /// On MySQL the session is that of the transaction's lock on the table. The thread of a lock on a row may be another one:
    /// a waiter makes the lock of the transaction that has inserted the row.
    ///
    /// MariaDB quotes the table's name by the settings `sql_mode` and `sql_quote_show_create` of the session that has read
    /// the locks last, which may be another one. A name that needs no quotes then has none.
    RowLocks {} -> (
        (Nullable<Binary>, Nullable<Binary>, BigInt, BigInt, Unsigned<BigInt>),
        SqlSession<Name>,
    ),
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT}; "found.id, CAST("; {NAMED_LOCK}; "found.id"; {NAMED_LOCK_END}; " AS BINARY), found.waits, found.shared, \
         found.trx_id, CAST(found.session AS SIGNED), found.user, found.host, NULL, "; {Mysql::NOW}; " - found.open_for, ";
        {Mysql::NOW}; " - found.waited, "; {Mysql::NOW};
        " FROM (/*!80000 \
         SELECT UNHEX(SUBSTR(locks.LOCK_DATA, 3)) AS id, locks.LOCK_STATUS = 'WAITING' AS waits, locks.LOCK_MODE LIKE 'S%' AS shared, \
         locks.ENGINE_TRANSACTION_ID AS trx_id, session.PROCESSLIST_ID AS session, "; {CLIENT}; ", ";
        {OPEN_FOR}; " AS open_for, "; {WAITED};
        " AS waited FROM performance_schema.data_locks AS locks \
         LEFT JOIN performance_schema.data_locks AS owned \
         ON owned.ENGINE_TRANSACTION_ID = locks.ENGINE_TRANSACTION_ID AND owned.OBJECT_SCHEMA = locks.OBJECT_SCHEMA \
         AND owned.OBJECT_NAME = locks.OBJECT_NAME AND owned.LOCK_TYPE = 'TABLE' \
         LEFT JOIN performance_schema.threads AS session ON session.THREAD_ID = owned.THREAD_ID"; {SESSION_OF_THREAD};
        "WHERE locks.OBJECT_SCHEMA = DATABASE() AND locks.OBJECT_NAME = 'diesel_locks_objects' \
         AND locks.LOCK_TYPE = 'RECORD' AND locks.LOCK_DATA LIKE '0x%' AND locks.LOCK_MODE NOT LIKE '%,GAP%' \
         AND locks.LOCK_MODE NOT LIKE '%INSERT_INTENTION%' \
         *//*M!100100 \
         SELECT UNHEX(SUBSTR(locks.lock_data, 3)) AS id, trx.trx_requested_lock_id <=> locks.lock_id AS waits, locks.lock_mode LIKE 'S%' AS shared, \
         trx.trx_id AS trx_id, trx.trx_mysql_thread_id AS session, \
         CAST(session.USER AS BINARY) AS user, CAST(session.HOST AS BINARY) AS host, ";
        {Mysql::NOW}; " - "; {SYSTEM_TIME}; "trx.trx_started"; {SYSTEM_TIME_END}; " AS open_for, ";
        {Mysql::NOW}; " - "; {SYSTEM_TIME}; "trx.trx_wait_started"; {SYSTEM_TIME_END};
        " AS waited FROM information_schema.INNODB_LOCKS AS locks \
         JOIN information_schema.INNODB_TRX AS trx ON trx.trx_id = locks.lock_trx_id \
         LEFT JOIN information_schema.PROCESSLIST AS session ON session.ID = trx.trx_mysql_thread_id \
         WHERE locks.lock_table IN (\
         CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.`diesel_locks_objects`'), \
         CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.diesel_locks_objects'), \
         CONCAT('\"', REPLACE(DATABASE(), '\"', '\"\"'), '\".\"diesel_locks_objects\"'), \
         CONCAT('\"', REPLACE(DATABASE(), '\"', '\"\"'), '\".diesel_locks_objects'), \
         CONCAT(DATABASE(), '.diesel_locks_objects')) \
         AND locks.lock_type = 'RECORD' AND locks.lock_data LIKE '0x%' */) AS found"; {EVERY_ROW};
    }

    /// On MySQL, the sessions that wait for a named lock.
    NamedLockWaiters {} -> (
        Binary,
        SqlSession<Name>,
    ),
    |self| {
        {ANY_SIZE}; "SELECT "; {ANY_SIZE_HINT}; "CAST(locks.OBJECT_NAME AS BINARY), CAST(session.PROCESSLIST_ID AS SIGNED), ";
        {CLIENT}; ", NULL, "; {Mysql::NOW}; " - "; {OPEN_FOR}; ", "; {Mysql::NOW}; " - "; {WAITED}; ", "; {Mysql::NOW};
        " FROM performance_schema.metadata_locks AS locks \
         JOIN performance_schema.threads AS session ON session.THREAD_ID = locks.OWNER_THREAD_ID"; {SESSION_OF_THREAD};
        "WHERE locks.OBJECT_TYPE = 'USER LEVEL LOCK' AND locks.LOCK_STATUS = 'PENDING'"; {EVERY_ROW};
    }

    /// 1 on MySQL, 0 on MySQL without `performance_schema`, `NULL` on MariaDB.
    PerformanceSchema {} -> Nullable<BigInt>,
    |self| { "SELECT /*!80000 @@performance_schema *//*M!100100 NULL */" }
}

#[derive(Queryable)]
struct RowLock {
    record: Record,
    #[diesel(deserialize_as = SessionRow)]
    waiter: LockWaiter,
}

#[derive(Queryable)]
struct Record {
    id: Option<Bytes>,
    named_lock: Option<Bytes>,
    waits: i64,
    shared: i64,
    transaction: u64,
}

impl<C: Link<Db = Mysql>> MysqlEngine<'_, C> {
    pub(crate) async fn show_held_locks(&mut self) -> Result<Vec<HeldObjectLock>, Error> {
        let rows: Vec<RowLock> = self.load(RowLocks {}).await.map_err(refused)?;
        let shows: Option<i64> = self.get_result(PerformanceSchema {}).await?;
        if rows.is_empty() && shows == Some(0) {
            return Err(Error::LocksNotShown {
                engine: "MySQL",
                reason: "performance_schema is off",
            });
        }
        let mut queue = Vec::new();
        if shows.is_some() && rows.iter().any(|row| row.record.waits != 0) {
            queue = self.load(NamedLockWaiters {}).await.map_err(refused)?;
        }
        Ok(combine(&rows, queue))
    }
}

fn combine(rows: &[RowLock], queue: Vec<(Bytes, SessionRow)>) -> Vec<HeldObjectLock> {
    let mut held: Vec<HeldObjectLock> = Vec::new();
    let mut of_id: HashMap<&Vec<u8>, Vec<usize>> = HashMap::new();
    // A transaction may have several locks on a record.
    let (mut of_holder, mut unnumbered) = (HashMap::new(), HashSet::new());
    let shown = rows.iter().filter_map(|row| {
        let id = &row.record.id.as_ref()?.0;
        Some((id, &row.record, &row.waiter))
    });
    let (waiting, granted): (Vec<_>, Vec<_>) = shown.partition(|(_, record, _)| record.waits != 0);
    for (id, record, waiter) in granted {
        // The number of all transactions on MariaDB that have shared locks at most.
        if record.transaction == 0 {
            unnumbered.insert(id);
            continue;
        }
        let position = *of_holder
            .entry((id, record.transaction))
            .or_insert_with(|| {
                of_id.entry(id).or_default().push(held.len());
                held.push(lock(id, waiter.session.clone()));
                held.len() - 1
            });
        held[position].is_shared &= record.shared != 0;
    }
    let mut seen = HashSet::new();
    for (id, record, waiter) in &waiting {
        let holds = of_holder.contains_key(&(*id, record.transaction));
        if holds || !seen.insert((*id, waiter.session.id)) {
            continue;
        }
        if unnumbered.contains(id) && !of_id.contains_key(id) {
            of_id.insert(id, vec![held.len()]);
            held.push(lock(id, LockSession::default()));
        }
        for position in of_id.get(id).into_iter().flatten() {
            held[*position].waiters.push((*waiter).clone());
        }
    }
    let named = rows.iter().filter_map(|row| {
        let id = &row.record.id.as_ref()?.0;
        Some((&row.record.named_lock.as_ref()?.0, of_id.get(id)?))
    });
    let of_named_lock: HashMap<_, _> = named.collect();
    for (name, session) in queue {
        let waiter = LockWaiter::from(session);
        for position in of_named_lock.get(&name.0).into_iter().copied().flatten() {
            held[*position].waiters.push(waiter.clone());
        }
    }
    held
}

fn lock(id: &[u8], holder: LockSession) -> HeldObjectLock {
    HeldObjectLock {
        id: Some(String::from_utf8_lossy(id).into_owned()),
        is_shared: true,
        holder,
        waiters: Vec::new(),
    }
}

/// The privileges that the server's own tables need. The error of MySQL does not name a table of this crate.
fn refused(failure: MysqlError) -> Error {
    let (object, privileges) = match failure.number {
        // A privilege of the server.
        Some(1227) => ("information_schema.INNODB_TRX", "PROCESS"),
        // A privilege on a table.
        Some(1142) => (
            "performance_schema (data_locks, metadata_locks, threads)",
            "SELECT",
        ),
        _ => return failure.into(),
    };
    Error::InsufficientPrivilege {
        object,
        privileges,
        source: failure.error,
    }
}
