//! Finds out whether row-level security, a trigger or a rule keeps this crate from a row: PostgreSQL then reports no error,
//! and the statement finds or changes no row.

use diesel::dsl::exists;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};

use super::slot_sql;
use super::slots::{begin_nowait, end_nowait};
use crate::engine::raw_sql::{push, statement};
use crate::engine::retry::autocommit_retry;
use crate::error::classify::{ErrorClass, classify};
use crate::link::Link;
use crate::schema::postgres::diesel_locks_slots as slots;
use crate::semaphore::backend::Expiry;
use crate::{Error, Slot};

pub(super) const OBJECTS: &str = "diesel_locks_objects";
pub(super) const SLOTS: &str = "diesel_locks_slots";
pub(super) const SEQUENCES: &str = "diesel_locks_sequences";
const FENCES: &str = "diesel_locks_fences";

#[diesel::declare_sql_function]
extern "SQL" {
    /// Whether policies restrict the user's access to the table.
    fn row_security_active(table: Text) -> Bool;
}

statement! {
    Pg;
    /// Whether row-level security hides all rows of a table from the user: there is no policy for reading. Raw, because the
    /// DSL does not know the server's own tables.
    Hidden<'a> { table: &'a str } -> Bool,
    |self, out| {
        push!(out;
            "SELECT row_security_active(", Text = self.table;
            ") AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = ", Text = self.table;
            "::regclass AND polpermissive AND polcmd IN ('r', '*') AND EXISTS (SELECT FROM unnest(polroles) AS of_role \
             WHERE of_role = 0 OR pg_has_role(of_role, 'USAGE')))";
        );
    }
}

pub(super) fn protected(table: &'static str) -> Error {
    Error::ProtectedRow {
        table,
        source: None,
    }
}

/// Fails if nothing was found because no row of the table is visible.
pub(super) async fn ensure_visible(
    conn: &mut impl Link<Backend = Pg>,
    table: &'static str,
    is_found: bool,
) -> Result<(), Error> {
    if is_found {
        return Ok(());
    }
    let hidden: bool = autocommit_retry!(conn, conn.get_result(Hidden { table }).await)?;
    if hidden {
        Err(protected(table))
    } else {
        Ok(())
    }
}

/// The number of changed rows. Fails if it is 0 although the slot has this token. Does not ask after the first of two
/// statements, whose lease may have expired.
pub(super) async fn ensure_changed(
    conn: &mut impl Link<Backend = Pg>,
    slot: &Slot,
    expiry: Expiry,
    changed: usize,
) -> Result<usize, Error> {
    if changed == 0 && expiry == Expiry::IncludeExpired {
        let is_held = || {
            diesel::select(exists(
                slots::table
                    .filter(slots::name.eq(slot.semaphore.as_str()))
                    .filter(slots::number.eq(slot.number_i32()))
                    .filter(slots::token.eq(slot.token.as_bytes().as_slice())),
            ))
        };
        let is_held: bool = autocommit_retry!(conn, conn.get_result(is_held()).await)?;
        if is_held {
            return Err(protected(SLOTS));
        }
    }
    Ok(changed)
}

/// Fails if the row of `diesel_locks_fences` is visible and can't be locked, but no session has locked it. Called outside a
/// transaction.
pub(super) async fn ensure_floor_is_lockable(
    conn: &mut impl Link<Backend = Pg>,
) -> Result<(), Error> {
    if !is_active(conn, FENCES).await? {
        return Ok(());
    }
    let begun = begin_nowait(conn).await?;
    let locked: QueryResult<Vec<i64>> = conn.load(slot_sql::lock_fence_floor_nowait()).await;
    let locked = unless_locked(locked.map(|rows| rows.is_empty()));
    match end_nowait(conn, begun, locked).await? {
        Some(true) => Err(protected(FENCES)),
        _ => Ok(()),
    }
}

/// Fails if the first of these slots is visible and can't be locked, but no session has locked it.
pub(super) async fn ensure_slot_is_lockable(
    conn: &mut impl Link<Backend = Pg>,
    slots: Vec<(String, i32)>,
) -> Result<(), Error> {
    let Some((name, number)) = slots.first() else {
        return ensure_visible(conn, SLOTS, false).await;
    };
    if !is_active(conn, SLOTS).await? {
        return Ok(());
    }
    let begun = begin_nowait(conn).await?;
    let hidden = unless_locked(is_hidden_from_locks(conn, name, *number).await);
    match end_nowait(conn, begun, hidden).await? {
        Some(true) => Err(protected(SLOTS)),
        _ => Ok(()),
    }
}

async fn is_active(conn: &mut impl Link<Backend = Pg>, table: &'static str) -> Result<bool, Error> {
    let active = || diesel::select(row_security_active(table));
    autocommit_retry!(conn, conn.get_result(active()).await)
}

/// `false` if another session has locked the row.
fn unless_locked(hidden: QueryResult<bool>) -> QueryResult<bool> {
    match hidden {
        Err(error) if classify(&error) == ErrorClass::LockNotAvailable => Ok(false),
        hidden => hidden,
    }
}

async fn is_hidden_from_locks(
    conn: &mut impl Link<Backend = Pg>,
    name: &str,
    number: i32,
) -> QueryResult<bool> {
    let slot = || {
        slots::table
            .filter(slots::name.eq(name))
            .filter(slots::number.eq(number))
            .select(slots::number)
    };
    let locked: Vec<i32> = conn.load(slot().for_update().no_wait()).await?;
    let visible: Vec<i32> = conn.load(slot()).await?;
    Ok(locked.is_empty() && !visible.is_empty())
}
