//! PostgreSQL.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;

use super::{Store, common, sending};
use crate::increment::{Increment, Reading};
use crate::isolation::IsolationLevel;
use crate::strategy::Strategy;

const FETCH: &str = "FETCH row_locking_cursor";
const WRITE_CURRENT: &str =
    "UPDATE row_locking_counter SET n = ? WHERE CURRENT OF row_locking_cursor";

impl Store for PgConnection {
    fn title(&mut self) -> QueryResult<String> {
        let version: String =
            diesel::select(sql::<Text>("current_setting('server_version')")).get_result(self)?;
        // Packages add text to the version.
        let number = version.split_whitespace().next().unwrap_or_default();
        Ok(format!("PostgreSQL {number}"))
    }

    fn set_up(&mut self) -> QueryResult<()> {
        Ok(())
    }

    fn beginning(isolation: IsolationLevel) -> Option<String> {
        Some(format!("BEGIN ISOLATION LEVEL {isolation}"))
    }

    fn increment(strategy: Strategy) -> Option<Increment> {
        Some(match strategy {
            Strategy::Plain => common::PLAIN,
            Strategy::Cursor => Increment::ReadThenWrite(Reading {
                declare: Some(
                    "DECLARE row_locking_cursor CURSOR FOR \
                     SELECT n FROM row_locking_counter WHERE id = 1",
                ),
                read: FETCH,
                write: WRITE_CURRENT,
                locks: false,
            }),
            Strategy::ForUpdate => common::FOR_UPDATE,
            Strategy::CursorForUpdate => Increment::ReadThenWrite(Reading {
                declare: Some(
                    "DECLARE row_locking_cursor CURSOR FOR \
                     SELECT n FROM row_locking_counter WHERE id = 1 FOR UPDATE",
                ),
                read: FETCH,
                write: WRITE_CURRENT,
                locks: true,
            }),
            Strategy::OneUpdate => common::UPDATE_RETURNING,
            Strategy::NextNumber => Increment::Draw,
        })
    }

    sending!();
}
