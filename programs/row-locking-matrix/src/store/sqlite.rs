//! SQLite: every transaction is serializable, and there are no locks on rows.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;

use super::{Store, common, sending};
use crate::increment::Increment;
use crate::isolation::IsolationLevel;
use crate::way::Way;

impl Store for SqliteConnection {
    fn title(&mut self) -> QueryResult<String> {
        let version: String = diesel::select(sql::<Text>("sqlite_version()")).get_result(self)?;
        Ok(format!("SQLite {version}"))
    }

    fn set_up(&mut self) -> QueryResult<()> {
        self.batch_execute("PRAGMA busy_timeout = 60000; PRAGMA journal_mode = WAL")
    }

    fn beginning(isolation: IsolationLevel) -> Option<String> {
        // Deferred, because BEGIN IMMEDIATE would prevent all conflicts.
        (isolation == IsolationLevel::Serializable).then(|| "BEGIN".to_owned())
    }

    fn increment(way: Way) -> Option<Increment> {
        match way {
            Way::Plain => Some(common::PLAIN),
            Way::Cursor | Way::ForUpdate | Way::CursorForUpdate => None,
            Way::OneUpdate => Some(common::UPDATE_RETURNING),
            Way::NextNumber => Some(Increment::Draw),
        }
    }

    sending!();
}
