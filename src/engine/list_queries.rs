//! Statements that list semaphores, slots and sequences, in Diesel's DSL on the engine's `table!`. An operator's page runs
//! them now and then: they are built for their filters, and not cached.

/// Adds the conditions of a [`TextRange`](crate::inspect::list_options::TextRange) to a boxed query. `$text`: the Rust type of a
/// bound text.
macro_rules! filter_range {
    ($query:ident, $column:path, $range:expr, $text:ty) => {
        let range: &crate::inspect::list_options::TextRange = $range;
        if let Some(text) = &range.equal {
            let text: &$text = text.as_ref();
            $query = $query.filter($column.eq(text));
        }
        if let Some(text) = &range.from {
            let text: &$text = text.as_ref();
            $query = $query.filter($column.ge(text));
        }
        if let Some(text) = &range.below {
            let text: &$text = text.as_ref();
            $query = $query.filter($column.lt(text));
        }
    };
}
pub(in crate::engine) use filter_range;

/// `$text`: the Rust type of a bound text. `$name`, `$stored`: the types of a name and another text that are read.
/// `$semaphore`, `$held`: those of a row of name, registered permits, last slot and held slots, and of a row of number,
/// token, holder, fence, begin, end and rest of the lease. `$run`: the module whose functions run statements. `$failure`:
/// its error type.
macro_rules! list_queries {
    (
        $schema:ident, $db:ty, $conn:ty, $text:ty,
        $name:ty, $stored:ty, $semaphore:ty, $held:ty, $run:ident, $failure:ty
    ) => {
        use diesel::dsl::{case_when, count, max};
        use diesel::prelude::{ExpressionMethods, JoinOnDsl, NullableExpressionMethods, QueryDsl};

        use crate::engine::clock::{DbNow, LeaseRemaining};
        use crate::engine::list_queries::filter_range;
        use crate::inspect::list_options::ListRequest;
        use crate::schema::$schema::{
            diesel_locks_semaphores as semaphores, diesel_locks_sequences as sequences,
            diesel_locks_slots as slots,
        };

        pub(super) async fn semaphores(
            conn: &mut $conn,
            request: &ListRequest,
        ) -> Result<Vec<$semaphore>, $failure> {
            let held = case_when(slots::expires_us.gt(DbNow {}), slots::number);
            let mut query = slots::table
                .left_join(semaphores::table.on(semaphores::name.eq(slots::name)))
                .group_by(slots::name)
                .select((
                    slots::name,
                    max(semaphores::permits.nullable()),
                    max(slots::number),
                    count(held),
                ))
                .order(slots::name)
                .limit(request.limit)
                .into_boxed::<$db>();
            filter_range!(query, slots::name, &request.names, $text);
            $run::load(conn, query).await
        }

        pub(super) async fn held_slots(
            conn: &mut $conn,
            request: &ListRequest,
        ) -> Result<Vec<($name, $held)>, $failure> {
            let mut query = slots::table
                .filter(slots::expires_us.gt(DbNow {}))
                .order((slots::name, slots::number))
                .select((
                    slots::name,
                    (
                        slots::number,
                        slots::token,
                        slots::holder,
                        slots::fence,
                        slots::acquired_us,
                        slots::expires_us,
                        LeaseRemaining {},
                    ),
                ))
                .limit(request.limit)
                .into_boxed::<$db>();
            filter_range!(query, slots::name, &request.names, $text);
            $run::load(conn, query).await
        }

        /// Name, key and last number.
        pub(super) async fn sequences(
            conn: &mut $conn,
            request: &ListRequest,
        ) -> Result<Vec<($name, $stored, i64)>, $failure> {
            let mut query = sequences::table
                .order((sequences::name, sequences::scope))
                .select((sequences::name, sequences::scope, sequences::last))
                .limit(request.limit)
                .into_boxed::<$db>();
            filter_range!(query, sequences::name, &request.names, $text);
            filter_range!(query, sequences::scope, &request.keys, $text);
            $run::load(conn, query).await
        }
    };
}
pub(in crate::engine) use list_queries;
