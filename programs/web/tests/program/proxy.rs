//! A connection to the database that can be cut, or become silent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Between an instance and its database.
#[derive(Clone, Default)]
pub(crate) struct Proxy {
    is_cut: Arc<AtomicBool>,
    /// New connections get no answer.
    is_silent: Arc<AtomicBool>,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Default)]
struct Connections {
    streams: Vec<TcpStream>,
    /// For each that was made while the network was not silent: whether it has become silent.
    silent: Vec<Arc<AtomicBool>>,
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
        let connections = self.connections.lock().expect("unpoisoned");
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in &connections.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Forwards nothing more, and ends no connection.
    pub(crate) fn silence(&self) {
        let connections = self.connections.lock().expect("unpoisoned");
        self.is_silent.store(true, Ordering::SeqCst);
        for silent in &connections.silent {
            silent.store(true, Ordering::SeqCst);
        }
    }

    /// Forwards new connections. Those that are silent stay so.
    pub(crate) fn restore_new(&self) {
        self.is_silent.store(false, Ordering::SeqCst);
    }

    pub(crate) fn restore(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }

    fn serve(&self, client: &TcpStream, server: &str) {
        let mut connections = self.connections.lock().expect("unpoisoned");
        if self.is_cut.load(Ordering::SeqCst) {
            return;
        }
        let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
        if self.is_silent.load(Ordering::SeqCst) {
            connections.streams.push(clone(client));
            return;
        }
        let silent = Arc::new(AtomicBool::new(false));
        connections.silent.push(Arc::clone(&silent));
        let server = TcpStream::connect(server).expect("the server answers");
        for (from, to) in [(client, &server), (&server, client)] {
            connections.streams.push(clone(from));
            let (from, to, silent) = (clone(from), clone(to), Arc::clone(&silent));
            thread::spawn(move || pump(from, to, &silent));
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, silent: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        if !silent.load(Ordering::SeqCst) && to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
