//! A server that stops answering, and keeps its connections.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::proxy::{clone, pump};
use super::urls::{address, by_way_of};

/// Between a server and its clients. Connections with a number below the limit are stalled.
#[derive(Default)]
pub(crate) struct StallingProxy {
    opened: Arc<AtomicUsize>,
    stalled: Arc<AtomicUsize>,
}

impl StallingProxy {
    /// With the URL of a server by way of it.
    pub(crate) fn url(url: &str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let proxy = Self::default();
        let (opened, all_stalled) = (Arc::clone(&proxy.opened), Arc::clone(&proxy.stalled));
        let server = address(url).to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a client");
                let server = TcpStream::connect(&server).expect("the server answers");
                let number = opened.fetch_add(1, Ordering::SeqCst);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (clone(from), clone(to));
                    let stalled = Arc::clone(&all_stalled);
                    std::thread::spawn(move || {
                        pump(from, to, || {
                            while number < stalled.load(Ordering::SeqCst) {
                                std::thread::sleep(Duration::from_millis(5));
                            }
                        });
                    });
                }
            }
        });
        (proxy, by_way_of(port, url))
    }

    pub(crate) fn stall(&self) {
        self.stalled.store(usize::MAX, Ordering::SeqCst);
    }

    /// Stalls the connections that are open: a new one leads to a server that answers.
    pub(crate) fn stall_open(&self) {
        let opened = self.opened.load(Ordering::SeqCst);
        self.stalled.store(opened, Ordering::SeqCst);
    }

    pub(crate) fn resume(&self) {
        self.stalled.store(0, Ordering::SeqCst);
    }
}

impl Drop for StallingProxy {
    fn drop(&mut self) {
        self.resume();
    }
}
