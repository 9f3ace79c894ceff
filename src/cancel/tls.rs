//! How cancel requests to PostgreSQL are encrypted.

use std::pin::Pin;
use std::sync::{PoisonError, RwLock};

use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{CancelToken, Error, NoTls, Socket};

type Cancelling = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

type Cancel = Box<dyn Fn(CancelToken) -> Cancelling + Send + Sync>;

static ENCRYPTED: RwLock<Option<Cancel>> = RwLock::new(None);

/// Encrypts the requests by which a dropped future has PostgreSQL cancel its statement.
///
/// A request is a connection of its own, and diesel-async does not tell how a connection was encrypted. Call this once, when
/// the application starts, with the TLS connector of its connections. Without this call, cancel requests are sent
/// unencrypted, as libpq's `PQcancel` does. PostgreSQL accepts them. They fail if the URL has `sslmode=require`: that is logged
/// as a warning, and the statement runs until it ends by itself. They have no effect, which nothing reports, if the URL has
/// another `sslmode` and a proxy requires TLS. See [Dropped futures](crate::operation::dropped_futures#tls).
///
/// For the whole process; a later call replaces what an earlier one has set. MySQL and MariaDB need no such call: their
/// requests are encrypted as the connection is.
///
/// ```
/// # use tokio_postgres::NoTls;
/// # struct MakeRustlsConnect;
/// # impl MakeRustlsConnect { fn new(_: ()) -> NoTls { NoTls } }
/// # let client_config = ();
/// let tls = MakeRustlsConnect::new(client_config); // of tokio-postgres-rustls, for example
/// diesel_locks::set_cancel_tls(tls.clone());
/// // `tls` also goes into the `custom_setup` of the pool's `ManagerConfig`.
/// ```
///
/// [With diesel-async](https://github.com/diesel-locks/diesel-locks/blob/main/docs/async.md#tls) shows such a pool.
#[doc(alias("sslmode", "ssl", "rustls", "cancel_query"))]
pub fn set_cancel_tls<T>(tls: T)
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let cancel = move |token: CancelToken| -> Cancelling {
        let tls = tls.clone();
        Box::pin(async move { token.cancel_query(tls).await })
    };
    *ENCRYPTED.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(cancel));
}

/// Has the server cancel the statement that runs.
pub(crate) async fn cancel(token: CancelToken) -> Result<(), Error> {
    let encrypted = {
        let cancel = ENCRYPTED.read().unwrap_or_else(PoisonError::into_inner);
        cancel.as_ref().map(|cancel| cancel(token.clone()))
    };
    match encrypted {
        Some(request) => request.await,
        None => token.cancel_query(NoTls).await,
    }
}
