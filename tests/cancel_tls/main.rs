//! Cancel requests to PostgreSQL, with and without `set_cancel_tls`. A program of its own, with one test, because that
//! function sets the connector of the whole process.

mod proxy;
#[allow(dead_code, reason = "tests/cancel and tests/asynchronous use the rest")]
#[path = "../cancel/support/mod.rs"]
mod support;
mod warnings;

mod postgres {
    use std::error::Error;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use diesel_async::AsyncPgConnection;
    use diesel_locks::prelude::*;
    use tokio::time::{sleep, timeout};
    use tokio_postgres::NoTls;
    use tokio_postgres_rustls::MakeRustlsConnect;

    use crate::proxy::TlsProxy;
    use crate::support::blocker::Blocker;
    use crate::support::dropped::LONG;
    use crate::support::engine::{Activity, Engine};
    use crate::support::postgres::Postgres;
    use crate::support::runtime::with_threads;
    use crate::support::urls::address;
    use crate::support::watch::{Held, Watch};
    use crate::warnings;

    const ID: &str = "Bond:1";
    const HELD: Held = Held::Object(ID);

    #[test]
    fn cancel_requests_are_encrypted_with_the_connector_that_was_set() {
        with_threads().block_on(cancel_with_and_without_connector());
    }

    async fn cancel_with_and_without_connector() {
        let mut warnings = warnings::record();
        let database = Arc::new(Postgres::new());
        let watch = Watch::new(&*database);
        let proxy = TlsProxy::to(address(&database.url())).await;
        let tls = proxy.connector();
        let by_proxy = database.by_way_of(proxy.port).expect("a server");
        let url = |mode| with_sslmode(&by_proxy.url(), mode);

        let unencrypted = tokio_postgres::connect(&url("disable"), NoTls).await;
        assert!(unencrypted.is_err(), "the proxy requires TLS");
        assert_eq!(proxy.counts().refused, 1);

        let blocker = Blocker::acquire(&database, &HELD).await;
        let session = drop_while_waiting(&url("require"), tls.clone(), &watch).await;
        let warned = timeout(LONG, warnings.recv()).await;
        let warning = warned.expect("a warning").expect("it is recorded");
        assert!(warning.contains("can't be cancelled"), "{warning}");
        assert!(waits(&watch, session).await, "it can't be cancelled");
        blocker.release().await;
        until_gone(&watch, session, "the holder has released").await;
        assert!(is_free(&watch).await);
        while warnings.try_recv().is_ok() {}
        let counts = proxy.counts();
        assert_eq!((counts.sessions, counts.cancel_requests), (1, 0));

        diesel_locks::set_cancel_tls(tls.clone());
        let blocker = Blocker::acquire(&database, &HELD).await;
        let session = drop_while_waiting(&url("require"), tls, &watch).await;
        until_gone(&watch, session, "its statement is cancelled").await;
        assert!(!is_free(&watch).await, "the holder has not released");
        blocker.release().await;
        assert!(is_free(&watch).await);
        assert_eq!(warnings.try_recv().ok(), None);
        let counts = proxy.counts();
        assert_eq!((counts.sessions, counts.refused), (2, 1));
        // A request is repeated while the server has not ended the statement.
        assert!(counts.cancel_requests >= 1, "{counts:?}");
    }

    fn with_sslmode(url: &str, mode: &str) -> String {
        let mark = if url.contains('?') { '&' } else { '?' };
        format!("{url}{mark}sslmode={mode}")
    }

    async fn connect(url: &str, tls: MakeRustlsConnect) -> AsyncPgConnection {
        let connected = tokio_postgres::connect(url, tls).await;
        let (client, conn) =
            connected.unwrap_or_else(|error| panic!("{error}: {:?}", error.source()));
        let established = AsyncPgConnection::try_from_client_and_connection(client, conn).await;
        established.expect("a connection")
    }

    /// Drops a future on a new connection when the server shows that it waits for the lock. Returns the session.
    async fn drop_while_waiting(url: &str, tls: MakeRustlsConnect, watch: &Watch<Postgres>) -> i64 {
        let mut conn = connect(url, tls).await;
        let session = Postgres::session(&mut conn).await.expect("a session");
        let nothing = async |_: &mut AsyncPgConnection| diesel_locks::Result::<_>::Ok(());
        tokio::select! {
            locked = conn.with_object_lock(ID, nothing) => panic!("it was to wait: {locked:?}"),
            () = until_waiting(watch, session) => {}
        }
        session
    }

    async fn waits(watch: &Watch<Postgres>, session: i64) -> bool {
        let blocking = format!("cardinality(pg_blocking_pids({session}))");
        watch.number(blocking).await > 0
    }

    async fn until_waiting(watch: &Watch<Postgres>, session: i64) {
        let started = Instant::now();
        while !waits(watch, session).await {
            assert!(started.elapsed() < LONG, "it does not wait for the lock");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns when the server does not show the session any more.
    async fn until_gone(watch: &Watch<Postgres>, session: i64, reason: &str) {
        let started = Instant::now();
        loop {
            let activity = watch.activity(Some(session)).await.expect("shown");
            if activity == Activity::Gone {
                return;
            }
            assert!(
                started.elapsed() < LONG,
                "{reason}, but the session is left: {activity:?}"
            );
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn is_free(watch: &Watch<Postgres>) -> bool {
        watch.with(|conn| HELD.is_free::<Postgres>(conn)).await
    }
}
