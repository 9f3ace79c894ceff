//! A connection to the database that can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Between an instance and its database.
#[derive(Clone, Default)]
pub(crate) struct Proxy {
    is_cut: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// With the URL of the database by way of it.
    pub(crate) fn url(url: &str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (_, rest) = url.split_once("://").expect("a URL");
        let (authority, _) = rest.split_once('/').expect("a database");
        let server = authority.rsplit('@').next().expect("a host").to_owned();
        let by_way = url.replacen(&server, &format!("127.0.0.1:{port}"), 1);
        let proxy = Self::default();
        let accepting = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.serve(&client, &server);
            }
        });
        (proxy, by_way)
    }

    /// Ends all connections. New ones end at once.
    pub(crate) fn cut(&self) {
        let streams = self.streams.lock().expect("unpoisoned");
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in streams.iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn restore(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }

    fn serve(&self, client: &TcpStream, server: &str) {
        let mut streams = self.streams.lock().expect("unpoisoned");
        if self.is_cut.load(Ordering::SeqCst) {
            return;
        }
        let server = TcpStream::connect(server).expect("the server answers");
        for (from, to) in [(client, &server), (&server, client)] {
            let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
            streams.push(clone(from));
            let (from, to) = (clone(from), clone(to));
            thread::spawn(move || pump(from, to));
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
