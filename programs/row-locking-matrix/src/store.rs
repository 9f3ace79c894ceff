//! The differences between engines, and methods that send statements.

use diesel::connection::AnsiTransactionManager;
use diesel::prelude::*;
use diesel_locks::SequenceExt;

use crate::increment::Increment;
use crate::isolation::IsolationLevel;
use crate::strategy::Strategy;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

pub(crate) trait Store:
    SequenceExt + Connection<TransactionManager = AnsiTransactionManager> + 'static
{
    /// The engine's name and version.
    fn title(&mut self) -> QueryResult<String>;

    /// Sets up the session, before any other statement.
    fn set_up(&mut self) -> QueryResult<()>;

    /// The statement that starts a transaction at this level; `None` if the engine does not have the level.
    fn beginning(isolation: IsolationLevel) -> Option<String>;

    /// The statements of this strategy; `None` if the engine does not have it.
    fn increment(strategy: Strategy) -> Option<Increment>;

    /// Sends a statement; `number` is for its `?`.
    fn run(&mut self, text: &'static str, number: i64) -> QueryResult<usize>;

    /// The number that the statement returns.
    fn number(&mut self, text: &'static str) -> QueryResult<i64>;

    /// The numbers that the statement returns.
    fn numbers(&mut self, text: &'static str) -> QueryResult<Vec<i64>>;
}

/// The methods that send statements. A macro, with the connection as `Self`, because generic code would need too many
/// of Diesel's bounds.
macro_rules! sending {
    () => {
        fn run(&mut self, text: &'static str, number: i64) -> diesel::QueryResult<usize> {
            diesel::RunQueryDsl::execute(crate::statement::Statement { text, number }, self)
        }

        fn number(&mut self, text: &'static str) -> diesel::QueryResult<i64> {
            let statement = crate::statement::Statement { text, number: 0 };
            diesel::RunQueryDsl::get_result(statement, self)
        }

        fn numbers(&mut self, text: &'static str) -> diesel::QueryResult<Vec<i64>> {
            let statement = crate::statement::Statement { text, number: 0 };
            diesel::RunQueryDsl::load(statement, self)
        }
    };
}
use sending;

/// The statements that are the same everywhere.
mod common {
    use crate::increment::{Increment, Reading};

    pub(super) const WRITE: &str = "UPDATE row_locking_counter SET n = ? WHERE id = 1";

    pub(super) const PLAIN: Increment = Increment::ReadThenWrite(Reading {
        declare: None,
        read: "SELECT n FROM row_locking_counter WHERE id = 1",
        write: WRITE,
        locks: false,
    });

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) const FOR_UPDATE: Increment = Increment::ReadThenWrite(Reading {
        declare: None,
        read: "SELECT n FROM row_locking_counter WHERE id = 1 FOR UPDATE",
        write: WRITE,
        locks: true,
    });

    pub(super) const UPDATE_RETURNING: Increment = Increment::Add {
        add: "UPDATE row_locking_counter SET n = n + 1 WHERE id = 1 RETURNING n",
        result: None,
    };
}
