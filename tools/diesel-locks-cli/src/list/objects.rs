//! The list of held object locks.

use diesel_locks::limits::MAX_LISTED;
use diesel_locks::{Error, HeldObjectLock, InspectExt, LockSession, LockWaiter};
use serde_json::{Value, json};

use super::{Printed, print};
use crate::database::{AnyConnection, Engine};
use crate::output::{counted, duration, json_time, name, time};

pub(super) fn read(conn: &mut AnyConnection, prefix: &str, limit: u32) -> Result<Printed, Error> {
    let mut found = conn.held_object_locks(MAX_LISTED)?;
    let listed = found.len();
    // A lock whose id is not shown may be one of them.
    found.retain(|lock| lock.id.as_deref().is_none_or(|id| id.starts_with(prefix)));
    let hidden = if conn.engine() == Engine::Mysql {
        " (MariaDB shows a lock only while another session waits for it)"
    } else {
        ""
    };
    let text = |locks: &[HeldObjectLock]| match locks {
        [] => hidden.to_owned(),
        locks => locks.iter().map(lines).collect::<Vec<_>>().join("\n"),
    };
    Ok(Printed {
        may_be_more: listed >= MAX_LISTED as usize,
        ..print(found, limit, text, json)
    })
}

fn lines(lock: &HeldObjectLock) -> String {
    let id = lock.id.as_deref().map_or(
        "objects whose ids the server does not show".to_owned(),
        name,
    );
    let shared = if lock.is_shared { ", shared" } else { "" };
    let mut lines = vec![
        format!("  {id}{shared}"),
        format!("    held by {}", session(&lock.holder)),
    ];
    let holder = &lock.holder;
    lines.push(match (holder.started_at, holder.open_for) {
        (Some(at), Some(open)) => format!(
            "    in a transaction since {} ({})",
            time(at),
            duration(open)
        ),
        _ => "    in a transaction whose begin the server does not show".to_owned(),
    });
    if !lock.waiters.is_empty() {
        let waiters = counted(lock.waiters.len(), "session");
        lines.push(format!("    {waiters} known to wait:"));
        lines.extend(lock.waiters.iter().map(waiter));
    }
    lines.join("\n")
}

fn waiter(waiter: &LockWaiter) -> String {
    let session = session(&waiter.session);
    match (waiter.waiting_since, waiter.waited) {
        (Some(at), Some(time_passed)) => {
            format!(
                "      {session}\n        since {} ({})",
                time(at),
                duration(time_passed)
            )
        }
        _ => format!("      {session}"),
    }
}

/// What is not known is called so: it does not mean that nobody holds the lock.
fn session(session: &LockSession) -> String {
    let id = session
        .id
        .map_or("a session that the server does not show".to_owned(), |id| {
            format!("session {id}")
        });
    let details = [
        session
            .user
            .as_ref()
            .map(|user| format!("user {}", name(user))),
        session
            .host
            .as_ref()
            .map(|host| format!("host {}", name(host))),
        session
            .application
            .as_ref()
            .filter(|it| !it.is_empty())
            .map(|it| name(it)),
    ];
    let details: Vec<_> = details.into_iter().flatten().collect();
    if details.is_empty() {
        return id;
    }
    format!("{id} ({})", details.join(", "))
}

fn json(lock: &HeldObjectLock) -> Value {
    let waiters = lock.waiters.iter().map(|waiter| {
        json!({
            "session": json_session(&waiter.session),
            "waiting_since": waiter.waiting_since.map(json_time),
            "waited_s": waiter.waited.map(|waited| waited.as_secs_f64()),
        })
    });
    json!({
        "id": lock.id,
        "shared": lock.is_shared,
        "holder": json_session(&lock.holder),
        "waiters": waiters.collect::<Vec<_>>(),
    })
}

fn json_session(session: &LockSession) -> Value {
    json!({
        "session": session.id,
        "user": session.user,
        "host": session.host,
        "application": session.application,
        "started_at": session.started_at.map(json_time),
        "open_for_s": session.open_for.map(|open| open.as_secs_f64()),
    })
}
