//! The tables as Diesel's `table!`, the type of names, and what every engine checks of a change.

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql};
use diesel::dsl::{Eq, GtEq, Lt};
use diesel::expression::{AsExpression, Expression};
#[cfg(feature = "_mysql")]
use diesel::mysql::{Mysql, MysqlType, MysqlValue};
#[cfg(feature = "_postgres")]
use diesel::pg::{Pg, PgTypeMetadata};
use diesel::prelude::ExpressionMethods;
use diesel::query_builder::QueryId;
use diesel::query_dsl::methods;
use diesel::serialize::{self, Output, ToSql};
#[cfg(feature = "_mysql")]
use diesel::sql_types::Binary;
use diesel::sql_types::{HasSqlType, SqlType, Text};
#[cfg(feature = "_sqlite")]
use diesel::sqlite::{Sqlite, SqliteType};

use crate::Error;
use crate::values::list_options::TextRange;

diesel::table! {
    diesel_locks_fences (id) {
        id -> Integer,
        fence -> BigInt,
    }
}

diesel::table! {
    use diesel::sql_types::{Bool, Integer};
    use super::Name;

    diesel_locks_objects (id) {
        id -> Name,
        kept -> Bool,
        // On PostgreSQL only.
        advisory_key -> Integer,
    }
}

diesel::table! {
    use diesel::sql_types::Integer;
    use super::Name;

    diesel_locks_semaphores (name) {
        name -> Name,
        permits -> Integer,
    }
}

diesel::table! {
    use diesel::sql_types::BigInt;
    use super::Name;

    diesel_locks_sequences (name, scope) {
        name -> Name,
        scope -> Name,
        last -> BigInt,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Binary, Integer, Nullable};
    use super::Name;

    // On PostgreSQL the fence is part of the key too.
    diesel_locks_slots (name, number) {
        name -> Name,
        number -> Integer,
        token -> Nullable<Binary>,
        holder -> Nullable<Name>,
        fence -> BigInt,
        acquired_us -> BigInt,
        expires_us -> BigInt,
        hold_until_us -> BigInt,
        release_requested_us -> BigInt,
        data -> Nullable<Name>,
    }
}

diesel::table! {
    use diesel::sql_types::BigInt;
    use super::Name;

    diesel_locks_wanted (id) {
        id -> Name,
        until_us -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(diesel_locks_semaphores, diesel_locks_slots);

/// The type of names and ids: texts; on MySQL and MariaDB bytes, which no collation compares.
#[derive(Clone, Copy, Debug, Default, QueryId, SqlType)]
pub struct Name;

#[derive(AsExpression, Clone, Copy, Debug, PartialEq, Eq)]
#[diesel(sql_type = Name)]
pub struct Named<'a>(pub(crate) &'a str);

impl<DB: Backend> ToSql<Name, DB> for Named<'_>
where
    str: ToSql<Text, DB>,
{
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
        ToSql::<Text, DB>::to_sql(self.0, out)
    }
}

#[cfg(feature = "_postgres")]
impl HasSqlType<Name> for Pg {
    fn metadata(lookup: &mut Self::MetadataLookup) -> PgTypeMetadata {
        <Self as HasSqlType<Text>>::metadata(lookup)
    }
}

#[cfg(feature = "_mysql")]
impl HasSqlType<Name> for Mysql {
    fn metadata((): &mut ()) -> MysqlType {
        <Self as HasSqlType<Binary>>::metadata(&mut ())
    }
}

#[cfg(feature = "_sqlite")]
impl HasSqlType<Name> for Sqlite {
    fn metadata((): &mut ()) -> SqliteType {
        <Self as HasSqlType<Text>>::metadata(&mut ())
    }
}

#[cfg(feature = "_postgres")]
impl FromSql<Name, Pg> for String {
    fn from_sql(value: diesel::pg::PgValue<'_>) -> deserialize::Result<Self> {
        FromSql::<Text, Pg>::from_sql(value)
    }
}

/// Whatever the bytes are: they may be written by hand.
#[cfg(feature = "_mysql")]
impl FromSql<Name, Mysql> for String {
    fn from_sql(value: MysqlValue<'_>) -> deserialize::Result<Self> {
        Ok(Self::from_utf8_lossy(value.as_bytes()).into_owned())
    }
}

#[cfg(feature = "_sqlite")]
impl FromSql<Name, Sqlite> for String {
    fn from_sql(value: <Sqlite as Backend>::RawValue<'_>) -> deserialize::Result<Self> {
        FromSql::<Text, Sqlite>::from_sql(value)
    }
}

pub(crate) const OBJECTS: &str = "diesel_locks_objects";
pub(crate) const SLOTS: &str = "diesel_locks_slots";
pub(crate) const FENCES: &str = "diesel_locks_fences";
pub(crate) const SEMAPHORES: &str = "diesel_locks_semaphores";
pub(crate) const SEQUENCES: &str = "diesel_locks_sequences";

/// What the migrations create: the columns that all engines have, by the names of the engine's types, and what else is of one engine.
pub(crate) fn parts(
    [name, boolean, integer, bigint, token]: [&str; 5],
    others: &[&str],
) -> Vec<String> {
    let columns = [
        ("objects.id", name),
        ("objects.kept", boolean),
        ("slots.name", name),
        ("slots.number", integer),
        ("slots.token", token),
        ("slots.holder", name),
        ("slots.fence", bigint),
        ("slots.acquired_us", bigint),
        ("slots.expires_us", bigint),
        ("slots.hold_until_us", bigint),
        ("slots.release_requested_us", bigint),
        ("slots.data", name),
        ("semaphores.name", name),
        ("semaphores.permits", integer),
        ("fences.id", integer),
        ("fences.fence", bigint),
        ("sequences.name", name),
        ("sequences.scope", name),
        ("sequences.last", bigint),
    ];
    let columns = columns.map(|(column, sql_type)| format!("diesel_locks_{column} {sql_type}"));
    let others = others.iter().map(|part| (*part).to_owned());
    columns.into_iter().chain(others).collect()
}

/// How long the mark of a session lasts that wants an exclusive lock: longer than the pause between two of its attempts.
pub(crate) const WANTED_US: i64 = 200_000;

pub(crate) fn protected(table: &'static str) -> Error {
    let source = None;
    Error::ProtectedRow { table, source }
}

pub(crate) fn assert_changed(changed: usize, table: &'static str) -> Result<(), Error> {
    if changed == 0 {
        return Err(protected(table));
    }
    Ok(())
}

/// Adds the conditions of a range to a query that lists rows. Such queries are not cached: an operator runs them now and then.
pub(crate) fn in_range<'a, Q, C>(mut query: Q, column: C, range: &'a TextRange) -> Q
where
    Q: methods::FilterDsl<Eq<C, Named<'a>>, Output = Q>
        + methods::FilterDsl<GtEq<C, Named<'a>>, Output = Q>
        + methods::FilterDsl<Lt<C, Named<'a>>, Output = Q>,
    C: ExpressionMethods + Expression<SqlType = Name> + Copy,
{
    if let Some(text) = &range.equal {
        query = methods::FilterDsl::filter(query, column.eq(Named(text)));
    }
    if let Some(text) = &range.from {
        query = methods::FilterDsl::filter(query, column.ge(Named(text)));
    }
    if let Some(text) = &range.below {
        query = methods::FilterDsl::filter(query, column.lt(Named(text)));
    }
    query
}
