//! The tables of meetings and passes, and their statements.

use diesel::prelude::*;
use program_support::connection::AnyConnection;
use program_support::database::Engine;

/// The statements that create the tables.
pub(crate) const TABLES: [(Engine, &str); 3] = [
    (Engine::Sqlite, include_str!("store/sqlite.sql")),
    (Engine::Postgres, include_str!("store/postgres.sql")),
    (Engine::Mysql, include_str!("store/mysql.sql")),
];

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

pub(crate) fn insert_meetings(conn: &mut AnyConnection, ids: &[i64]) -> QueryResult<()> {
    for id in ids {
        let info = format!("The meeting {id}");
        diesel::insert_into(meeting::table)
            .values((meeting::id.eq(id), meeting::info.eq(info)))
            .execute(conn)?;
    }
    Ok(())
}

pub(crate) fn insert_pass(conn: &mut AnyConnection, meeting: i64, number: i64) -> QueryResult<()> {
    diesel::insert_into(pass::table)
        .values((pass::meeting_id.eq(meeting), pass::number.eq(number)))
        .execute(conn)?;
    Ok(())
}

/// The largest number that this transaction can see, read without a lock.
pub(crate) fn largest_number(conn: &mut AnyConnection, meeting: i64) -> QueryResult<Option<i64>> {
    pass::table
        .filter(pass::meeting_id.eq(meeting))
        .select(diesel::dsl::max(pass::number))
        .first(conn)
}

/// The numbers of all passes of a meeting.
pub(crate) fn numbers_of(conn: &mut AnyConnection, meeting: i64) -> QueryResult<Vec<i64>> {
    pass::table
        .filter(pass::meeting_id.eq(meeting))
        .select(pass::number)
        .load(conn)
}
