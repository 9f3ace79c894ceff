//! Statements for sequences that engines share.

/// The draw on PostgreSQL and SQLite. Raw, because Diesel does not cache an upsert written in its DSL.
#[cfg(any(feature = "_postgres", feature = "_sqlite"))]
macro_rules! upsert_and_return {
    ($db:ty) => {
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

/// `$text`: the Rust type of a bound name.
macro_rules! last_drawn {
    ($schema:ident, $text:ty) => {
        /// The number drawn last that this transaction can see.
        #[diesel::dsl::auto_type]
        fn last_drawn<'a>(name: &'a $text, scope: &'a $text) -> _ {
            crate::schema::$schema::diesel_locks_sequences::table
                .find((name, scope))
                .select(crate::schema::$schema::diesel_locks_sequences::last)
        }
    };
}
pub(super) use last_drawn;
