//! A server that stops answering, and keeps its connections.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::proxy::{clone, pump};
use super::urls::{address, by_way_of};

/// Between a server and its clients.
pub(crate) struct StallingProxy(Arc<AtomicBool>);

impl StallingProxy {
    /// With the URL of a server by way of it.
    pub(crate) fn url(url: &str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let stalled = Arc::new(AtomicBool::new(false));
        let (waits, server) = (Arc::clone(&stalled), address(url).to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a client");
                let server = TcpStream::connect(&server).expect("the server answers");
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to, waits) = (clone(from), clone(to), Arc::clone(&waits));
                    std::thread::spawn(move || {
                        pump(from, to, || {
                            while waits.load(Ordering::SeqCst) {
                                std::thread::sleep(Duration::from_millis(5));
                            }
                        });
                    });
                }
            }
        });
        (Self(stalled), by_way_of(port, url))
    }

    pub(crate) fn stall(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn resume(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Drop for StallingProxy {
    fn drop(&mut self) {
        self.resume();
    }
}
