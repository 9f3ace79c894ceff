//! The table of passes, and its statements.

use diesel::prelude::*;
use program_support::connection::AnyConnection;

/// No unique key: the gap-free sequence ensures that a number is there once.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS pass ( \
     meeting_id BIGINT NOT NULL, \
     number BIGINT NOT NULL)";

diesel::table! {
    pass (meeting_id, number) {
        meeting_id -> BigInt,
        number -> BigInt,
    }
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
