//! Statements for slots that all engines share, in Diesel's DSL on the engine's `table!`.

/// `$text`, `$sql_text`: the Rust and SQL types of a bound name.
macro_rules! slot_queries {
    ($schema:ident, $db:ty, $text:ty, $sql_text:ty) => {
        // Without `RunQueryDsl`: MySQL runs statements by its own trait.
        use diesel::prelude::{
            BoolExpressionMethods, ExpressionMethods, JoinOnDsl, NullableExpressionMethods, QueryDsl, QueryResult,
        };
        use diesel::query_builder::{AstPass, QueryFragment, QueryId};

        use crate::engine::clock::{DbNowMinus, LeaseRemaining, DbNow};
        use crate::schema::$schema::{diesel_locks_fences, diesel_locks_semaphores, diesel_locks_slots as slots};

        /// The one row of `diesel_locks_fences`.
        const FENCE_ROW_ID: i32 = 1;

        /// A statement that returns the number of changed rows.
        pub(in crate::engine) trait ExecutableQuery:
            QueryFragment<$db> + QueryId
        {
        }
        impl<T: QueryFragment<$db> + QueryId> ExecutableQuery for T {}

        /// The key of a slot and the token that must match.
        pub(in crate::engine) struct Key<'a> {
            pub(in crate::engine) name: &'a $text,
            pub(in crate::engine) number: i32,
            pub(in crate::engine) token: &'a [u8],
            /// 1 in a transaction, otherwise 0.
            pub(in crate::engine) in_transaction: i32,
        }

        /// Sets a new expiry, not before the end of the minimum hold time. If only changed rows are counted, an expiry that is there
        /// already becomes 1 µs later.
        fn push_renew<'b>(out: &mut AstPass<'_, 'b, $db>, lease_us: &'b i64) -> QueryResult<()> {
            out.push_sql("UPDATE diesel_locks_slots SET expires_us = ");
            push_expiry(out, lease_us)?;
            if <$db>::COUNTS_CHANGED_ROWS {
                out.push_sql(" + (expires_us = ");
                push_expiry(out, lease_us)?;
                out.push_sql(")");
            }
            Ok(())
        }

        fn push_expiry<'b>(out: &mut AstPass<'_, 'b, $db>, lease_us: &'b i64) -> QueryResult<()> {
            push!(out; {<$db>::GREATEST}; "(hold_until_us, "; {<$db>::NOW}; " + ", BigInt = lease_us; ")");
            Ok(())
        }

        /// Releases the slot at once, or lets it expire after its minimum hold time.
        fn push_released(out: &mut AstPass<'_, '_, $db>) {
            push!(out;
                " SET token = NULL, expires_us = CASE WHEN hold_until_us > "; {<$db>::NOW};
                " THEN hold_until_us ELSE 0 END";
            );
        }

        /// Releases the slot at once, also before the end of its minimum hold time.
        fn push_released_unused(out: &mut AstPass<'_, '_, $db>) {
            out.push_sql(" SET token = NULL, expires_us = 0, hold_until_us = 0");
        }

        fn push_key_filter<'b>(out: &mut AstPass<'_, 'b, $db>, key: &'b Key<'_>) -> QueryResult<()> {
            push!(out;
                " WHERE name = ", $sql_text = key.name;
                " AND number = ", Integer = &key.number;
                " AND token = ", Binary = key.token;
            );
            if let Some(committed) = <$db>::COMMITTED_AT_ONCE {
                push!(out; " AND ("; {committed}; " OR ", Integer = &key.in_transaction; ")");
            }
            if <$db>::STALE_INDEX_ENTRIES {
                push!(out;
                    " AND fence = (SELECT fence FROM diesel_locks_slots WHERE name = ", $sql_text = key.name;
                    " AND number BETWEEN ", Integer = &key.number;
                    " AND ", Integer = &key.number;
                    " ORDER BY number DESC, fence DESC LIMIT 1)";
                );
            }
            Ok(())
        }

        fn push_unexpired_filter(out: &mut AstPass<'_, '_, $db>) {
            push!(out; " AND expires_us > "; {<$db>::NOW});
        }

        // Raw, because Diesel does not cache an UPDATE written in its DSL.
        statement! {
            $db;
            /// Sets a new expiry.
            Renew<'a> { key: Key<'a>, lease_us: i64 } -> Integer,
            |self, out| {
                push_renew(&mut out, &self.lease_us)?;
                push_key_filter(&mut out, &self.key)?;
            }
        }

        statement! {
            $db;
            /// Sets a new expiry if the lease has not expired.
            RenewUnexpired<'a> { key: Key<'a>, lease_us: i64 } -> Integer,
            |self, out| {
                push_renew(&mut out, &self.lease_us)?;
                push_key_filter(&mut out, &self.key)?;
                push_unexpired_filter(&mut out);
            }
        }

        statement! {
            $db;
            /// Releases the slot.
            Release<'a> { key: Key<'a> } -> Integer,
            |self, out| {
                out.push_sql("UPDATE diesel_locks_slots");
                push_released(&mut out);
                push_key_filter(&mut out, &self.key)?;
            }
        }

        statement! {
            $db;
            /// Releases the slot if its lease has not expired.
            ReleaseUnexpired<'a> { key: Key<'a> } -> Integer,
            |self, out| {
                out.push_sql("UPDATE diesel_locks_slots");
                push_released(&mut out);
                push_key_filter(&mut out, &self.key)?;
                push_unexpired_filter(&mut out);
            }
        }

        statement! {
            $db;
            /// Releases the slot at once, also before the end of its minimum hold time.
            ReleaseUnused<'a> { key: Key<'a> } -> Integer,
            |self, out| {
                out.push_sql("UPDATE diesel_locks_slots");
                push_released_unused(&mut out);
                push_key_filter(&mut out, &self.key)?;
            }
        }

        /// [`ReleaseUnused`] as text, of a slot with this token. Name and token are literals.
        pub(in crate::engine) fn release_unused_text(name: &str, token: &str) -> String {
            format!(
                "UPDATE diesel_locks_slots{} SET token = NULL, expires_us = 0, hold_until_us = 0 \
                 WHERE name = {name} AND token = {token}",
                <$db>::BY_PRIMARY_KEY
            )
        }

        /// The held slots.
        #[allow(dead_code, reason = "on MySQL it needs a time limit")]
        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn held_slots<'a>(name: &'a $text) -> _ {
            let left: LeaseRemaining = LeaseRemaining {};
            let now: DbNow = DbNow {};
            slots::table
                .filter(slots::name.eq(name))
                .filter(slots::expires_us.gt(now))
                .order(slots::number)
                .select((slots::number, slots::fence, left))
        }

        /// The slots that are held, or unavailable until their minimum hold time has passed. With a limit that they do not
        /// exceed: on MySQL a SELECT without one has that of the session (`sql_select_limit`).
        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn held_numbers<'a>(name: &'a $text) -> _ {
            let now: DbNow = DbNow {};
            slots::table
                .filter(slots::name.eq(name))
                .filter(slots::expires_us.gt(now).or(slots::token.is_not_null()))
                .order(slots::number)
                .limit(1_000_000_i64)
                .select((slots::number, slots::expires_us.gt(now)))
        }

        /// Releases a slot whatever its token.
        pub(in crate::engine) fn force_release<'a>(name: &'a $text, number: i32) -> impl ExecutableQuery + 'a {
            let slot = slots::table
                .filter(slots::name.eq(name))
                .filter(slots::number.eq(number));
            diesel::update(slot).set((
                slots::token.eq(None::<&[u8]>),
                slots::expires_us.eq(0_i64),
                slots::hold_until_us.eq(0_i64),
            ))
        }

        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn last_number<'a>(name: &'a $text) -> _ {
            slots::table
                .filter(slots::name.eq(name))
                .order(slots::number.desc())
                .limit(1_i64)
                .select(slots::number)
        }

        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn fence_floor() -> _ {
            let fences: i32 = FENCE_ROW_ID;
            diesel_locks_fences::table
                .filter(diesel_locks_fences::id.eq(fences))
                .select(diesel_locks_fences::fence)
        }

        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn now() -> _ {
            let now: DbNow = DbNow {};
            diesel::dsl::select(now)
        }

        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn last_fence() -> _ {
            let fence: diesel::helper_types::max<slots::fence> = diesel::dsl::max(slots::fence);
            slots::table.select(fence)
        }

        #[allow(dead_code, reason = "on MySQL it needs a time limit")]
        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn count<'a>(name: &'a $text) -> _ {
            slots::table.filter(slots::name.eq(name)).count()
        }

        /// A slot that is free.
        #[diesel::dsl::auto_type]
        fn new_slot<'a>(name: &'a $text, number: i32, fence: i64) -> _ {
            let now: DbNow = DbNow {};
            (
                slots::name.eq(name),
                slots::number.eq(number),
                slots::fence.eq(fence),
                slots::acquired_us.eq(now),
                slots::expires_us.eq(0_i64),
                slots::hold_until_us.eq(0_i64),
            )
        }

        pub(in crate::engine) fn set_fence_floor(fence: i64) -> impl ExecutableQuery {
            diesel::update(diesel_locks_fences::table.find(FENCE_ROW_ID)).set(diesel_locks_fences::fence.eq(fence))
        }

        /// The semaphores that have slots, with the registered number of permits if there is one. With a limit as
        /// [`held_numbers`].
        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn semaphores() -> _ {
            slots::table
                .left_join(diesel_locks_semaphores::table.on(diesel_locks_semaphores::name.eq(slots::name)))
                .filter(slots::number.eq(1_i32))
                .limit(1_000_000_i64)
                .select((slots::name, diesel_locks_semaphores::permits.nullable()))
        }

        /// The last slot that is not deleted.
        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn last_retained<'a>(name: &'a $text, age_us: i64, permits: i32) -> _ {
            let now: DbNow = DbNow {};
            let ago: DbNowMinus = DbNowMinus { micros: age_us };
            slots::table
                .filter(slots::name.eq(name))
                .filter(
                    slots::expires_us
                        .gt(now)
                        .or(slots::acquired_us.gt(ago))
                        .or(slots::number.le(permits)),
                )
                .order(slots::number.desc())
                .limit(1_i64)
                .select(slots::number)
        }

        #[allow(dead_code, reason = "InnoDB would lock the next row too")]
        pub(in crate::engine) fn delete_above<'a>(
            name: &'a $text,
            number: i32,
        ) -> impl ExecutableQuery + 'a {
            diesel::delete(
                slots::table
                    .filter(slots::name.eq(name))
                    .filter(slots::number.gt(number)),
            )
        }
    };
}
pub(in crate::engine) use slot_queries;

/// The statements that only PostgreSQL and MySQL share: several rows in one INSERT, and locks on rows.
#[cfg(any(feature = "_postgres", feature = "_mysql"))]
macro_rules! locking_slot_queries {
    ($text:ty) => {
        pub(in crate::engine) fn insert_slots<'a>(
            name: &'a $text,
            numbers: std::ops::RangeInclusive<i32>,
            fence: i64,
        ) -> impl ExecutableQuery + 'a {
            let rows: Vec<_> = numbers
                .map(|number| new_slot(name, number, fence))
                .collect();
            diesel::insert_into(slots::table).values(rows)
        }

        #[diesel::dsl::auto_type]
        pub(in crate::engine) fn lock_fence_floor() -> _ {
            let fences: i32 = FENCE_ROW_ID;
            diesel_locks_fences::table
                .filter(diesel_locks_fences::id.eq(fences))
                .select(diesel_locks_fences::fence)
                .for_update()
        }
    };
}
#[cfg(any(feature = "_postgres", feature = "_mysql"))]
pub(in crate::engine) use locking_slot_queries;
