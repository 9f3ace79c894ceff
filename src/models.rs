//! Rows of the tables, one module per engine.
//!
//! The rows of `diesel_locks_objects` that can be seen are the kept ones, held or not: a transient row
//! is never committed.

macro_rules! model {
    ($backend:ident, $feature:literal, $db:ty, $id:ty $(, #[doc = $doc:literal] $more:ident: $of:ty)*) => {
        #[doc = concat!("Feature `", $feature, "`.")]
        #[cfg(feature = $feature)]
        #[cfg_attr(docsrs, doc(cfg(feature = $feature)))]
        pub mod $backend {
            use diesel::prelude::*;

            use crate::schema::$backend::diesel_locks_objects;

            /// A row of `diesel_locks_objects`.
            #[derive(
                Clone, Debug, PartialEq, Eq, Queryable, Selectable, Insertable, Identifiable,
            )]
            #[diesel(table_name = diesel_locks_objects, check_for_backend($db))]
            pub struct ObjectLockRow {
                /// The object's id (UTF-8).
                pub id: $id,
                /// Whether the row stays when its transaction ends.
                pub kept: bool,
                $(#[doc = $doc] pub $more: $of,)*
            }
        }
    };
}

model!(
    postgres,
    "postgres",
    diesel::pg::Pg,
    String,
    #[doc = "A kept row's lock is `pg_advisory_xact_lock('diesel_locks_objects'::regclass::integer, advisory_key)`."]
    advisory_key: i32
);
model!(mysql, "mysql", diesel::mysql::Mysql, Vec<u8>);
model!(sqlite, "sqlite", diesel::sqlite::Sqlite, String);
