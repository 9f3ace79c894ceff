//! Statements of fixed text with bound values, for what the DSL can't express; those that connections send by themselves; and
//! how an untracked transaction is recognised on PostgreSQL.

use crate::Error;
use crate::error::classify::{ErrorClass, classify};

/// Pushes literal texts, constants (in braces), bound values and other fragments (in brackets), in the order given.
macro_rules! push {
    ($out:expr $(;)?) => {};
    ($out:expr; {$text:expr} $(, $sql_type:ty = $value:expr)? $(; $($rest:tt)*)?) => {
        $out.push_sql($text);
        $($out.push_bind_param::<$sql_type, _>($value)?;)?
        $($crate::link::raw_sql::push!($out; $($rest)*);)?
    };
    ($out:expr; [$fragment:expr] $(; $($rest:tt)*)?) => {
        diesel::query_builder::QueryFragment::walk_ast($fragment, $out.reborrow())?;
        $($crate::link::raw_sql::push!($out; $($rest)*);)?
    };
    ($out:expr; $text:literal $(, $sql_type:ty = $value:expr)? $(; $($rest:tt)*)?) => {
        $out.push_sql($text);
        $($out.push_bind_param::<$sql_type, _>($value)?;)?
        $($crate::link::raw_sql::push!($out; $($rest)*);)?
    };
}
pub(crate) use push;

/// Defines statements that Diesel caches, unlike those of `sql_query`. Diesel finds a statement by its type, or, with `by text`, by its
/// text, which may then depend on the fields. [`push`] writes the text, or a block does.
macro_rules! statement {
    ($db:ty;) => {};
    (
        $db:ty;
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? { $($field:ident: $field_type:ty),* $(,)? } -> $sql_type:ty, $(by $key:ident,)?
        |$self:ident| { $($text:tt)* }
        $($others:tt)*
    ) => {
        $crate::link::raw_sql::statement! {
            $db;
            $(#[$doc])*
            $name $(<$life>)? { $($field: $field_type),* } -> $sql_type, $(by $key,)?
            |$self, out| { $crate::link::raw_sql::push!(out; $($text)*); }
            $($others)*
        }
    };
    (
        $db:ty;
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? { $($field:ident: $field_type:ty),* $(,)? } -> $sql_type:ty, $(by $key:ident,)?
        |$self:ident, $out:ident| $walk:block
        $($others:tt)*
    ) => {
        $(#[$doc])*
        pub(crate) struct $name $(<$life>)? {
            $(pub(crate) $field: $field_type),*
        }

        const _: () = {
            pub(crate) struct Marker;

            impl $(<$life>)? diesel::query_builder::QueryId for $name $(<$life>)? {
                type QueryId = Marker;
                const HAS_STATIC_QUERY_ID: bool = <[&str]>::is_empty(&[$(stringify!($key))?]);
            }
        };

        impl $(<$life>)? diesel::query_builder::QueryFragment<$db> for $name $(<$life>)? {
            fn walk_ast<'b>(
                &'b $self,
                mut $out: diesel::query_builder::AstPass<'_, 'b, $db>,
            ) -> diesel::QueryResult<()> {
                $walk
                Ok(())
            }
        }

        impl $(<$life>)? diesel::query_builder::Query for $name $(<$life>)? {
            type SqlType = $sql_type;
        }

        $crate::link::raw_sql::statement! { $db; $($others)* }
    };
}
pub(crate) use statement;

#[cfg(feature = "_sqlite")]
statement! {
    diesel::sqlite::Sqlite;
    /// The connection's `busy_timeout` in milliseconds. Raw, because the DSL has no PRAGMA.
    BusyTimeout {} -> diesel::sql_types::Integer,
    |self| { "PRAGMA busy_timeout" }
}

/// Sets the `busy_timeout`. The value is written as hexadecimal digits, because a PRAGMA has no bound values.
pub(crate) fn set_busy_timeout(millis: i32) -> String {
    format!("PRAGMA busy_timeout = 0x{millis:x}")
}

// A transaction on PostgreSQL that the application has begun by its own SQL: Diesel does not count it.

/// BEGIN that fails in an open transaction that has run a query, or has a savepoint. In any other it is only a warning.
pub(crate) const BEGIN_TRACKED: &str = "BEGIN NOT DEFERRABLE";

/// A query that fails, and names a setting, in a transaction that was open before the message, also in one that has not run
/// a query. Sent after BEGIN, or before a statement outside of a transaction.
///
/// Only at READ COMMITTED: the snapshot of the transaction would be taken here.
pub(crate) const ASSERT_BEGUN: &str = "SELECT CASE WHEN now() <> statement_timestamp() THEN current_setting('diesel_locks.untracked') END";

/// Maps the error of a message with one of the two while a transaction is open that Diesel does not know of. PostgreSQL does not
/// translate names of settings and of statements. Any other error is returned as it is.
pub(crate) fn untracked(error: diesel::result::Error) -> Result<Error, diesel::result::Error> {
    let diesel::result::Error::DatabaseError(_, information) = &error else {
        return Err(error);
    };
    let message = information.message();
    let is_untracked = message.contains("diesel_locks.untracked")
        || message.contains("DEFERRABLE")
        // The application's transaction has failed before.
        || classify(&error) == ErrorClass::TransactionAborted;
    if is_untracked {
        let source = Some(error);
        return Ok(Error::UntrackedTransaction { source });
    }
    Err(error)
}
