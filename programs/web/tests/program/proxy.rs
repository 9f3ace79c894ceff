//! A connection to the database that can be cut, or become silent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Between an instance and its database.
#[derive(Clone, Default)]
pub(crate) struct Proxy(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_cut: bool,
    is_silent: bool,
    /// Both ends of each connection.
    streams: Vec<TcpStream>,
}

impl Proxy {
    /// Listens. Returns the URL of the database by way of it, too.
    pub(crate) fn start(url: &str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let (_, rest) = url.split_once("://").expect("a URL");
        let (authority, _) = rest.split_once('/').expect("a database");
        let server = authority.rsplit('@').next().expect("a host").to_owned();
        let by_way = url.replacen(&server, &address, 1);
        let proxy = Self::default();
        let accepting = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.serve(client, &server);
            }
        });
        (proxy, by_way)
    }

    /// Ends all connections. New ones end at once.
    pub(crate) fn cut(&self) {
        let mut state = self.0.lock().expect("unpoisoned");
        state.is_cut = true;
        for stream in &state.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Forwards nothing more, and ends no connection. New ones get no answer.
    pub(crate) fn silence(&self) {
        self.0.lock().expect("unpoisoned").is_silent = true;
    }

    /// Forwards new connections.
    pub(crate) fn restore(&self) {
        let mut state = self.0.lock().expect("unpoisoned");
        state.is_cut = false;
        state.is_silent = false;
    }

    fn serve(&self, client: TcpStream, server: &str) {
        let mut state = self.0.lock().expect("unpoisoned");
        if state.is_cut {
            return;
        }
        if !state.is_silent {
            let server = TcpStream::connect(server).expect("the server answers");
            for (from, to) in [(&client, &server), (&server, &client)] {
                let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
                let (proxy, from, to) = (self.clone(), clone(from), clone(to));
                thread::spawn(move || proxy.forward(from, to));
            }
            state.streams.push(server);
        }
        state.streams.push(client);
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        // What is lost is not repeated: the connection stays silent.
        let mut is_silent = false;
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            is_silent |= self.0.lock().expect("unpoisoned").is_silent;
            if !is_silent && to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}
