//! Held object locks, their holders and waiters.

#![cfg_attr(
    not(any(feature = "_postgres", feature = "_mysql")),
    allow(dead_code, reason = "SQLite shows no locks")
)]

use std::cmp::Reverse;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::sql_types::{BigInt, Nullable};

/// An object lock that a session holds, as returned by [`held_object_locks`](crate::InspectExt::held_object_locks).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldObjectLock {
    /// The object's id. `None`: the session holds one or more object locks, and the server does not show their ids.
    pub id: Option<String>,
    /// Whether the lock is [shared](crate::LockRequest::shared). Each session that holds it has an entry of its own, except on MariaDB,
    /// which does not show them: one entry, whose holder is unknown, has the sessions that wait.
    pub is_shared: bool,
    /// The session that holds the lock.
    pub holder: LockSession,
    /// The sessions that wait for the lock, the longest wait first.
    pub waiters: Vec<LockWaiter>,
}

/// A session that waits for an object lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockWaiter {
    /// The session.
    pub session: LockSession,
    /// The time when the wait began, by the database's clock. `None` if the server does not show it.
    pub waiting_since: Option<DateTime<Utc>>,
    /// How long it had waited when the server was asked.
    pub waited: Option<Duration>,
}

/// A session of the database, and its transaction. What the server does not show to this user is `None`. Times are those of the
/// database's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSession {
    /// The process id on PostgreSQL (`pg_terminate_backend`), the connection id on MySQL and MariaDB (`KILL`). `None` for a
    /// prepared transaction (two-phase commit), which has no session, and for those that hold a shared lock on MariaDB.
    pub id: Option<u64>,
    /// The database user.
    pub user: Option<String>,
    /// The client's host name or address, on MariaDB with the port. `None` for a local socket of PostgreSQL.
    pub host: Option<String>,
    /// PostgreSQL: the session's `application_name`. MySQL and MariaDB have none.
    pub application: Option<String>,
    /// The time when the transaction began. Its locks were granted later.
    pub started_at: Option<DateTime<Utc>>,
    /// How long the transaction had been open when the server was asked.
    pub open_for: Option<Duration>,
}

/// A time of the database, and the time that has passed since, at `now_us`. Both are microseconds since 1970 UTC.
fn since(time_us: Option<i64>, now_us: i64) -> (Option<DateTime<Utc>>, Option<Duration>) {
    let passed = |time_us: i64| u64::try_from(now_us.saturating_sub(time_us)).unwrap_or(0);
    (
        time_us.and_then(DateTime::from_timestamp_micros),
        time_us.map(|time_us| Duration::from_micros(passed(time_us))),
    )
}

/// A session as the engines read it, which holds a lock or waits for one.
#[derive(diesel::Queryable)]
pub(crate) struct SessionRow {
    id: Option<i64>,
    user: Option<String>,
    host: Option<String>,
    application: Option<String>,
    started_us: Option<i64>,
    waiting_us: Option<i64>,
    now_us: i64,
}

/// The SQL type of a [`SessionRow`] whose texts have this type.
pub(crate) type SqlSession<T> = (
    Nullable<BigInt>,
    Nullable<T>,
    Nullable<T>,
    Nullable<T>,
    Nullable<BigInt>,
    Nullable<BigInt>,
    BigInt,
);

impl From<SessionRow> for LockWaiter {
    fn from(row: SessionRow) -> Self {
        let (started_at, open_for) = since(row.started_us, row.now_us);
        let (waiting_since, waited) = since(row.waiting_us, row.now_us);
        let session = LockSession {
            id: row.id.map(i64::unsigned_abs),
            user: row.user,
            host: row.host,
            application: row.application.filter(|name| !name.is_empty()),
            started_at,
            open_for,
        };
        Self {
            session,
            waiting_since,
            waited,
        }
    }
}

/// The most urgent locks: those with waiters, the longest wait first, then the oldest transactions.
pub(crate) fn most_urgent(mut locks: Vec<HeldObjectLock>, limit: usize) -> Vec<HeldObjectLock> {
    for lock in &mut locks {
        lock.waiters.sort_by_key(|waiter| Reverse(waiter.waited));
    }
    locks.sort_by_cached_key(|lock| {
        let first = lock.waiters.first();
        (
            Reverse(first.map(|waiter| waiter.waited)),
            Reverse(lock.holder.open_for),
            lock.id.clone(),
        )
    });
    locks.truncate(limit);
    locks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: u64, open_for: u64) -> LockSession {
        LockSession {
            id: Some(id),
            open_for: Some(Duration::from_secs(open_for)),
            ..LockSession::default()
        }
    }

    fn lock(id: &str, open_for: u64, waits_us: &[i64]) -> HeldObjectLock {
        let waiter = |wait_us: &i64| {
            let (waiting_since, waited) = since(Some(-wait_us), 0);
            LockWaiter {
                session: session(9, 1),
                waiting_since,
                waited,
            }
        };
        HeldObjectLock {
            id: Some(id.to_owned()),
            is_shared: false,
            holder: session(1, open_for),
            waiters: waits_us.iter().map(waiter).collect(),
        }
    }

    #[test]
    fn locks_with_the_longest_waits_are_the_most_urgent() {
        let locks = vec![
            lock("old", 90, &[]),
            lock("new", 1, &[]),
            lock("short", 95, &[3]),
            lock("long", 2, &[1, 5]),
        ];
        let urgent = most_urgent(locks, 3);
        let ids: Vec<_> = urgent
            .iter()
            .filter_map(|lock| lock.id.as_deref())
            .collect();
        assert_eq!(ids, ["long", "short", "old"]);
        let waits: Vec<_> = urgent[0]
            .waiters
            .iter()
            .map(|waiter| waiter.waited)
            .collect();
        assert_eq!(waits, [5, 1].map(|us| Some(Duration::from_micros(us))));
    }

    #[test]
    fn times_of_the_future_have_not_passed() {
        let (time, passed) = since(Some(5), 3);
        assert_eq!(time, DateTime::from_timestamp_micros(5));
        assert_eq!(passed, Some(Duration::ZERO));
        assert_eq!(since(None, 3), (None, None));
    }
}
