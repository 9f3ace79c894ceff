//! The application's table, that of the 2010 insert-delete baseline, and the statements on them.

use diesel::prelude::*;
use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use uuid::Uuid;

diesel::table! {
    bonds {
        id -> Integer,
        price -> Integer,
    }
}

diesel::table! {
    businessobjectlock (uuid) {
        uuid -> Text,
        id -> Text,
        locked_ts -> Timestamp,
    }
}

const CREATE_BONDS: &str =
    "CREATE TABLE bonds (id INTEGER NOT NULL PRIMARY KEY, price INTEGER NOT NULL)";

/// The table of the 2010 baseline: a table like any other, with two indexes.
const CREATE_LOCKS: &str = "CREATE TABLE businessobjectlock
(
  uuid VARCHAR(32) NOT NULL,
  id VARCHAR(80) NOT NULL,
  locked_ts TIMESTAMP NOT NULL,
  CONSTRAINT pk_businessobjectlock PRIMARY KEY (uuid),
  CONSTRAINT id_businessobjectlock UNIQUE (id)
)";

/// Enough for the planner to use the index.
const BONDS: usize = 2000;
/// Between the rows of two connections, so that they are not on the same page.
const APART: usize = 200;

pub(crate) trait Statements: Connection {
    fn create_tables(&mut self) -> QueryResult<()> {
        let rows: Vec<_> = (0..BONDS).map(|id| format!("({id}, 100)")).collect();
        self.batch_execute(CREATE_BONDS)?;
        self.batch_execute(CREATE_LOCKS)?;
        self.batch_execute(&format!("INSERT INTO bonds VALUES {}", rows.join(", ")))
    }

    fn read_bond(&mut self, connection: usize) -> QueryResult<()>;

    fn write_bond(&mut self, connection: usize) -> QueryResult<()>;

    /// The lock of the 2010 insert-delete baseline, in the transaction that is open.
    fn insert_and_delete_lock(&mut self, id: &str) -> QueryResult<()>;
}

fn bond_of(connection: usize) -> i32 {
    i32::try_from(connection * APART % BONDS).expect("less than BONDS")
}

/// Diesel has no way to say "any connection on which these statements run" that is shorter than the
/// statements.
macro_rules! statements {
    ($($connection:ty),*) => {$(
        impl Statements for $connection {
            fn read_bond(&mut self, connection: usize) -> QueryResult<()> {
                bonds::table
                    .find(bond_of(connection))
                    .select(bonds::price)
                    .first::<i32>(self)
                    .map(|_| ())
            }

            fn write_bond(&mut self, connection: usize) -> QueryResult<()> {
                diesel::update(bonds::table.find(bond_of(connection)))
                    .set(bonds::price.eq(bonds::price + 1))
                    .execute(self)
                    .map(|_| ())
            }

            fn insert_and_delete_lock(&mut self, id: &str) -> QueryResult<()> {
                let uuid = Uuid::new_v4().simple().to_string();
                diesel::insert_into(businessobjectlock::table)
                    .values((
                        businessobjectlock::uuid.eq(&uuid),
                        businessobjectlock::id.eq(id),
                        businessobjectlock::locked_ts.eq(diesel::dsl::now),
                    ))
                    .execute(self)?;
                diesel::delete(businessobjectlock::table.find(&uuid)).execute(self)?;
                Ok(())
            }
        }
    )*};
}

statements!(PgConnection, MysqlConnection, SqliteConnection);
