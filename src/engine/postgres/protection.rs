//! Finds out whether row-level security, a trigger or a rule keeps this crate from a row: PostgreSQL then reports no error,
//! and the statement finds or changes no row.

use diesel::dsl::exists;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};

use crate::engine::ending::autocommit_retry;
use crate::engine::postgres::slots::{Nowait, begin_nowait, end_nowait};
use crate::engine::slot_queries::lock_fence_floor;
use crate::engine::slots::Expiry;
use crate::engine::tables::{FENCES, Named, SLOTS, diesel_locks_slots as slots, protected};
use crate::error::classify::{ErrorClass, classify};
use crate::link::Link;
use crate::link::raw_sql::statement;
use crate::{Error, Slot};

#[diesel::declare_sql_function]
extern "SQL" {
    fn row_security_active(table: Text) -> Bool;
}

statement! {
    Pg;
    /// Whether row-level security hides all rows of a table from the user: there is no policy for reading. Raw, because the
    /// DSL does not know the server's own tables.
    Hidden<'a> { table: &'a str } -> Bool,
    |self| {
        "SELECT row_security_active(", Text = self.table;
        ") AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = ", Text = self.table;
        "::regclass AND polpermissive AND polcmd IN ('r', '*') AND EXISTS (SELECT FROM unnest(polroles) AS of_role \
         WHERE of_role = 0 OR pg_has_role(of_role, 'USAGE')))";
    }
}

/// Fails if nothing was found because no row of the table is visible.
pub(crate) async fn ensure_visible(
    conn: &mut impl Link<Db = Pg>,
    table: &'static str,
    is_found: bool,
) -> Result<(), Error> {
    if is_found {
        return Ok(());
    }
    if autocommit_retry!(conn, conn.get_result(Hidden { table }).await)? {
        return Err(protected(table));
    }
    Ok(())
}

/// The number of changed rows. Fails if it is 0 although the slot has this token. Does not ask after the first of two
/// statements, whose lease may have expired.
pub(crate) async fn ensure_changed(
    conn: &mut impl Link<Db = Pg>,
    slot: &Slot,
    expiry: Expiry,
    changed: usize,
) -> Result<usize, Error> {
    if changed == 0 && expiry == Expiry::IncludeExpired {
        let (name, number) = (Named(slot.semaphore.as_str()), slot.number_i32());
        let token = slots::token.eq(slot.token.as_bytes().as_slice());
        let is_held = || diesel::select(exists(slots::table.find((name, number)).filter(token)));
        let is_held: bool = autocommit_retry!(conn, conn.get_result(is_held()).await)?;
        if is_held {
            return Err(protected(SLOTS));
        }
    }
    Ok(changed)
}

/// Fails if the row of `diesel_locks_fences` is visible and can't be locked, but no session has locked it. Called outside a
/// transaction.
pub(crate) async fn ensure_floor_is_lockable(conn: &mut impl Link<Db = Pg>) -> Result<(), Error> {
    if !is_active(conn, FENCES).await? {
        return Ok(());
    }
    let begun = begin_nowait(conn).await?;
    let locked: QueryResult<Vec<i64>> = conn.load(lock_fence_floor().no_wait()).await;
    let hidden = locked.map(|rows| rows.is_empty());
    end_visible(conn, begun, FENCES, hidden).await
}

/// Fails if the slot is visible and can't be locked, but no session has locked it; and if no slot is visible.
pub(crate) async fn ensure_slot_is_lockable(
    conn: &mut impl Link<Db = Pg>,
    slot: Option<(String, i32)>,
) -> Result<(), Error> {
    let Some((name, number)) = slot else {
        return ensure_visible(conn, SLOTS, false).await;
    };
    if !is_active(conn, SLOTS).await? {
        return Ok(());
    }
    let begun = begin_nowait(conn).await?;
    let hidden = is_hidden_from_locks(conn, &name, number).await;
    end_visible(conn, begun, SLOTS, hidden).await
}

async fn is_active(conn: &mut impl Link<Db = Pg>, table: &'static str) -> Result<bool, Error> {
    let active = || diesel::select(row_security_active(table));
    autocommit_retry!(conn, conn.get_result(active()).await)
}

/// [`end_nowait`], which fails if the row is hidden, and not if another session has locked it.
async fn end_visible(
    conn: &mut impl Link<Db = Pg>,
    begun: Nowait,
    table: &'static str,
    hidden: QueryResult<bool>,
) -> Result<(), Error> {
    let hidden = match hidden {
        Err(error) if classify(&error) == ErrorClass::LockNotAvailable => Ok(false),
        hidden => hidden,
    };
    match end_nowait(conn, begun, hidden).await? {
        Some(true) => Err(protected(table)),
        _ => Ok(()),
    }
}

async fn is_hidden_from_locks(
    conn: &mut impl Link<Db = Pg>,
    name: &str,
    number: i32,
) -> QueryResult<bool> {
    let slot = || {
        slots::table
            .find((Named(name), number))
            .select(slots::number)
    };
    let locked: Vec<i32> = conn.load(slot().for_update().no_wait()).await?;
    let visible: Vec<i32> = conn.load(slot()).await?;
    Ok(locked.is_empty() && !visible.is_empty())
}
