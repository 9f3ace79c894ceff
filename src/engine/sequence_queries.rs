//! Statements for sequences that engines share.

/// The draw on PostgreSQL and SQLite. Raw, because Diesel does not cache an upsert written in its DSL.
#[cfg(any(feature = "_postgres", feature = "_sqlite"))]
macro_rules! upsert_and_return {
    ($db:ty) => {
        /// Fails if enough numbers are left after a draw that has changed nothing: a trigger or a rule suppresses it.
        fn assert_exhausted(
            draw: &crate::sequence::backend::DrawRequest<'_>,
            last: Option<i64>,
        ) -> Result<(), crate::Error> {
            if last.is_some_and(|last| last > draw.max_last) {
                return Ok(());
            }
            Err(crate::Error::ProtectedRow {
                table: "diesel_locks_sequences",
                source: None,
            })
        }

        statement! {
            $db;
            /// Returns the last number of this draw; no row when too few numbers are left.
            Draw<'a> {
                draw: &'a crate::sequence::backend::DrawRequest<'a>
            } -> diesel::sql_types::BigInt,
            |self, out| {
                let sequence = self.draw.sequence;
                push!(out;
                    "INSERT INTO diesel_locks_sequences (name, scope, last) VALUES (",
                        diesel::sql_types::Text = sequence.name();
                    ", ", diesel::sql_types::Text = sequence.scope();
                    ", ", diesel::sql_types::BigInt = &self.draw.initial_last;
                    ") ON CONFLICT (name, scope) DO UPDATE SET last = diesel_locks_sequences.last + ",
                        diesel::sql_types::BigInt = &self.draw.count;
                    " WHERE diesel_locks_sequences.last <= ", diesel::sql_types::BigInt = &self.draw.max_last;
                    " RETURNING last";
                );
            }
        }
    };
}
#[cfg(any(feature = "_postgres", feature = "_sqlite"))]
pub(super) use upsert_and_return;

#[cfg(any(feature = "_postgres", feature = "_sqlite"))]
macro_rules! last_drawn {
    ($schema:ident) => {
        /// The number drawn last that this transaction can see.
        #[diesel::dsl::auto_type]
        fn last_drawn<'a>(name: &'a str, scope: &'a str) -> _ {
            crate::schema::$schema::diesel_locks_sequences::table
                .find((name, scope))
                .select(crate::schema::$schema::diesel_locks_sequences::last)
        }
    };
}
#[cfg(any(feature = "_postgres", feature = "_sqlite"))]
pub(super) use last_drawn;
