//! An enum of connections, and a struct around one, as an application has them.

use diesel::connection::{
    AnsiTransactionManager, CacheSize, Connection, Instrumentation, LoadConnection,
    SimpleConnection,
};
use diesel::expression::QueryMetadata;
use diesel::prelude::*;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::r2d2::R2D2Connection;
use diesel_locks::{ConnectionWrapper, InnerConnection};

/// The connection of an application that works on each engine.
#[derive(diesel::MultiConnection)]
pub(crate) enum AnyConnection {
    Postgres(PgConnection),
    Mysql(MysqlConnection),
    Sqlite(SqliteConnection),
}

impl ConnectionWrapper for AnyConnection {
    fn inner_connection(&mut self) -> InnerConnection<'_> {
        match self {
            Self::Postgres(conn) => conn.into(),
            Self::Mysql(conn) => conn.into(),
            Self::Sqlite(conn) => conn.into(),
        }
    }
}

/// A connection that counts the statements of the application.
pub(crate) struct Counted<C> {
    inner: C,
    pub(crate) statements: usize,
    /// Counts open transactions in place of the inner connection, if there is one.
    own_state: Option<AnsiTransactionManager>,
}

impl<C> Counted<C> {
    fn new(inner: C) -> Self {
        Self {
            inner,
            statements: 0,
            own_state: None,
        }
    }

    /// A wrapper that does what its documentation says that it must not.
    pub(crate) fn with_own_state(inner: C) -> Self {
        Self {
            own_state: Some(AnsiTransactionManager::default()),
            ..Self::new(inner)
        }
    }
}

impl<C> ConnectionWrapper for Counted<C>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
    for<'a> InnerConnection<'a>: From<&'a mut C>,
{
    fn inner_connection(&mut self) -> InnerConnection<'_> {
        (&mut self.inner).into()
    }
}

// An application names it by Diesel's feature `i-implement-a-third-party-backend-and-opt-into-breaking-changes`, which
// would be on for this crate too.
impl<C> diesel::internal::derives::multiconnection::ConnectionSealed for Counted<C> {}

impl<C: SimpleConnection> SimpleConnection for Counted<C> {
    fn batch_execute(&mut self, query: &str) -> QueryResult<()> {
        self.statements += 1;
        self.inner.batch_execute(query)
    }
}

impl<C> Connection for Counted<C>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
{
    type Backend = C::Backend;
    type TransactionManager = AnsiTransactionManager;

    fn establish(url: &str) -> ConnectionResult<Self> {
        C::establish(url).map(Self::new)
    }

    fn execute_returning_count<T>(&mut self, source: &T) -> QueryResult<usize>
    where
        T: QueryFragment<Self::Backend> + QueryId,
    {
        self.statements += 1;
        self.inner.execute_returning_count(source)
    }

    fn transaction_state(&mut self) -> &mut AnsiTransactionManager {
        let own = self.own_state.as_mut();
        own.unwrap_or_else(|| self.inner.transaction_state())
    }

    fn instrumentation(&mut self) -> &mut dyn Instrumentation {
        self.inner.instrumentation()
    }

    fn set_instrumentation(&mut self, instrumentation: impl Instrumentation) {
        self.inner.set_instrumentation(instrumentation);
    }

    fn set_prepared_statement_cache_size(&mut self, size: CacheSize) {
        self.inner.set_prepared_statement_cache_size(size);
    }
}

impl<C> LoadConnection for Counted<C>
where
    C: LoadConnection + Connection<TransactionManager = AnsiTransactionManager>,
{
    type Cursor<'conn, 'query>
        = C::Cursor<'conn, 'query>
    where
        C: 'conn;
    type Row<'conn, 'query>
        = C::Row<'conn, 'query>
    where
        C: 'conn;

    fn load<'conn, 'query, T>(
        &'conn mut self,
        source: T,
    ) -> QueryResult<Self::Cursor<'conn, 'query>>
    where
        T: Query + QueryFragment<Self::Backend> + QueryId + 'query,
        Self::Backend: QueryMetadata<T::SqlType>,
    {
        self.statements += 1;
        self.inner.load(source)
    }
}

impl<C> R2D2Connection for Counted<C>
where
    C: R2D2Connection + Connection<TransactionManager = AnsiTransactionManager>,
{
    fn ping(&mut self) -> QueryResult<()> {
        self.inner.ping()
    }

    fn is_broken(&mut self) -> bool {
        self.inner.is_broken()
    }
}

/// A wrapper of connections of the type `C`.
pub(crate) trait Wraps<C> {
    fn wrap(conn: C) -> Self;

    fn inner(&mut self) -> &mut C;

    fn into_inner(self) -> C;
}

macro_rules! variant {
    ($variant:ident: $conn:ty) => {
        impl Wraps<$conn> for AnyConnection {
            fn wrap(conn: $conn) -> Self {
                Self::$variant(conn)
            }

            fn inner(&mut self) -> &mut $conn {
                let Self::$variant(conn) = self else {
                    unreachable!("another engine");
                };
                conn
            }

            fn into_inner(self) -> $conn {
                let Self::$variant(conn) = self else {
                    unreachable!("another engine");
                };
                conn
            }
        }
    };
}

variant!(Postgres: PgConnection);
variant!(Mysql: MysqlConnection);
variant!(Sqlite: SqliteConnection);

impl<C> Wraps<C> for Counted<C> {
    fn wrap(inner: C) -> Self {
        Self::new(inner)
    }

    fn inner(&mut self) -> &mut C {
        &mut self.inner
    }

    fn into_inner(self) -> C {
        self.inner
    }
}
