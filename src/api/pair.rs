//! A pair of extension traits: the same methods for connections that block and for those of diesel-async.

/// Declares a pair of extension traits from one list of methods.
///
/// The blocking trait gets the text of each method. The asynchronous one gets the first line of it, and a link to the rest.
///
/// - `closures`, if there are any: methods that call a closure `f` of the application with the connection.
/// - `engine`: methods that need nothing but the engine of the connection.
///
/// After `|conn|` or `|engine|` stands what both methods await. The lines with `let` convert arguments that need not be `Send`,
/// before a future begins.
macro_rules! pair {
    (
        $(#[$blocking_attribute:meta])*
        pub trait $blocking:ident;

        $(#[$nonblocking_attribute:meta])*
        pub trait $nonblocking:ident;

        $(closures {$(
            #[doc = $call_summary:literal]
            $(#[$call_attribute:meta])*
            fn $call:ident($($call_argument:ident: $call_type:ty),*; $f:ident) -> $call_output:ty {
                $(let $call_converted:ident = $call_conversion:expr;)*
                |$conn:ident| $call_act:expr
            }
        )*})?

        engine {$(
            #[doc = $summary:literal]
            $(#[$attribute:meta])*
            fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty {
                $(let $converted:ident $(: $converted_type:ty)? = $conversion:expr;)*
                |$engine:ident| $act:expr
            }
        )*}
    ) => {
        $(#[$blocking_attribute])*
        #[diagnostic::on_unimplemented(
            message = "`diesel-locks` has no engine for `{Self}`",
            label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
            note = "pass `&mut *conn` for a pooled connection (`PooledConnection`, `Box`, `&mut &mut`)",
            note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one",
            note = "enable the engine's feature of `diesel-locks`: `postgres` for `PgConnection`, `mysql` for \
                    `MysqlConnection`, `sqlite` for `SqliteConnection`"
        )]
        #[allow(clippy::missing_errors_doc, reason = "the page of `Error` lists the errors of each method")]
        pub trait $blocking: crate::engine::HasBlockingEngine {
            $($(
                #[doc = $call_summary]
                $(#[$call_attribute])*
                fn $call<T, E, F>(&mut self, $($call_argument: $call_type,)* $f: F) -> $call_output
                where
                    F: FnOnce(&mut Self) -> Result<T, E>,
                    E: From<crate::Error>,
                {
                    $(let $call_converted = $call_conversion;)*
                    let $conn = self;
                    let mut closure = Some($f);
                    let $f = crate::acts::closures::blocking(&mut closure);
                    Self::block_on(async { $call_act })
                }
            )*)?

            $(
                #[doc = $summary]
                $(#[$attribute])*
                fn $name(&mut self, $($argument: $type),*) -> $output {
                    $(let $converted $(: $converted_type)? = $conversion;)*
                    Self::block_on(async {
                        let mut engine = Self::engine(self)?;
                        let $engine = &mut *engine;
                        $act
                    })
                }
            )*
        }

        #[diagnostic::do_not_recommend]
        impl<C: crate::engine::HasBlockingEngine> $blocking for C {}

        $(#[$nonblocking_attribute])*
        #[diagnostic::on_unimplemented(
            message = "`diesel-locks` has no asynchronous engine for `{Self}`",
            label = "not `AsyncPgConnection`, `AsyncMysqlConnection` or `SyncConnectionWrapper<SqliteConnection>`, or the \
                     engine's feature is off",
            note = "pass `&mut *conn` for a pooled connection",
            note = "enable the engine's feature of `diesel-locks`: `async-postgres`, `async-mysql` or `async-sqlite`"
        )]
        #[cfg(feature = "_async")]
        #[allow(clippy::missing_errors_doc, reason = "as the blocking methods")]
        pub trait $nonblocking: crate::engine::HasAsyncEngine {
            $($(
                #[doc = $call_summary]
                ///
                #[doc = concat!("As [`", stringify!($blocking), "::", stringify!($call), "`](")]
                #[doc = concat!("crate::", stringify!($blocking), "::", stringify!($call), "), without blocking the thread.")]
                fn $call<T, E, F>(
                    &mut self,
                    $($call_argument: $call_type,)*
                    $f: F,
                ) -> impl Future<Output = $call_output> + Send
                where
                    for<'r> F: crate::closures::Work<&'r mut Self, Result<T, E>, Future: Send> + Send,
                    T: Send,
                    E: From<crate::Error> + Send,
                {
                    $(let $call_converted = $call_conversion;)*
                    let $conn = self;
                    Self::droppable(async move { $call_act })
                }
            )*)?

            $(
                #[doc = $summary]
                ///
                #[doc = concat!("As [`", stringify!($blocking), "::", stringify!($name), "`](")]
                #[doc = concat!("crate::", stringify!($blocking), "::", stringify!($name), "), without blocking the thread.")]
                fn $name(
                    &mut self,
                    $($argument: $type),*
                ) -> impl Future<Output = $output> + Send {
                    $(let $converted $(: $converted_type)? = $conversion;)*
                    async move {
                        let mut engine = Self::engine(self)?;
                        let $engine = &mut *engine;
                        $act
                    }
                }
            )*
        }

        #[cfg(feature = "_async")]
        #[diagnostic::do_not_recommend]
        impl<C: crate::engine::HasAsyncEngine> $nonblocking for C {}
    };
}
pub(crate) use pair;
