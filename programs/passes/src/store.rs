//! The tables of meetings and passes, and their statements for all databases, in Diesel's DSL.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_locks::{SequenceExt, TransactionExt};

diesel::table! {
    meeting (id) {
        id -> BigInt,
        info -> Text,
    }
}

diesel::table! {
    pass (id) {
        id -> BigInt,
        meeting_id -> BigInt,
        number -> BigInt,
    }
}

pub(crate) trait Store: SequenceExt + TransactionExt + Send + 'static {
    /// The name of the database in the output.
    const NAME: &'static str;

    /// Creates the tables if they are missing.
    fn create_tables(&mut self) -> QueryResult<()>;

    /// Sets up the session, before any other statement.
    fn configure_session(&mut self) -> QueryResult<()>;

    fn insert_meetings(&mut self, ids: &[i64]) -> QueryResult<()>;

    fn insert_pass(&mut self, meeting: i64, number: i64) -> QueryResult<()>;

    /// The largest number that this transaction can see, read without a lock.
    fn largest_number(&mut self, meeting: i64) -> QueryResult<Option<i64>>;

    /// The numbers of all passes of a meeting.
    fn numbers_of(&mut self, meeting: i64) -> QueryResult<Vec<i64>>;
}

macro_rules! store {
    (
        $connection:ty, $name:literal,
        tables: $tables:literal,
        configure_session: [$($configure_session:literal),*] $(,)?
    ) => {
        impl Store for $connection {
            const NAME: &'static str = $name;

            fn create_tables(&mut self) -> QueryResult<()> {
                self.batch_execute(include_str!($tables))
            }

            fn configure_session(&mut self) -> QueryResult<()> {
                let statements: &[&str] = &[$($configure_session),*];
                statements.iter().try_for_each(|statement| self.batch_execute(statement))
            }

            fn insert_meetings(&mut self, ids: &[i64]) -> QueryResult<()> {
                for id in ids {
                    let info = format!("The meeting {id}");
                    diesel::insert_into(meeting::table)
                        .values((meeting::id.eq(id), meeting::info.eq(info)))
                        .execute(self)?;
                }
                Ok(())
            }

            fn insert_pass(&mut self, meeting: i64, number: i64) -> QueryResult<()> {
                diesel::insert_into(pass::table)
                    .values((pass::meeting_id.eq(meeting), pass::number.eq(number)))
                    .execute(self)?;
                Ok(())
            }

            fn largest_number(&mut self, meeting: i64) -> QueryResult<Option<i64>> {
                pass::table
                    .filter(pass::meeting_id.eq(meeting))
                    .select(diesel::dsl::max(pass::number))
                    .first(self)
            }

            fn numbers_of(&mut self, meeting: i64) -> QueryResult<Vec<i64>> {
                pass::table
                    .filter(pass::meeting_id.eq(meeting))
                    .select(pass::number)
                    .load(self)
            }
        }
    };
}

store!(
    SqliteConnection, "sqlite",
    tables: "store/sqlite.sql",
    configure_session: [
        "PRAGMA busy_timeout = 60000",
        "PRAGMA synchronous = NORMAL",
        "PRAGMA foreign_keys = ON"
    ],
);

#[cfg(feature = "postgres")]
store!(
    PgConnection, "postgres",
    tables: "store/postgres.sql",
    configure_session: [],
);

#[cfg(feature = "mysql")]
store!(
    MysqlConnection, "mysql",
    tables: "store/mysql.sql",
    configure_session: [],
);
