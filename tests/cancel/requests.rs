//! When cancel requests to MySQL and MariaDB come.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{io, thread};

use diesel_async::{AsyncConnection, AsyncMysqlConnection};
use diesel_locks::prelude::*;
use diesel_locks::{InspectExt, ListOptions};
use tokio::time::sleep;

use crate::support::dropped::{End, LONG, poll_then_drop};
use crate::support::engine::{Activity, BoxFuture, Engine};
use crate::support::mysql::Mysql;
use crate::support::watch::{HOUR, Watch};

/// Between one client and its server. The cancel requests of the client are connections of their own.
struct Proxy {
    port: u16,
    requests: Arc<Requests>,
}

/// The requests, which reach the server when they may.
#[derive(Default)]
struct Requests {
    /// When the first one came.
    first: Mutex<Option<Instant>>,
    may_pass: Mutex<bool>,
    changed: Condvar,
}

impl Proxy {
    /// `server`: host and port.
    fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let requests = Arc::new(Requests::default());
        let held = Arc::clone(&requests);
        thread::spawn(move || {
            let mut clients = listener.incoming().map(|client| client.expect("a client"));
            forward(&clients.next().expect("a client"), &server);
            for request in clients {
                held.first
                    .lock()
                    .expect("no panic")
                    .get_or_insert_with(Instant::now);
                let (held, server) = (Arc::clone(&held), server.clone());
                thread::spawn(move || {
                    let may_pass = held.may_pass.lock().expect("no panic");
                    let waited = held.changed.wait_while(may_pass, |may_pass| !*may_pass);
                    drop(waited.expect("no panic"));
                    forward(&request, &server);
                });
            }
        });
        Self { port, requests }
    }

    /// When the first cancel request has come.
    async fn first_request(&self) -> Instant {
        let started = Instant::now();
        loop {
            if let Some(first) = *self.requests.first.lock().expect("no panic") {
                return first;
            }
            assert!(started.elapsed() < LONG, "no cancel request comes");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        *self.requests.may_pass.lock().expect("no panic") = true;
        self.requests.changed.notify_all();
    }
}

fn forward(client: &TcpStream, server: &str) {
    let server = TcpStream::connect(server).expect("the server answers");
    for (from, to) in [(client, &server), (&server, client)] {
        let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
        let (mut from, mut to) = (clone(from), clone(to));
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
}

/// What a release takes at the most that no cancel request meets.
const RELEASE: Duration = Duration::from_millis(50);

/// The statement that releases the slot of a dropped acquisition has some time before the first cancel request comes. If none
/// meets it, the slot is free when the session has ended.
#[tokio::test]
async fn slow_release_of_a_dropped_future_is_not_cancelled() {
    let database = Mysql::new();
    let watch = Watch::new(&database);
    let semaphore = Semaphore::new("workers", 1);
    let address = database.address().expect("a server");
    let never = || -> BoxFuture<'static, bool> { Box::pin(async { false }) };
    for polls in 1.. {
        let proxy = Proxy::to(address.clone());
        let database = database.by_way_of(proxy.port).expect("a server");
        let conn = AsyncMysqlConnection::establish(&database.url()).await;
        let mut conn = conn.expect("a connection");
        let session = Mysql::session(&mut conn).await;
        let lease = LeaseOptions::new(HOUR);
        let acquired = Box::pin(conn.acquire_slot(&semaphore, lease, Wait::No));
        let (end, dropped) = poll_then_drop(acquired, polls, &never).await;
        match end {
            End::Dropped => {}
            End::Ready(acquired) => {
                let _held = acquired.expect("a free slot");
                break;
            }
            end => panic!("after {polls} polls: {end:?}"),
        }
        let pause = proxy.first_request().await - dropped;
        assert!(pause >= RELEASE, "after {polls} polls: {pause:?}");
        while watch.activity(session).await != Some(Activity::Gone) {
            let time = dropped.elapsed();
            assert!(time < LONG, "after {polls} polls: it runs after {time:?}");
            sleep(Duration::from_millis(1)).await;
        }
        let held = watch.with(|conn| conn.held_slots(&ListOptions::new()).expect("rows"));
        let held = held.await;
        assert!(held.is_empty(), "after {polls} polls: {held:?}");
    }
}
