//! MySQL and MariaDB. Their cursors live in stored procedures and are read-only.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;

use super::{Store, common, sending};
use crate::increment::Increment;
use crate::isolation::IsolationLevel;
use crate::strategy::Strategy;

impl Store for MysqlConnection {
    fn title(&mut self) -> QueryResult<String> {
        let version: String = diesel::select(sql::<Text>("version()")).get_result(self)?;
        let name = if version.contains("MariaDB") {
            "MariaDB"
        } else {
            "MySQL"
        };
        // Packages add text to the version.
        let number = version.split('-').next().unwrap_or_default();
        Ok(format!("{name} {number}"))
    }

    fn set_up(&mut self) -> QueryResult<()> {
        Ok(())
    }

    fn beginning(isolation: IsolationLevel) -> Option<String> {
        // The level applies to the next transaction only. Both statements are sent in one message.
        Some(format!(
            "SET TRANSACTION ISOLATION LEVEL {isolation}; BEGIN"
        ))
    }

    fn increment(strategy: Strategy) -> Option<Increment> {
        match strategy {
            Strategy::Plain => Some(common::PLAIN),
            Strategy::ForUpdate => Some(common::FOR_UPDATE),
            Strategy::Cursor | Strategy::CursorForUpdate => None,
            Strategy::OneUpdate => Some(Increment::Add {
                add: "UPDATE row_locking_counter SET n = LAST_INSERT_ID(n + 1) WHERE id = 1",
                result: Some("SELECT CAST(LAST_INSERT_ID() AS SIGNED)"),
            }),
            Strategy::NextNumber => Some(Increment::Draw),
        }
    }

    sending!();
}
