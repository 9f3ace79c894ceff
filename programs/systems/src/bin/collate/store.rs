//! The tables, and the statements for all databases, in Diesel's DSL.

use diesel::prelude::*;
use program_support::connection::AnyConnection;

use self::collate_lists::dsl as lists;
use self::collate_parts::dsl as parts;

/// The statements that create the tables.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS collate_lists (
        id BIGINT NOT NULL PRIMARY KEY,
        state INTEGER NOT NULL,
        fence BIGINT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS collate_parts (
        name VARCHAR(255) NOT NULL PRIMARY KEY,
        hour VARCHAR(13) NOT NULL
    );";

diesel::table! {
    /// Lists of log files, numbered from 0.
    collate_lists (id) {
        id -> BigInt,
        /// See [`state`].
        state -> Integer,
        /// The fence of the last worker that took the list.
        fence -> BigInt,
    }
}

diesel::table! {
    /// Files with lines of an hour.
    collate_parts (name) {
        name -> Text,
        hour -> Text,
    }
}

/// The states of a list.
pub(crate) mod state {
    pub(crate) const QUEUED: i32 = 0;
    /// Taken by the holder of a slot, whose fence is in the row.
    pub(crate) const TAKEN: i32 = 1;
    pub(crate) const DONE: i32 = 2;
}

#[derive(Queryable)]
pub(crate) struct List {
    pub(crate) id: i64,
    pub(crate) fence: i64,
}

#[derive(Queryable)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) hour: String,
}

/// Creates the tables if they are missing, and empties them.
pub(crate) fn create_tables(conn: &mut AnyConnection) -> anyhow::Result<()> {
    conn.create_tables(TABLES)?;
    diesel::delete(collate_parts::table).execute(conn)?;
    diesel::delete(collate_lists::table).execute(conn)?;
    Ok(())
}

/// All lists in this state.
pub(crate) fn lists(conn: &mut AnyConnection, state: i32) -> QueryResult<Vec<List>> {
    collate_lists::table
        .filter(lists::state.eq(state))
        .select((lists::id, lists::fence))
        .load(conn)
}

pub(crate) fn count_lists(conn: &mut AnyConnection) -> QueryResult<i64> {
    collate_lists::table.count().get_result(conn)
}

pub(crate) fn insert_list(conn: &mut AnyConnection, id: i64) -> QueryResult<usize> {
    let list = (
        lists::id.eq(id),
        lists::state.eq(state::QUEUED),
        lists::fence.eq(0_i64),
    );
    diesel::insert_into(collate_lists::table)
        .values(list)
        .execute(conn)
}

/// Takes the list unless another worker has; returns the number of rows updated.
pub(crate) fn take(conn: &mut AnyConnection, list: i64, fence: i64) -> QueryResult<usize> {
    let open = collate_lists::table
        .find(list)
        .filter(lists::state.eq(state::QUEUED));
    diesel::update(open)
        .set((lists::state.eq(state::TAKEN), lists::fence.eq(fence)))
        .execute(conn)
}

/// Puts the list into this state, if it still belongs to the fence; returns the number of rows updated.
pub(crate) fn finish(
    conn: &mut AnyConnection,
    list: i64,
    fence: i64,
    state: i32,
) -> QueryResult<usize> {
    let taken = collate_lists::table
        .find(list)
        .filter(lists::state.eq(state::TAKEN))
        .filter(lists::fence.eq(fence));
    diesel::update(taken)
        .set(lists::state.eq(state))
        .execute(conn)
}

/// Marks the list as done, whatever fence it belongs to.
pub(crate) fn set_done_unfenced(conn: &mut AnyConnection, list: i64) -> QueryResult<usize> {
    diesel::update(collate_lists::table.find(list))
        .set(lists::state.eq(state::DONE))
        .execute(conn)
}

pub(crate) fn insert_parts(conn: &mut AnyConnection, parts: &[Part]) -> QueryResult<()> {
    for part in parts {
        diesel::insert_into(collate_parts::table)
            .values((parts::name.eq(&part.name), parts::hour.eq(&part.hour)))
            .execute(conn)?;
    }
    Ok(())
}

pub(crate) fn parts(conn: &mut AnyConnection) -> QueryResult<Vec<Part>> {
    collate_parts::table.order(parts::hour).load(conn)
}
