//! Counts round trips: a proxy between client and server that counts how often the client speaks after
//! the server has.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use diesel::Connection;
use diesel_locks::prelude::*;
use diesel_locks::{Error, IsolationLevel, RetryPolicy};

use super::Backend;
use super::urls::{address, by_way_of};

/// Serves one connection.
pub(crate) struct CountingProxy {
    port: u16,
    turns: Arc<AtomicU32>,
}

impl CountingProxy {
    /// `server`: host and port.
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let turns = Arc::new(AtomicU32::new(0));
        let (counted, server) = (Arc::clone(&turns), server.to_owned());
        std::thread::spawn(move || {
            let (client, _) = listener.accept().expect("a client");
            let server = TcpStream::connect(server).expect("the server answers");
            for end in [&client, &server] {
                end.set_nodelay(true).expect("a TCP socket");
            }
            let server_spoke = Arc::new(AtomicBool::new(true));
            let (from, to) = (clone(&server), clone(&client));
            let spoke = Arc::clone(&server_spoke);
            std::thread::spawn(move || {
                pump(from, to, || spoke.store(true, Ordering::SeqCst));
            });
            pump(client, server, || {
                if server_spoke.swap(false, Ordering::SeqCst) {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        });
        Self { port, turns }
    }

    /// The URL of a server, by way of the proxy.
    pub(crate) fn url(url: &str) -> (Self, String) {
        let proxy = Self::to(address(url));
        let url = by_way_of(proxy.port, url);
        (proxy, url)
    }

    /// Round trips of `work`.
    pub(crate) fn count<T>(&self, work: impl FnOnce() -> T) -> u32 {
        let before = self.turns.load(Ordering::SeqCst);
        work();
        self.turns.load(Ordering::SeqCst) - before
    }

    /// Round trips of asynchronous work.
    pub(crate) fn count_async<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = u32> {
        // Not within the future that is returned, which would be as large.
        let work = Box::pin(work);
        async move {
            let before = self.turns.load(Ordering::SeqCst);
            work.await;
            self.turns.load(Ordering::SeqCst) - before
        }
    }
}

/// Round trips to grant a slot, to refuse it to another, to refresh and to release it, when the statements
/// are prepared.
pub(crate) fn round_trips_of_a_slot<B: Backend>() -> [u32; 4] {
    let database = B::new();
    let (proxy, url) = CountingProxy::url(&database.url());
    let mut conn = B::connect_to(&url);
    let one = Semaphore::new("one", 1);
    let minute = Duration::from_secs(60);
    let mut cycle = || {
        let mut slot = None;
        let granted = proxy.count(|| {
            let lease = LeaseOptions::new(minute);
            slot = conn.try_acquire_slot(&one, lease).expect("an answer");
        });
        let mut slot = slot.expect("free");
        let refused = proxy.count(|| {
            let lease = LeaseOptions::new(minute);
            let refused = conn.try_acquire_slot(&one, lease).expect("an answer");
            assert_eq!(refused, None);
        });
        let refreshed = proxy.count(|| {
            conn.renew_slot(&mut slot, minute).expect("ours");
        });
        let released = proxy.count(|| {
            conn.release_slot(&slot).expect("ours");
        });
        [granted, refused, refreshed, released]
    };
    // The first time prepares them, and makes the row.
    cycle();
    cycle()
}

/// Round trips of a draw, and of a look at the last number, when the process knows the sequence.
pub(crate) fn round_trips_of_a_sequence<B: Backend>() -> [u32; 2] {
    // No other test's: what the process knows goes by the name.
    round_trips_of(&B::new(), &Sequence::new("round trips"))
}

/// Round trips of a draw and of a look, in the third transaction.
pub(crate) fn round_trips_of<B: Backend>(database: &B, sequence: &Sequence) -> [u32; 2] {
    let (proxy, url) = CountingProxy::url(&database.url());
    let mut conn = B::connect_to(&url);
    let mut cycle = || {
        let drawn = conn.transaction(|conn| {
            Ok::<_, Error>(proxy.count(|| conn.next_number(sequence).expect("a number")))
        });
        let looked = proxy.count(|| conn.last_number(sequence).expect("rows"));
        [drawn.expect("commit"), looked]
    };
    // The first draw makes the row, the second finds it; both prepare statements.
    cycle();
    cycle();
    cycle()
}

/// Round trips of an empty transaction: Diesel's, and one with level, mode and retry.
pub(crate) fn round_trips_of_a_transaction<B: Backend>() -> [u32; 2] {
    let database = B::new();
    let (proxy, url) = CountingProxy::url(&database.url());
    let mut conn = B::connect_to(&url);
    let nothing = |_: &mut B::Conn| Ok::<_, Error>(());
    // What Diesel closes after connecting has no answer, and counts as a part of the next message or not.
    conn.transaction(nothing).expect("commit");
    let bare = proxy.count(|| conn.transaction(nothing).expect("commit"));
    let asked = TransactionOptions::new()
        .isolation(IsolationLevel::Serializable)
        .read_only()
        .retry(RetryPolicy::max_attempts(3));
    let ours = proxy.count(|| conn.run_transaction(asked, nothing).expect("commit"));
    [bare, ours]
}

pub(super) fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a socket")
}

pub(super) fn pump(mut from: TcpStream, mut to: TcpStream, heard: impl Fn()) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        heard();
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // The other side learns that there is nothing more to come.
    let _ = to.shutdown(std::net::Shutdown::Write);
}
