//! SQLite: every transaction is serializable, and there are no locks on rows.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;

use super::{Store, common, sending};
use crate::increment::Increment;
use crate::isolation::IsolationLevel;
use crate::strategy::Strategy;

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

    fn increment(strategy: Strategy) -> Option<Increment> {
        match strategy {
            Strategy::Plain => Some(common::PLAIN),
            Strategy::Cursor | Strategy::ForUpdate | Strategy::CursorForUpdate => None,
            Strategy::OneUpdate => Some(common::UPDATE_RETURNING),
            Strategy::NextNumber => Some(Increment::Draw),
        }
    }

    sending!();
}
