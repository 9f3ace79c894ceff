//! The tables, and the statements for all databases, in Diesel's DSL.

use diesel::dsl::max;
use diesel::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Engine;

use self::collate_files::dsl as files;
use self::collate_hours::dsl as hours;
use self::collate_lists::dsl as lists;

diesel::table! {
    /// Lists of files: log files to sort into parts, or the parts of an hour to merge into its file.
    collate_lists (id) {
        id -> BigInt,
        /// The hour whose parts these are; NULL for log files.
        hour -> Nullable<Text>,
        /// The number of files.
        items -> Integer,
        /// See [`state`].
        state -> Integer,
        /// The fence of the last worker that took the list; before that, of the hour's file. Only a larger fence can
        /// take the list.
        fence -> BigInt,
    }
}

diesel::table! {
    /// Log files and parts.
    collate_files (name) {
        name -> Text,
        /// The hour of a part; NULL for a log file.
        hour -> Nullable<Text>,
        /// The list that contains the file; NULL for a part that is not queued yet.
        list_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    /// The current file of each hour.
    collate_hours (hour) {
        hour -> Text,
        name -> Text,
        line_count -> BigInt,
        /// The fence of the slot under which it was written. Only a larger fence can replace it.
        fence -> BigInt,
    }
}

/// The statements that create the tables. A process that is stopped while it writes on SQLite makes all others wait until
/// it continues.
const TABLES: [(Engine, &str); 3] = [
    (Engine::Sqlite, include_str!("store/postgres_sqlite.sql")),
    (Engine::Postgres, include_str!("store/postgres_sqlite.sql")),
    (Engine::Mysql, include_str!("store/mysql.sql")),
];

/// The states of a list.
pub(crate) mod state {
    pub(crate) const QUEUED: i32 = 0;
    /// Taken by the holder of a slot, whose fence is in the row.
    pub(crate) const TAKEN: i32 = 1;
    pub(crate) const DONE: i32 = 2;
}

/// A list of log files, or of the parts of an hour.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct List {
    pub(crate) id: i64,
    pub(crate) hour: Option<String>,
    pub(crate) items: i32,
    pub(crate) state: i32,
    pub(crate) fence: i64,
}

/// The file of an hour.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct HourFile {
    pub(crate) hour: String,
    pub(crate) name: String,
    pub(crate) lines: i64,
    pub(crate) fence: i64,
}

/// A part of an hour's lines: the hour, and the file's name.
pub(crate) type Part = (String, String);

/// Creates the tables if they are missing, and empties them.
pub(crate) fn create_tables(conn: &mut AnyConnection) -> anyhow::Result<()> {
    conn.create_tables(TABLES)?;
    diesel::delete(collate_files::table).execute(conn)?;
    diesel::delete(collate_hours::table).execute(conn)?;
    diesel::delete(collate_lists::table).execute(conn)?;
    Ok(())
}

pub(crate) fn lists(conn: &mut AnyConnection) -> QueryResult<Vec<List>> {
    collate_lists::table.load(conn)
}

pub(crate) fn last_list(conn: &mut AnyConnection) -> QueryResult<i64> {
    let last: Option<i64> = collate_lists::table.select(max(lists::id)).first(conn)?;
    Ok(last.unwrap_or(0))
}

pub(crate) fn insert_list(conn: &mut AnyConnection, list: &List) -> QueryResult<()> {
    diesel::insert_into(collate_lists::table)
        .values((
            lists::id.eq(list.id),
            lists::hour.eq(&list.hour),
            lists::items.eq(list.items),
            lists::state.eq(list.state),
            lists::fence.eq(list.fence),
        ))
        .execute(conn)?;
    Ok(())
}

/// The first lists that the holder of this fence may take.
pub(crate) fn queued(conn: &mut AnyConnection, fence: i64, limit: i64) -> QueryResult<Vec<List>> {
    collate_lists::table
        .filter(lists::state.eq(state::QUEUED))
        .filter(lists::fence.lt(fence))
        .order(lists::id)
        .limit(limit)
        .load(conn)
}

/// Takes the list unless another worker has; returns the number of rows updated.
pub(crate) fn take(conn: &mut AnyConnection, list: i64, fence: i64) -> QueryResult<usize> {
    let open = collate_lists::table
        .find(list)
        .filter(lists::state.eq(state::QUEUED))
        .filter(lists::fence.lt(fence));
    diesel::update(open)
        .set((lists::state.eq(state::TAKEN), lists::fence.eq(fence)))
        .execute(conn)
}

/// Puts the list into this state, if it still belongs to the fence.
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

pub(crate) fn files_of(conn: &mut AnyConnection, list: i64) -> QueryResult<Vec<String>> {
    collate_files::table
        .filter(files::list_id.eq(list))
        .order(files::name)
        .select(files::name)
        .load(conn)
}

/// The names of all log files that are on a list.
pub(crate) fn queued_logs(conn: &mut AnyConnection) -> QueryResult<Vec<String>> {
    collate_files::table
        .filter(files::hour.is_null())
        .select(files::name)
        .load(conn)
}

pub(crate) fn insert_logs(
    conn: &mut AnyConnection,
    names: &[String],
    list: i64,
) -> QueryResult<()> {
    for name in names {
        diesel::insert_into(collate_files::table)
            .values((files::name.eq(name), files::list_id.eq(list)))
            .execute(conn)?;
    }
    Ok(())
}

/// Parts that are on no list, by hour.
pub(crate) fn unqueued_parts(conn: &mut AnyConnection) -> QueryResult<Vec<Part>> {
    collate_files::table
        .filter(files::list_id.is_null())
        .filter(files::hour.is_not_null())
        .order(files::hour)
        .select((files::hour.assume_not_null(), files::name))
        .load(conn)
}

pub(crate) fn insert_parts(conn: &mut AnyConnection, parts: &[Part]) -> QueryResult<()> {
    for (hour, name) in parts {
        diesel::insert_into(collate_files::table)
            .values((files::name.eq(name), files::hour.eq(hour)))
            .execute(conn)?;
    }
    Ok(())
}

pub(crate) fn queue_parts(
    conn: &mut AnyConnection,
    names: &[&str],
    list: i64,
) -> QueryResult<usize> {
    diesel::update(collate_files::table.filter(files::name.eq_any(names)))
        .set(files::list_id.eq(list))
        .execute(conn)
}

pub(crate) fn hours(conn: &mut AnyConnection) -> QueryResult<Vec<HourFile>> {
    collate_hours::table.order(hours::hour).load(conn)
}

pub(crate) fn hour(conn: &mut AnyConnection, hour: &str) -> QueryResult<Option<HourFile>> {
    collate_hours::table.find(hour).first(conn).optional()
}

pub(crate) fn insert_hour(conn: &mut AnyConnection, file: &HourFile) -> QueryResult<usize> {
    diesel::insert_into(collate_hours::table)
        .values((
            hours::hour.eq(&file.hour),
            hours::name.eq(&file.name),
            hours::line_count.eq(file.lines),
            hours::fence.eq(file.fence),
        ))
        .execute(conn)
}

/// Replaces the hour's file if its fence is smaller than the limit; returns the number of rows updated.
pub(crate) fn replace_hour(
    conn: &mut AnyConnection,
    file: &HourFile,
    limit: i64,
) -> QueryResult<usize> {
    let older = collate_hours::table
        .find(&file.hour)
        .filter(hours::fence.lt(limit));
    diesel::update(older)
        .set((
            hours::name.eq(&file.name),
            hours::line_count.eq(file.lines),
            hours::fence.eq(file.fence),
        ))
        .execute(conn)
}
