//! The statements for all databases, in Diesel's DSL.

use diesel::prelude::*;
use diesel_locks::{SemaphoreExt, TransactionExt};

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

pub(crate) trait Store: SemaphoreExt + TransactionExt + 'static {
    /// The name of the database in the output.
    const NAME: &'static str;

    /// Creates the tables if they are missing, and empties them.
    fn create_tables(&mut self) -> QueryResult<()>;

    /// Sets up the session, before any other statement.
    fn configure_session(&mut self) -> QueryResult<()>;

    fn lists(&mut self) -> QueryResult<Vec<List>>;

    fn last_list(&mut self) -> QueryResult<i64>;

    fn insert_list(&mut self, list: &List) -> QueryResult<()>;

    /// The first lists that the holder of this fence may take.
    fn queued(&mut self, fence: i64, limit: i64) -> QueryResult<Vec<List>>;

    /// Takes the list unless another worker has; returns the number of rows updated.
    fn take(&mut self, list: i64, fence: i64) -> QueryResult<usize>;

    /// Queues the list again, if it still belongs to the fence.
    fn put_back(&mut self, list: i64, fence: i64) -> QueryResult<usize>;

    /// Marks the list as done, if it still belongs to the fence.
    fn set_done(&mut self, list: i64, fence: i64) -> QueryResult<usize>;

    /// Marks the list as done, whatever fence it belongs to.
    fn set_done_unfenced(&mut self, list: i64) -> QueryResult<usize>;

    fn files_of(&mut self, list: i64) -> QueryResult<Vec<String>>;

    /// The names of all log files that are on a list.
    fn queued_logs(&mut self) -> QueryResult<Vec<String>>;

    fn insert_logs(&mut self, names: &[String], list: i64) -> QueryResult<()>;

    /// Parts that are on no list, by hour.
    fn unqueued_parts(&mut self) -> QueryResult<Vec<Part>>;

    fn insert_parts(&mut self, parts: &[Part]) -> QueryResult<()>;

    fn queue_parts(&mut self, names: &[&str], list: i64) -> QueryResult<usize>;

    fn hours(&mut self) -> QueryResult<Vec<HourFile>>;

    fn hour(&mut self, hour: &str) -> QueryResult<Option<HourFile>>;

    fn insert_hour(&mut self, file: &HourFile) -> QueryResult<usize>;

    /// Replaces the hour's file if its fence is smaller; returns the number of rows updated.
    fn replace_hour(&mut self, file: &HourFile) -> QueryResult<usize>;

    /// Replaces the hour's file, whatever its fence.
    fn replace_hour_unfenced(&mut self, file: &HourFile) -> QueryResult<usize>;
}

macro_rules! store {
    (
        $module:ident, $connection:ty, $name:literal,
        tables: $tables:expr,
        configure_session: [$($configure_session:literal),*] $(,)?
    ) => {
        mod $module {
            use diesel::connection::SimpleConnection;
            use diesel::dsl::max;
            use diesel::prelude::*;

            use super::{HourFile, List, Part, Store, state};
            use crate::tables::collate_files::dsl as files;
            use crate::tables::collate_hours::dsl as hours;
            use crate::tables::collate_lists::dsl as lists;
            use crate::tables::{collate_files, collate_hours, collate_lists};

            impl Store for $connection {
                const NAME: &'static str = $name;

                fn create_tables(&mut self) -> QueryResult<()> {
                    self.batch_execute($tables)?;
                    diesel::delete(collate_files::table).execute(self)?;
                    diesel::delete(collate_hours::table).execute(self)?;
                    diesel::delete(collate_lists::table).execute(self)?;
                    Ok(())
                }

                fn configure_session(&mut self) -> QueryResult<()> {
                    let statements: &[&str] = &[$($configure_session),*];
                    statements.iter().try_for_each(|statement| self.batch_execute(statement))
                }

                fn lists(&mut self) -> QueryResult<Vec<List>> {
                    collate_lists::table.load(self)
                }

                fn last_list(&mut self) -> QueryResult<i64> {
                    let last: Option<i64> =
                        collate_lists::table.select(max(lists::id)).first(self)?;
                    Ok(last.unwrap_or(0))
                }

                fn insert_list(&mut self, list: &List) -> QueryResult<()> {
                    diesel::insert_into(collate_lists::table)
                        .values((
                            lists::id.eq(list.id),
                            lists::hour.eq(&list.hour),
                            lists::items.eq(list.items),
                            lists::state.eq(list.state),
                            lists::fence.eq(list.fence),
                        ))
                        .execute(self)?;
                    Ok(())
                }

                fn queued(&mut self, fence: i64, limit: i64) -> QueryResult<Vec<List>> {
                    collate_lists::table
                        .filter(lists::state.eq(state::QUEUED))
                        .filter(lists::fence.lt(fence))
                        .order(lists::id)
                        .limit(limit)
                        .load(self)
                }

                fn take(&mut self, list: i64, fence: i64) -> QueryResult<usize> {
                    let open = collate_lists::table
                        .find(list)
                        .filter(lists::state.eq(state::QUEUED))
                        .filter(lists::fence.lt(fence));
                    diesel::update(open)
                        .set((lists::state.eq(state::TAKEN), lists::fence.eq(fence)))
                        .execute(self)
                }

                fn put_back(&mut self, list: i64, fence: i64) -> QueryResult<usize> {
                    let taken = collate_lists::table
                        .find(list)
                        .filter(lists::state.eq(state::TAKEN))
                        .filter(lists::fence.eq(fence));
                    diesel::update(taken).set(lists::state.eq(state::QUEUED)).execute(self)
                }

                fn set_done(&mut self, list: i64, fence: i64) -> QueryResult<usize> {
                    let taken = collate_lists::table
                        .find(list)
                        .filter(lists::state.eq(state::TAKEN))
                        .filter(lists::fence.eq(fence));
                    diesel::update(taken).set(lists::state.eq(state::DONE)).execute(self)
                }

                fn set_done_unfenced(&mut self, list: i64) -> QueryResult<usize> {
                    diesel::update(collate_lists::table.find(list))
                        .set(lists::state.eq(state::DONE))
                        .execute(self)
                }

                fn files_of(&mut self, list: i64) -> QueryResult<Vec<String>> {
                    collate_files::table
                        .filter(files::list_id.eq(list))
                        .order(files::name)
                        .select(files::name)
                        .load(self)
                }

                fn queued_logs(&mut self) -> QueryResult<Vec<String>> {
                    collate_files::table
                        .filter(files::hour.is_null())
                        .select(files::name)
                        .load(self)
                }

                fn insert_logs(&mut self, names: &[String], list: i64) -> QueryResult<()> {
                    let rows: Vec<_> = names
                        .iter()
                        .map(|name| (files::name.eq(name), files::list_id.eq(list)))
                        .collect();
                    diesel::insert_into(collate_files::table).values(rows).execute(self)?;
                    Ok(())
                }

                fn unqueued_parts(&mut self) -> QueryResult<Vec<Part>> {
                    collate_files::table
                        .filter(files::list_id.is_null())
                        .filter(files::hour.is_not_null())
                        .order(files::hour)
                        .select((files::hour.assume_not_null(), files::name))
                        .load(self)
                }

                fn insert_parts(&mut self, parts: &[Part]) -> QueryResult<()> {
                    let rows: Vec<_> = parts
                        .iter()
                        .map(|(hour, name)| (files::name.eq(name), files::hour.eq(hour)))
                        .collect();
                    diesel::insert_into(collate_files::table).values(rows).execute(self)?;
                    Ok(())
                }

                fn queue_parts(&mut self, names: &[&str], list: i64) -> QueryResult<usize> {
                    diesel::update(collate_files::table.filter(files::name.eq_any(names)))
                        .set(files::list_id.eq(list))
                        .execute(self)
                }

                fn hours(&mut self) -> QueryResult<Vec<HourFile>> {
                    collate_hours::table.order(hours::hour).load(self)
                }

                fn hour(&mut self, hour: &str) -> QueryResult<Option<HourFile>> {
                    collate_hours::table.find(hour).first(self).optional()
                }

                fn insert_hour(&mut self, file: &HourFile) -> QueryResult<usize> {
                    diesel::insert_into(collate_hours::table)
                        .values((
                            hours::hour.eq(&file.hour),
                            hours::name.eq(&file.name),
                            hours::line_count.eq(file.lines),
                            hours::fence.eq(file.fence),
                        ))
                        .execute(self)
                }

                fn replace_hour(&mut self, file: &HourFile) -> QueryResult<usize> {
                    let older = collate_hours::table
                        .find(&file.hour)
                        .filter(hours::fence.lt(file.fence));
                    diesel::update(older)
                        .set((
                            hours::name.eq(&file.name),
                            hours::line_count.eq(file.lines),
                            hours::fence.eq(file.fence),
                        ))
                        .execute(self)
                }

                fn replace_hour_unfenced(&mut self, file: &HourFile) -> QueryResult<usize> {
                    diesel::update(collate_hours::table.find(&file.hour))
                        .set((
                            hours::name.eq(&file.name),
                            hours::line_count.eq(file.lines),
                            hours::fence.eq(file.fence),
                        ))
                        .execute(self)
                }
            }
        }
    };
}

// In WAL mode readers and the writer do not block each other; the mode is stored in the file. A process that is stopped while
// it writes makes all others wait until it continues.
store!(
    sqlite, SqliteConnection, "sqlite",
    tables: concat!("PRAGMA journal_mode = WAL; ", include_str!("store/postgres_sqlite.sql")),
    configure_session: ["PRAGMA busy_timeout = 60000", "PRAGMA synchronous = NORMAL"],
);

#[cfg(feature = "postgres")]
store!(
    postgres, PgConnection, "postgres",
    tables: include_str!("store/postgres_sqlite.sql"),
    configure_session: [],
);

#[cfg(feature = "mysql")]
store!(
    mysql, MysqlConnection, "mysql",
    tables: include_str!("store/mysql.sql"),
    configure_session: [],
);
