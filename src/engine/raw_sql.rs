//! Statements of fixed text with bound values, for what the DSL can't express.

/// Defines a statement whose text depends only on its type, so that Diesel caches it, unlike `sql_query`.
macro_rules! statement {
    (
        $db:ty;
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? { $($field:ident: $field_type:ty),* $(,)? } -> $sql_type:ty,
        |$self:ident, $out:ident| $walk:block
    ) => {
        $(#[$doc])*
        pub(in crate::engine) struct $name $(<$life>)? {
            $(pub(in crate::engine) $field: $field_type),*
        }

        const _: () = {
            /// The key of the cached statement.
            pub(in crate::engine) struct Marker;

            impl $(<$life>)? diesel::query_builder::QueryId for $name $(<$life>)? {
                type QueryId = Marker;
                const HAS_STATIC_QUERY_ID: bool = true;
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
    };
}
pub(in crate::engine) use statement;

/// Pushes literal texts, constants (in braces) and bound values, in the order given.
macro_rules! push {
    ($out:expr $(;)?) => {};
    ($out:expr; {$text:expr}, $sql_type:ty = $value:expr $(; $($rest:tt)*)?) => {
        $out.push_sql($text);
        $out.push_bind_param::<$sql_type, _>($value)?;
        $(push!($out; $($rest)*);)?
    };
    ($out:expr; {$text:expr} $(; $($rest:tt)*)?) => {
        $out.push_sql($text);
        $(push!($out; $($rest)*);)?
    };
    ($out:expr; $text:literal $(; $($rest:tt)*)?) => {
        $out.push_sql($text);
        $(push!($out; $($rest)*);)?
    };
    ($out:expr; $text:literal, $sql_type:ty = $value:expr $(; $($rest:tt)*)?) => {
        $out.push_sql($text);
        $out.push_bind_param::<$sql_type, _>($value)?;
        $(push!($out; $($rest)*);)?
    };
}
pub(in crate::engine) use push;
