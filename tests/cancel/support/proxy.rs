//! Between clients and a server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

/// One of its connections stops answering, and stays open.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// How many messages of clients come before, and with that which is not forwarded.
    left: Arc<AtomicI64>,
}

impl Proxy {
    /// `server`: host and port.
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let (counted, server) = (Arc::clone(&left), server.to_owned());
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a client");
                let server = TcpStream::connect(&server).expect("the server answers");
                let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
                let (from, to, left) = (clone(&client), clone(&server), Arc::clone(&counted));
                thread::spawn(move || pump(from, to, || left.fetch_sub(1, Ordering::SeqCst) != 1));
                thread::spawn(move || pump(server, client, || true));
            }
        });
        Self { port, left }
    }

    /// Does not forward this message of the clients, counted from now on from 1, nor what follows it on its connection.
    pub(crate) fn stall_at(&self, message: i64) {
        self.left.store(message, Ordering::SeqCst);
    }

    pub(crate) fn has_stalled(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }
}

/// Forwards until `forwards` returns false, and then only reads.
fn pump(mut from: TcpStream, mut to: TcpStream, mut forwards: impl FnMut() -> bool) {
    let mut buffer = [0; 16 * 1024];
    let mut stalled = false;
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        stalled = stalled || !forwards();
        if !stalled && to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}
