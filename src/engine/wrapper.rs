//! Connections of the application around connections of Diesel.

use diesel::connection::{Connection, TransactionManager};

use crate::engine::{Engine, HasBlockingEngine, HasEngine};
use crate::{Error, rt};

/// A connection of the application around one of Diesel's. It gets all methods of this crate, and their closures get the
/// wrapper.
///
/// Implement it for an enum with [`diesel::MultiConnection`], which is one of several connections, and for a struct that
/// implements [`diesel::Connection`] by its inner connection (a wrapper that records statements). An r2d2
/// `PooledConnection` needs no implementation, nor does [diesel-async's `AsyncConnectionWrapper`](#asyncconnectionwrapper).
///
/// The statements of this crate, with BEGIN and COMMIT, are sent on the inner connection, not through the wrapper.
/// The inner connection's [`Instrumentation`](diesel::connection::Instrumentation) sees them.
///
/// A `LockPool` of wrappers queues by objects on SQLite too: before it has a connection it does not know the engine.
///
/// # Transactions
///
/// Diesel counts open transactions in the [`transaction_state`](diesel::Connection) of a connection. The wrapper must
/// return that of the inner connection, as a `MultiConnection` does. Then Diesel's `transaction` on the wrapper and the
/// methods of this crate nest in each other. For a wrapper that counts by itself, each method fails with
/// [`Error::SeparateTransactionState`](crate::Error::SeparateTransactionState), before it sends anything.
///
/// For a pool, let `R2D2Connection::is_broken` return what the inner connection returns. The default, `false`, lets
/// the pool reuse connections whose transaction could not be rolled back.
///
/// # An enum of connections
///
#[cfg_attr(all(feature = "postgres", feature = "sqlite"), doc = "```")]
#[cfg_attr(not(all(feature = "postgres", feature = "sqlite")), doc = "```ignore")]
/// use diesel::prelude::*;
/// use diesel_locks::prelude::*;
/// use diesel_locks::{ConnectionWrapper, InnerConnection};
///
/// diesel::table! {
///     bonds (isin) {
///         isin -> Text,
///         price -> Integer,
///     }
/// }
///
/// #[derive(diesel::MultiConnection)]
/// pub enum AnyConnection {
///     Postgres(PgConnection),
///     Sqlite(SqliteConnection),
/// }
///
/// impl ConnectionWrapper for AnyConnection {
///     fn inner_connection(&mut self) -> InnerConnection<'_> {
///         match self {
///             Self::Postgres(conn) => conn.into(),
///             Self::Sqlite(conn) => conn.into(),
///         }
///     }
/// }
///
/// fn set_price(conn: &mut AnyConnection, isin: &str, price: i32) -> QueryResult<usize> {
///     conn.with_object_lock(ObjectId::new("BondBO", isin), |conn: &mut AnyConnection| {
///         diesel::update(bonds::table.find(isin)).set(bonds::price.eq(price)).execute(conn)
///     })
/// }
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let mut conn = AnyConnection::Sqlite(SqliteConnection::establish(":memory:")?);
///     diesel_locks::migrate(&mut conn)?;
///     diesel::sql_query("CREATE TABLE bonds (isin TEXT PRIMARY KEY, price INTEGER NOT NULL)").execute(&mut conn)?;
///     assert_eq!(set_price(&mut conn, "DK0015966592", 99)?, 0);
///     Ok(())
/// }
/// ```
///
/// # A struct around a connection
///
/// The method is `(&mut self.0).into()`. Diesel allows an application to implement [`diesel::Connection`] with its feature
/// `i-implement-a-third-party-backend-and-opt-into-breaking-changes`. A struct that does not implement it can implement
/// `DerefMut` to the inner connection: it then has the methods too, and their closures get the inner connection.
///
/// # `AsyncConnectionWrapper`
///
/// The connection with which diesel-async replaces libpq and libmysqlclient where an application blocks has the blocking
/// methods, with the features `async-postgres` (around `AsyncPgConnection`), `async-mysql` (around `AsyncMysqlConnection`) and
/// `async-sqlite`. Closures get the `AsyncConnectionWrapper`. As everything that it does, the methods panic in an asynchronous
/// function: call them in `spawn_blocking`.
///
/// ```
/// # #[cfg(feature = "async-sqlite")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use diesel::prelude::*;
/// use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
/// use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
/// use diesel_locks::prelude::*;
///
/// // Usually of `AsyncPgConnection`.
/// type Conn = AsyncConnectionWrapper<SyncConnectionWrapper<SqliteConnection>>;
///
/// let mut conn = Conn::establish(":memory:")?;
/// diesel_locks::migrate(&mut conn)?;
/// let invoice = conn.with_object_lock("Order:4711", |conn: &mut Conn| {
///     conn.next_number(&Sequence::new("invoice"))
/// })?;
/// assert_eq!(invoice, 1);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "async-sqlite"))]
/// # fn main() {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`diesel-locks` has no engine for `{Self}`",
    label = "not `PgConnection`, `MysqlConnection` or `SqliteConnection`, or the engine's feature is off",
    note = "implement `diesel_locks::ConnectionWrapper` for an enum of connections or a struct around one"
)]
#[doc(alias("MultiConnection", "newtype", "instrumentation"))]
pub trait ConnectionWrapper: Connection {
    /// Returns the inner connection: the same one in each call.
    fn inner_connection(&mut self) -> InnerConnection<'_>;

    /// Waits for a future over the inner connection, in the runtime of that. A closure calls this again.
    #[doc(hidden)]
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        rt::block_on(future)
    }
}

/// The connection inside a [`ConnectionWrapper`]. Made from `&mut PgConnection`, `&mut MysqlConnection`,
/// `&mut SqliteConnection`, diesel-async's `&mut AsyncConnectionWrapper` around one of its connections, and another wrapper, by
/// [`From`].
pub struct InnerConnection<'a>(Result<Box<dyn Engine + 'a>, Error>);

impl<'a, C: HasEngine> From<&'a mut C> for InnerConnection<'a> {
    fn from(conn: &'a mut C) -> Self {
        Self(C::engine(conn))
    }
}

/// The engine of a wrapper is that of its inner connection.
#[diagnostic::do_not_recommend]
impl<W: ConnectionWrapper> HasEngine for W {
    fn engine(conn: &mut Self) -> Result<Box<dyn Engine + '_>, Error> {
        let own: *const _ = W::TransactionManager::transaction_manager_status_mut(conn);
        let own = own.addr();
        let mut engine = conn.inner_connection().0?;
        if std::ptr::from_ref(engine.status()).addr() == own {
            Ok(engine)
        } else {
            Err(Error::SeparateTransactionState {
                wrapper: std::any::type_name::<W>(),
            })
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        <W as ConnectionWrapper>::block_on(future)
    }
}

#[diagnostic::do_not_recommend]
impl<W: ConnectionWrapper> HasBlockingEngine for W {}
